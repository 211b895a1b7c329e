// The tail of a run's log.

import { emptyNote, make, replace } from "./dom.js";
import { labelsOf } from "./seeds.js";
import { getLog } from "./source.js";

const LEVEL = /^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d+ (\w+) ([\w.]+): /;

export async function showLog(container, runs) {
  const labels = labelsOf(runs);
  const logs = runs.map((run) => ({ run, told: null, part: make("div", { class: "log", tabindex: 0 }) }));
  replace(container, logs.map(({ part }, index) =>
    make("section", { class: "card" }, runs.length > 1 ? make("h3", {}, labels[index]) : null, part)));
  const refresh = async () => {
    await Promise.all(logs.map(refreshLog));
  };
  await refresh();
  return { refresh };
}

async function refreshLog(log) {
  const { text } = await getLog(log.run.place);
  if (text === log.told) return;
  const { part } = log;
  // who has scrolled up wants to read there
  const follow = log.told === null || part.scrollTop + part.clientHeight > part.scrollHeight - 40;
  log.told = text;
  replace(part, text ? text.trimEnd().split("\n").map(logLine) : emptyNote("No training.log in this folder."));
  if (follow) part.scrollTop = part.scrollHeight;
}

function logLine(line) {
  const found = LEVEL.exec(line);
  if (!found) return make("div", {}, line || " ");
  const [whole, clock, level, name] = found;
  return make("div", { class: level.toLowerCase(), title: name }, make("time", {}, clock), line.slice(whole.length));
}
