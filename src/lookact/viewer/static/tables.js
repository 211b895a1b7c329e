// Results and settings as tables.

import { colourOf, emptyNote, make, replace } from "./dom.js";
import { plainText, shortNumber, spanOf, withUnit } from "./format.js";
import { spokenName, tabulate } from "./report.js";
import { labelsOf } from "./seeds.js";
import { compareSettings } from "./settings.js";

export function showResults(container, runs) {
  const labels = labelsOf(runs);
  replace(container, runs.map((run, index) => make("section", { class: "card" },
    runs.length > 1 ? make("h3", { class: colourOf(index) }, make("i"), labels[index]) : null,
    run.result ? resultTable(run.result) : noResult(run),
    versionLine(run.versions))));
}

function noResult(run) {
  if (run.status === "running") return emptyNote("The result comes when the run ends.");
  return emptyNote("This run left no result.json: it did not reach its end.");
}

function resultTable(result) {
  const { columns, rows, loose, seconds } = tabulate(result);
  const plain = loose.map(([name, cell]) => make("tr", {}, make("td", {}, spokenName(name)), numberCell(cell)));
  const intervals = rows.some((row) => row.cells.some((cell) => cell && cell.low !== null));
  return make("div", { class: "scroll" },
    rows.length ? comparison(columns, rows) : null,
    intervals ? make("p", { class: "quiet small" }, "small numbers and bars: 95% intervals") : null,
    plain.length ? make("table", { class: "report" }, make("tbody", {}, plain)) : null,
    seconds.length ? phaseTimes(seconds) : null);
}

function comparison(columns, rows) {
  const names = columns.map((column) => make("th", { class: "number" }, column.replaceAll("_", " ")));
  const lines = rows.map(({ measure, kind, cells }, index) => {
    const first = measure !== rows[index - 1]?.measure;
    return make("tr", { class: first ? "first" : "" },
      make("td", {}, first ? spokenName(measure) : ""),
      make("td", { class: "quiet" }, kind.replaceAll("_", " ")),
      cells.map(numberCell));
  });
  const head = make("tr", {}, make("th"), make("th"), names);
  return make("table", { class: "report" }, make("thead", {}, head), make("tbody", {}, lines));
}

function phaseTimes(seconds) {
  const total = seconds.reduce((sum, [, value]) => sum + (value ?? 0), 0);
  const told = [...seconds, ["in all", total]];
  const spans = told.map(([name, value]) => make("span", {}, `${name} `, make("b", {}, spanOf(value ?? 0))));
  return make("p", { class: "seconds" }, spans);
}

function numberCell(cell) {
  return make("td", { class: "number" }, cell ? valueWithInterval(cell) : "");
}

function valueWithInterval({ value, low, high, rate }) {
  if (typeof value !== "number") return plainText(value);
  const told = make("b", {}, rate || Number.isInteger(value) ? withUnit(value, rate ? "%" : "") : threeDigits(value));
  if (low === null) return told;
  const percent = (end) => Math.round(100 * end);
  const ends = rate ? `${percent(low)}–${percent(high)}%` : `${threeDigits(low)} to ${threeDigits(high)}`;
  const bar = rate ? make("span", { class: "interval", style: `--low:${low};--high:${high};--value:${value}` }) : null;
  return [told, make("span", { class: "quiet ends" }, ends), bar];
}

function threeDigits(value) {
  return Math.abs(value) >= 1e-3 && Math.abs(value) < 1000 ? value.toPrecision(3) : shortNumber(value);
}

function versionLine(versions) {
  if (!versions) return null;
  const known = Object.entries(versions).filter(([, value]) => value);
  const told = known.map(([name, value]) => `${name} ${name === "commit" ? value.slice(0, 10) : value}`);
  return make("p", { class: "quiet small versions" }, told.join("  ·  "));
}

export function showSettings(container, runs, state, change) {
  const rows = compareSettings(runs.map((run) => run.config));
  const different = rows.filter(([, , differs]) => differs);
  const several = runs.length > 1;
  const shown = several && !state.all ? different : rows;
  const equal = `show ${rows.length - different.length} equal settings too`;
  const onclick = () => change({ all: !state.all }, true);
  const more = make("button", { class: "link", onclick }, state.all ? "show differences only" : equal);
  const nothing = emptyNote(rows.length ? "These runs have the same settings." : "No config.yaml in this folder.");
  replace(container, make("section", { class: "card scroll" },
    shown.length ? settingTable(shown, runs, several && state.all) : nothing,
    several && rows.length ? more : null));
}

function settingTable(rows, runs, mark) {
  const labels = labelsOf(runs).map((label, index) =>
    runs.length > 1 ? make("th", { class: colourOf(index) }, make("i"), label) : make("th", {}, "value"));
  const part = (name) => (name?.includes(".") ? name.split(".")[0] : "");
  const lines = rows.map(([name, values, differs], index) => {
    const first = index && part(name) !== part(rows[index - 1][0]);
    return make("tr", { class: [first ? "first" : "", mark && differs ? "differs" : ""].join(" ") },
      make("td", {}, make("code", {}, name)),
      values.map((value) => make("td", {}, value === undefined ? "–" : plainText(value))));
  });
  const head = make("tr", {}, make("th", {}, "setting"), labels);
  return make("table", { class: "settings" }, make("thead", {}, head), make("tbody", {}, lines));
}
