import assert from "node:assert/strict";
import test from "node:test";

import { heightRange, logTicks, pixelScale, roundTicks, timeTicks } from "./scale.js";

test("ticks are round numbers inside the range", () => {
  assert.deepEqual(roundTicks(0, 1, 4), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(roundTicks(1, 130, 5), [20, 40, 60, 80, 100, 120]);
  assert.deepEqual(roundTicks(-0.5, 0.5, 2), [-0.5, 0, 0.5]);
  assert.deepEqual(roundTicks(3, 3, 4), [3]);
});

test("logarithmic ticks are powers of ten, with twos and fives where there are few", () => {
  assert.deepEqual(logTicks(1e-6, 1e-1), [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]);
  assert.deepEqual(logTicks(1, 10), [1, 2, 5, 10]);
});

test("time ticks stand at round seconds and minutes", () => {
  assert.deepEqual(timeTicks(0, 300, 5), [0, 60, 120, 180, 240, 300]);
  assert.deepEqual(timeTicks(10, 70, 3), [20, 40, 60]);
});

test("zero is shown where it is near, and a level line has room", () => {
  assert.deepEqual(heightRange([0, 1], false), [0, 1.06]);
  assert.deepEqual(heightRange([0, 0], false), [0, 1]);
  assert.deepEqual(heightRange([4], false), [0, 5]);
  assert.deepEqual(heightRange([0.1 + 0.2, 0.3], false).map((end) => Number(end.toPrecision(12))), [0, 0.375]);
  assert.deepEqual(heightRange([90, 100], false), [89.4, 100.6]);
  assert.deepEqual(heightRange([], false), [0, 1]);
});

test("a logarithmic range leaves out what is not positive", () => {
  assert.deepEqual(heightRange([-1, 0, 10, 1000], true).map(Math.round), [9, 1100]);
  assert.deepEqual(heightRange([0], true), [0.1, 1]);
});

test("values become pixels, straight and by their logarithm", () => {
  const straight = pixelScale([0, 10], [100, 0], false);
  assert.deepEqual([0, 5, 10].map(straight), [100, 50, 0]);
  const log = pixelScale([1, 100], [0, 100], true);
  assert.deepEqual([1, 10, 100, -3].map((value) => Math.round(log(value))), [0, 50, 100, 0]);
});
