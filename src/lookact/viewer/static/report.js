// result.json as a table: what was compared stands side by side, a measure's interval beside its value. Pure.

import { ownValue } from "./format.js";

const RATE_GROUPS = ["ood"];
const SECONDS = "seconds";

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// Columns are the first names, rows the measures with what kind they are: {columns, rows, loose, seconds}.
export function tabulate(result) {
  const cells = [];
  for (const [path, report] of reportsIn(result, [])) {
    const rates = RATE_GROUPS.includes(path[path.length - 1]);
    for (const [measure, value] of Object.entries(report.values)) {
      const [low, high] = ownValue(report.ci, measure) ?? [null, null];
      const rate = rates || /_rate$|accuracy$/.test(measure);
      cells.push({ column: path[0] ?? "", kind: path.slice(1).join(" "), measure, value, low, high, rate });
    }
  }
  const loose = cells.filter((cell) => cell.column === "").map((cell) => [cell.measure, cell]);
  const compared = joined(cells.filter((cell) => cell.column !== ""));
  const columns = [...new Set(compared.map((cell) => cell.column))];
  return { columns, rows: rowsOf(compared, columns), loose, seconds: Object.entries(result[SECONDS] ?? {}) };
}

export function spokenName(name) {
  const known = { spl: "SPL", psnr: "PSNR", ood: "out of distribution" };
  return ownValue(known, name) ?? name.replace(/_rate$/, "").replaceAll("_", " ");
}

// Every mapping that holds plain values, by the names that lead to it.
function reportsIn(result, path) {
  const values = {};
  const inner = [];
  for (const [name, value] of Object.entries(result)) {
    if (name === "ci" || (name === SECONDS && !path.length)) continue;
    if (!isGroup(value)) values[name] = value;
    else {
      const ci = RATE_GROUPS.includes(name) ? { ci: ownValue(result.ci, name) ?? {} } : {};
      inner.push(...reportsIn({ ...value, ...ci }, [...path, name]));
    }
  }
  const own = Object.keys(values).length ? [[path, { values, ci: result.ci ?? {} }]] : [];
  return [...own, ...inner];
}

// A plain value that is the same for all kinds, as a count of episodes is, needs one row only.
function joined(cells) {
  const told = new Map();
  for (const { measure, value, low } of cells) {
    told.set(measure, (told.get(measure) ?? new Set()).add(JSON.stringify([value, low])));
  }
  return cells.map((cell) => (told.get(cell.measure).size === 1 && cell.low === null ? { ...cell, kind: "" } : cell));
}

function rowsOf(cells, columns) {
  const rows = new Map();
  const measures = [...new Set(cells.map((cell) => cell.measure))];
  const kinds = [...new Set(cells.map((cell) => cell.kind))];
  for (const measure of measures) {
    for (const kind of kinds) {
      const found = columns.map((column) =>
        cells.find((cell) => cell.column === column && cell.measure === measure && cell.kind === kind) ?? null,
      );
      if (found.some(Boolean)) rows.set(`${measure}|${kind}`, { measure, kind, cells: found });
    }
  }
  return [...rows.values()];
}
