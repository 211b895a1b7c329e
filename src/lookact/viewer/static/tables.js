// Results and settings as tables.

import { COLOURS } from "./chart.js";
import { emptyNote, make, replace } from "./dom.js";
import { plainText, shortNumber, spanOf, withUnit } from "./format.js";
import { spokenName, tabulate } from "./report.js";
import { labelsOf } from "./seeds.js";
import { compareSettings } from "./settings.js";

export function showResults(container, runs) {
  const labels = labelsOf(runs);
  replace(container, runs.map((run, index) => make("section", { class: "card" },
    runs.length > 1 ? make("h3", { class: `c${index % COLOURS}` }, make("i"), labels[index]) : null,
    run.result ? resultTable(run.result) : emptyNote(run.status === "running" ? "The result comes when the run ends." : "This run left no result.json: it did not reach its end."),
    versionLine(run.versions))));
}

function resultTable(result) {
  const { columns, rows, loose, seconds } = tabulate(result);
  const head = make("tr", {}, make("th"), make("th"), columns.map((column) => make("th", { class: "number" }, column.replaceAll("_", " "))));
  let last = null;
  const lines = rows.map(({ measure, kind, cells }) => {
    const name = measure === last ? "" : spokenName(measure);
    const first = measure !== last;
    last = measure;
    return make("tr", { class: first ? "first" : "" }, make("td", {}, name), make("td", { class: "quiet" }, kind.replaceAll("_", " ")), cells.map((cell) => make("td", { class: "number" }, cell ? valueCell(cell) : "")));
  });
  const plain = loose.map(([name, cell]) => make("tr", {}, make("td", {}, spokenName(name)), make("td", { class: "number" }, valueCell(cell))));
  const total = seconds.reduce((sum, [, value]) => sum + (value ?? 0), 0);
  return make("div", { class: "scroll" },
    rows.length ? make("table", { class: "report" }, make("thead", {}, head), make("tbody", {}, lines)) : null,
    rows.some((row) => row.cells.some((cell) => cell && cell.low !== null)) ? make("p", { class: "quiet small" }, "small numbers and bars: 95% intervals") : null,
    plain.length ? make("table", { class: "report" }, make("tbody", {}, plain)) : null,
    seconds.length ? make("p", { class: "seconds" }, seconds.map(([name, value]) => make("span", {}, `${name} `, make("b", {}, spanOf(value ?? 0)))), make("span", {}, "in all ", make("b", {}, spanOf(total)))) : null);
}

function valueCell({ value, low, high, rate }) {
  if (typeof value !== "number") return plainText(value);
  const unit = rate ? "%" : "";
  const told = make("b", {}, rate || Number.isInteger(value) ? withUnit(value, unit) : threeDigits(value));
  if (low === null) return told;
  const ends = rate ? `${Math.round(100 * low)}–${Math.round(100 * high)}%` : `${threeDigits(low)} to ${threeDigits(high)}`;
  const bar = rate ? make("span", { class: "interval", style: `--low:${low};--high:${high};--value:${value}` }) : null;
  return [told, make("span", { class: "quiet ends" }, ends), bar];
}

function threeDigits(value) {
  return Math.abs(value) >= 1e-3 && Math.abs(value) < 1000 ? value.toPrecision(3) : shortNumber(value);
}

function versionLine(versions) {
  if (!versions) return null;
  const told = Object.entries(versions).filter(([, value]) => value).map(([name, value]) => `${name} ${name === "commit" ? value.slice(0, 10) : value}`);
  return make("p", { class: "quiet small versions" }, told.join("  ·  "));
}

export function showSettings(container, runs, state, change) {
  const rows = compareSettings(runs.map((run) => run.config));
  const several = runs.length > 1;
  const shown = several && !state.all ? rows.filter(([, , differs]) => differs) : rows;
  const labels = labelsOf(runs);
  const head = make("tr", {}, make("th", {}, "setting"), labels.map((label, index) => make("th", { class: several ? `c${index % COLOURS}` : "" }, several ? [make("i"), label] : "value")));
  let last = null;
  const lines = shown.map(([name, values, differs]) => {
    const prefix = name.includes(".") ? name.split(".")[0] : "";
    const first = prefix !== last && last !== null;
    last = prefix;
    return make("tr", { class: [first ? "first" : "", several && differs && state.all ? "differs" : ""].join(" ") }, make("td", {}, make("code", {}, name)), values.map((value) => make("td", {}, value === undefined ? "–" : plainText(value))));
  });
  const same = rows.length - rows.filter(([, , differs]) => differs).length;
  const more = several ? make("button", { class: "link", onclick: () => change({ all: !state.all }, true) }, state.all ? "show differences only" : `show ${same} equal settings too`) : null;
  replace(container, make("section", { class: "card scroll" },
    shown.length ? make("table", { class: "settings" }, make("thead", {}, head), make("tbody", {}, lines)) : emptyNote(rows.length ? "These runs have the same settings." : "No config.yaml in this folder."),
    rows.length ? more : null));
}
