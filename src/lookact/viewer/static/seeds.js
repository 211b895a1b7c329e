// Which runs are seeds of one config, what curves are called, and in which order metrics stand. Pure.

import { curveOf, meanBand, smoothed } from "./series.js";

const FIRST = [/success_rate$/, /score$/, /token_accuracy$|\/accuracy$/, /return$/, /total$/];
const ORDER = ["eval", "rollout", "reward", "policy", "loss", "judge", "world", "seeing", "optim", "time"];

export function labelsOf(runs) {
  const recipes = new Set(runs.map((run) => run.recipe));
  return runs.map((run) => (recipes.size > 1 ? `${run.recipe} / ${run.name}` : run.name));
}

// How many runs of one config there are: seeds, unless one was run twice.
export function countOf(runs) {
  const seeds = new Set(runs.map((run) => run.seed));
  return `${runs.length} ${seeds.size === runs.length ? "seeds" : "runs"}`;
}

// Runs that belong together: [{label, members: [index, …]}]; each by itself where `mean` is off.
export function groupRuns(runs, mean) {
  const labels = labelsOf(runs);
  const groups = new Map();
  runs.forEach((run, index) => {
    const key = mean ? run.group : run.place;
    groups.set(key, [...(groups.get(key) ?? []), index]);
  });
  return [...groups.values()].map((members) => {
    const label = labels[members[0]];
    if (members.length === 1) return { label, members };
    const common = label.replace(/[-_ ]?seed[-_ ]?\d+$/, "") || label;
    return { label: `${common} · ${countOf(members.map((index) => runs[index]))}`, members };
  });
}

// One metric of every group, ready to draw: a smoothed line, and behind it a band or what was recorded.
export function seriesOf(groups, tables, key, { axis, smooth }) {
  return groups.map(({ label, members }, colour) => {
    const curves = members.map((index) => curveOf(tables[index], key, axis)).filter((curve) => curve.x.length);
    if (!curves.length) return { label, colour, x: [], y: [] };
    const lines = curves.map((curve) => ({ x: curve.x, y: smoothed(curve.y, smooth) }));
    if (lines.length > 1) return { label, colour, ...withTails(meanBand(lines), lines) };
    return { label, colour, ...lines[0], raw: smooth ? curves[0].y : null };
  });
}

// A mean ends where the slowest seed is; how far the others have come is told by their own lines.
function withTails(band, lines) {
  const end = band.x.length ? band.x[band.x.length - 1] : -Infinity;
  const tails = lines.map(({ x, y }) => {
    const from = x.findIndex((each) => each >= end);
    return { x: x.slice(from), y: y.slice(from) };
  });
  return { ...band, tails: tails.filter((tail) => tail.x[tail.x.length - 1] > end) };
}

// Metrics by their prefix, in the order in which people look at them: [[prefix, [key, …]], …].
export function groupKeys(keys, search) {
  const wanted = search.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map();
  const telling = (key) => (FIRST.findIndex((pattern) => pattern.test(key)) + FIRST.length + 1) % (FIRST.length + 1);
  for (const key of [...new Set(keys)].sort((a, b) => telling(a) - telling(b) || a.localeCompare(b))) {
    if (key === "step" || !wanted.every((word) => key.toLowerCase().includes(word))) continue;
    const prefix = key.includes("/") ? key.split("/")[0] : "other";
    groups.set(prefix, [...(groups.get(prefix) ?? []), key]);
  }
  const rank = (prefix) => (ORDER.includes(prefix) ? ORDER.indexOf(prefix) : ORDER.length);
  return [...groups].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
}
