import assert from "node:assert/strict";
import test from "node:test";

import { curveOf, drawnIndices, firstFrom, heightAt, meanBand, nearestIndex, smoothed } from "./series.js";
import { emptyTable, hasTime, joinTable, secondsOf } from "./series.js";

const answer = (columns, more = {}) => ({ columns, version: "1", offset: 10, restart: false, skipped: 0, ...more });

test("answers are joined, with holes where a key is new or missing", () => {
  let table = joinTable(emptyTable(), answer({ step: [1, 2], a: [5, 6] }, { restart: true, skipped: 1 }));
  table = joinTable(table, answer({ step: [3], b: [7] }, { offset: 20 }));
  assert.deepEqual(table.columns, { step: [1, 2, 3], a: [5, 6, null], b: [null, null, 7] });
  assert.deepEqual([table.offset, table.version, table.skipped], [20, "1", 1]);
});

test("an answer without lines changes nothing, a restart forgets what was", () => {
  const table = joinTable(emptyTable(), answer({ step: [1], a: [5] }));
  assert.deepEqual(joinTable(table, answer({ step: [] })).columns, { step: [1], a: [5] });
  assert.deepEqual(joinTable(table, answer({ step: [9], b: [1] }, { restart: true })).columns, { step: [9], b: [1] });
});

test("a curve skips holes, sorts by step, and takes a step as it was written last", () => {
  const table = { columns: { step: [3, 1, 3, 2], a: [7, 1, 9, null] } };
  assert.deepEqual(curveOf(table, "a", "step"), { x: [1, 3], y: [1, 9] });
  assert.deepEqual(curveOf(table, "none", "step"), { x: [], y: [] });
});

test("the time axis adds up what the phases took", () => {
  const columns = { step: [1, 2, 3], a: [1, 2, 3], "time/learn": [2, 3, null], "time/rollout": [1, null, 4] };
  const table = { columns };
  assert.deepEqual(secondsOf(table), [3, 6, 10]);
  assert.deepEqual(curveOf(table, "a", "time").x, [3, 6, 10]);
  assert.ok(hasTime(table));
  assert.ok(!hasTime(emptyTable()));
});

test("smoothing is an average from the first point on", () => {
  assert.deepEqual(smoothed([4, 4, 4], 0.9).map((value) => Number(value.toFixed(9))), [4, 4, 4]);
  // the second of (0, 1) at weight one half: (0 * 1/4 + 1 * 1/2) / (3/4)
  assert.ok(Math.abs(smoothed([0, 1], 0.5)[1] - 2 / 3) < 1e-12);
  const values = [1, 2];
  assert.equal(smoothed(values, 0), values);
});

test("between its points a curve is a straight line", () => {
  const curve = { x: [0, 10], y: [0, 1] };
  assert.deepEqual([[0, 0], [2.5, 1], [10, 1]].map(([x, after]) => heightAt(curve, x, after)), [0, 0.25, 1]);
});

test("seeds become a mean and a band where all of them reach", () => {
  const band = meanBand([{ x: [0, 1, 2], y: [0, 2, 4] }, { x: [1, 3], y: [4, 8] }]);
  assert.deepEqual(band, { x: [1, 2], y: [3, 5], low: [2, 4], high: [4, 6] });
  assert.deepEqual(meanBand([]), { x: [], y: [], low: [], high: [] });
  assert.deepEqual(meanBand([{ x: [], y: [] }, { x: [1], y: [2] }]), { x: [1], y: [2], low: [2], high: [2] });
});

test("the nearest point is found", () => {
  assert.deepEqual([0, 1, 1.5, 9].map((x) => firstFrom([1, 1, 2], x)), [0, 0, 2, 3]);
  assert.deepEqual([-5, 1.4, 1.6, 99].map((x) => nearestIndex([0, 1, 2], x)), [0, 1, 2, 2]);
  assert.equal(nearestIndex([], 1), -1);
});

test("long curves are thinned without losing their extremes", () => {
  const xs = Array.from({ length: 10000 }, (_, index) => index);
  const ys = xs.map((x) => (x === 5003 ? 100 : x === 7001 ? -100 : x % 7));
  const kept = drawnIndices(xs, ys, 100);
  assert.ok(kept.length <= 404 + 4);
  assert.ok(kept.includes(5003) && kept.includes(7001) && kept.includes(0) && kept.includes(9999));
  assert.deepEqual([...kept].sort((a, b) => a - b), kept);
  assert.deepEqual(drawnIndices([1, 2], [3, 4], 100), [0, 1]);
});

test("a metric named as every object's own things are is a metric", () => {
  const answer = { ...emptyTable(), restart: false, columns: { step: [1], constructor: [2] } };
  const table = joinTable(emptyTable(), answer);
  assert.deepEqual(curveOf(table, "constructor", "step"), { x: [1], y: [2] });
  assert.deepEqual(curveOf(table, "toString", "step"), { x: [], y: [] });
});
