// Numbers of runs as curves: joined chunk by chunk, smoothed, averaged over seeds. Pure: no page, no network.

import { ownValue } from "./format.js";

export function emptyTable() {
  return { columns: { step: [] }, version: "", offset: 0, skipped: 0 };
}

// A table with the lines of one answer added; keys that are new get holes for the lines before.
export function joinTable(table, answer) {
  const before = answer.restart ? emptyTable() : table;
  const length = before.columns.step.length;
  const added = answer.columns.step.length;
  const columns = {};
  for (const key of new Set([...Object.keys(before.columns), ...Object.keys(answer.columns)])) {
    const old = ownValue(before.columns, key) ?? Array(length).fill(null);
    const fresh = ownValue(answer.columns, key) ?? Array(added).fill(null);
    columns[key] = added ? old.concat(fresh) : old;
  }
  const skipped = before.skipped + answer.skipped;
  return { columns, version: answer.version, offset: answer.offset, skipped };
}

export function hasTime(table) {
  return Object.keys(table.columns).some((key) => key.startsWith("time/"));
}

// Seconds of training up to each line: what its phases took, summed.
export function secondsOf(table) {
  const parts = Object.keys(table.columns).filter((key) => key.startsWith("time/"));
  let total = 0;
  return table.columns.step.map((_, line) => {
    for (const key of parts) total += table.columns[key][line] ?? 0;
    return total;
  });
}

// Where each line stands on an axis.
export function placesOf(table, axis) {
  return axis === "time" ? secondsOf(table) : table.columns.step;
}

// The points of one key, by step or by time; a step written again counts as it was written last.
export function curveOf(table, key, axis) {
  const values = ownValue(table.columns, key);
  if (!values) return { x: [], y: [] };
  const along = placesOf(table, axis);
  const steps = table.columns.step;
  let lines = [];
  let rising = true;
  for (let line = 0; line < values.length; line++) {
    if (values[line] === null) continue;
    if (lines.length && steps[line] <= steps[lines[lines.length - 1]]) rising = false;
    lines.push(line);
  }
  if (!rising) {
    const last = new Map(lines.map((line) => [steps[line], line]));
    lines = [...last.values()].sort((a, b) => along[a] - along[b]);
  }
  return { x: lines.map((line) => along[line]), y: lines.map((line) => values[line]) };
}

// An exponential moving average that is true from the first point on; weight 0 changes nothing.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

// Mean, lowest and highest of several curves wherever all of them reach; between its points a curve is a straight line.
export function meanBand(curves) {
  const filled = curves.filter((curve) => curve.x.length);
  const band = { x: [], y: [], low: [], high: [] };
  if (!filled.length) return band;
  band.x = sharedPlaces(filled.map((curve) => curve.x));
  const at = filled.map(() => 0);
  for (const x of band.x) {
    let [sum, low, high] = [0, Infinity, -Infinity];
    filled.forEach((curve, index) => {
      while (curve.x[at[index]] < x) at[index]++;
      const height = heightAt(curve, x, at[index]);
      sum += height;
      if (height < low) low = height;
      if (height > high) high = height;
    });
    band.y.push(sum / filled.length);
    band.low.push(low);
    band.high.push(high);
  }
  return band;
}

// Every place that some curve has and all of them span, in order.
function sharedPlaces(all) {
  const [first] = all;
  // seeds of one config mostly log at the same steps
  if (all.every((xs) => xs.length === first.length && xs.every((x, index) => x === first[index]))) return first;
  const low = Math.max(...all.map((xs) => xs[0]));
  const high = Math.min(...all.map((xs) => xs[xs.length - 1]));
  return [...new Float64Array(new Set(all.flat())).sort()].filter((x) => x >= low && x <= high);
}

// A curve's height at x; `after` is its first point not below x.
export function heightAt(curve, x, after) {
  if (curve.x[after] === x) return curve.y[after];
  const share = (x - curve.x[after - 1]) / (curve.x[after] - curve.x[after - 1]);
  return curve.y[after - 1] + share * (curve.y[after] - curve.y[after - 1]);
}

// The index of the first of sorted numbers that is not below x.
export function firstFrom(xs, x) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The index of the point nearest to x; -1 for none.
export function nearestIndex(xs, x) {
  const after = firstFrom(xs, x);
  if (after === 0) return xs.length ? 0 : -1;
  return after === xs.length || x - xs[after - 1] <= xs[after] - x ? after - 1 : after;
}

// Indices worth drawing on so many columns of pixels: each column's first, lowest, highest and last point.
export function drawnIndices(xs, ys, columns) {
  if (xs.length <= 4 * columns) return xs.map((_, index) => index);
  const width = (xs[xs.length - 1] - xs[0]) / columns || 1;
  const kept = [];
  let start = 0;
  for (let index = 1; index <= xs.length; index++) {
    const column = (at) => Math.floor((xs[at] - xs[0]) / width);
    if (index < xs.length && column(index) === column(start)) continue;
    let lowest = start;
    let highest = start;
    for (let at = start; at < index; at++) {
      if (ys[at] < ys[lowest]) lowest = at;
      if (ys[at] > ys[highest]) highest = at;
    }
    kept.push(...[...new Set([start, lowest, highest, index - 1])].sort((a, b) => a - b));
    start = index;
  }
  return kept;
}
