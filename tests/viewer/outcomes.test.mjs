import assert from "node:assert/strict";
import test from "node:test";

import { byDifficulty, choosePairs, countOutcomes, outcomeOf } from "./outcomes.js";

const pair = (verdict, truth, gap) => ({ verdict, truth, gap });

test("a verdict is right, wrong or undecided", () => {
  assert.equal(outcomeOf(pair(1, 1, 1)), "right");
  assert.equal(outcomeOf(pair(0, 1, 1)), "wrong");
  assert.equal(outcomeOf(pair(-1, 1, 1)), "undecided");
  assert.equal(outcomeOf(pair(0, -1, 0)), "undecided");
  assert.deepEqual(countOutcomes([pair(1, 1, 1), pair(0, 1, 2), pair(1, 1, 3)]), { right: 2, wrong: 1, undecided: 0 });
});

test("pairs are chosen by outcome and ordered by difficulty or age", () => {
  const pairs = [pair(1, 1, 0.5), pair(0, 1, 0.1), pair(1, 1, 0.2)];
  const gaps = (only, order) => choosePairs(pairs, only, order).map(({ gap }) => gap);
  assert.deepEqual(gaps("all", "hardest first"), [0.1, 0.2, 0.5]);
  assert.deepEqual(gaps("right", "easiest first"), [0.5, 0.2]);
  assert.deepEqual(gaps("all", "newest first"), [0.2, 0.1, 0.5]);
  assert.deepEqual(pairs.map(({ gap }) => gap), [0.5, 0.1, 0.2]);
});

test("bins hold equally many pairs, from the hardest", () => {
  const pairs = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((gap) => pair(gap > 4 ? 1 : 0, 1, gap));
  const bins = byDifficulty(pairs);
  assert.deepEqual(bins.map(({ low, high }) => [low, high]), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]);
  assert.deepEqual(bins.map(({ right }) => right), [0, 0, 1, 2, 2]);
  assert.deepEqual(byDifficulty([]), []);
  assert.equal(byDifficulty(pairs.slice(0, 2)).length, 2);
});
