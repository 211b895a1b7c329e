// The tail of a run's log.

import { emptyNote, make, replace } from "./dom.js";
import { labelsOf } from "./seeds.js";
import { getLog } from "./source.js";

const LEVEL = /^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d+ (\w+) ([\w.]+): /;

export async function showLog(container, runs) {
  const parts = runs.map(() => make("div", { class: "log", tabindex: 0 }));
  const labels = labelsOf(runs);
  replace(container, runs.map((run, index) => make("section", { class: "card" }, runs.length > 1 ? make("h3", {}, labels[index]) : null, parts[index])));
  const told = runs.map(() => null);
  const refresh = async () => {
    await Promise.all(runs.map(async (run, index) => {
      const { text } = await getLog(run.place);
      if (text === told[index]) return;
      const part = parts[index];
      const follow = told[index] === null || part.scrollTop + part.clientHeight > part.scrollHeight - 40;
      told[index] = text;
      replace(part, text ? text.trimEnd().split("\n").map(logLine) : emptyNote("No training.log in this folder."));
      if (follow) part.scrollTop = part.scrollHeight;
    }));
  };
  await refresh();
  return { refresh };
}

function logLine(line) {
  const found = LEVEL.exec(line);
  if (!found) return make("div", {}, line || " ");
  const [whole, clock, level, name] = found;
  return make("div", { class: level.toLowerCase(), title: name }, make("time", {}, clock), line.slice(whole.length));
}
