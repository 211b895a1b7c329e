// Numbers of runs as curves: joined chunk by chunk, smoothed, averaged over seeds. Pure: no page, no network.

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
    const old = before.columns[key] ?? Array(length).fill(null);
    const fresh = answer.columns[key] ?? Array(added).fill(null);
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

// The points of one key, by step or by time; a step written again counts as it was written last.
export function curveOf(table, key, axis) {
  const values = table.columns[key];
  if (!values) return { x: [], y: [] };
  const along = axis === "time" ? secondsOf(table) : table.columns.step;
  const points = new Map();
  values.forEach((value, line) => {
    if (value !== null) points.set(table.columns.step[line], [along[line], value]);
  });
  const sorted = [...points.values()].sort((a, b) => a[0] - b[0]);
  return { x: sorted.map((point) => point[0]), y: sorted.map((point) => point[1]) };
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

// A curve's height at x, on the straight line between its points.
export function heightAt(curve, x) {
  const after = curve.x.findIndex((each) => each >= x);
  if (after < 0) return curve.y[curve.y.length - 1];
  if (after === 0 || curve.x[after] === x) return curve.y[after];
  const share = (x - curve.x[after - 1]) / (curve.x[after] - curve.x[after - 1]);
  return curve.y[after - 1] + share * (curve.y[after] - curve.y[after - 1]);
}

// Mean, lowest and highest of several curves wherever all of them reach.
export function meanBand(curves) {
  const filled = curves.filter((curve) => curve.x.length);
  if (!filled.length) return { x: [], y: [], low: [], high: [] };
  const first = Math.max(...filled.map((curve) => curve.x[0]));
  const last = Math.min(...filled.map((curve) => curve.x[curve.x.length - 1]));
  const all = [...new Set(filled.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const x = all.filter((each) => each >= first && each <= last);
  const heights = x.map((each) => filled.map((curve) => heightAt(curve, each)));
  return {
    x,
    y: heights.map((row) => row.reduce((sum, value) => sum + value, 0) / row.length),
    low: heights.map((row) => Math.min(...row)),
    high: heights.map((row) => Math.max(...row)),
  };
}

// The index of the point nearest to x; -1 for none.
export function nearestIndex(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] <= xs[low] - x ? low - 1 : xs.length ? low : -1;
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
