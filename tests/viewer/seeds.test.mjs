import assert from "node:assert/strict";
import test from "node:test";

import { groupKeys, groupRuns, labelsOf, seriesOf } from "./seeds.js";

const run = (recipe, name, group, seed = name) => ({ recipe, name, group, seed, place: `${recipe}/${name}` });

test("runs of several recipes are told apart by both names", () => {
  assert.deepEqual(labelsOf([run("nav", "a", 1), run("nav", "b", 1)]), ["a", "b"]);
  assert.deepEqual(labelsOf([run("nav", "a", 1), run("vla", "a", 2)]), ["nav / a", "vla / a"]);
});

test("seeds of one config are one group, or each by itself", () => {
  const runs = [run("nav", "small-seed0", "g"), run("nav", "warm", "h"), run("nav", "small-seed1", "g")];
  const together = [{ label: "small · 2 seeds", members: [0, 2] }, { label: "warm", members: [1] }];
  assert.deepEqual(groupRuns(runs, true), together);
  assert.equal(groupRuns([run("nav", "a", "g", 0), run("nav", "b", "g", 0)], true)[0].label, "a · 2 runs");
  assert.deepEqual(groupRuns(runs, false).map((group) => group.label), ["small-seed0", "warm", "small-seed1"]);
});

test("a group's metric is a mean with a band, a lone run's a line over what was recorded", () => {
  const seeds = [{ step: [1, 2], a: [0, 2] }, { step: [1, 2], a: [2, 4] }, { step: [1] }];
  const tables = seeds.map((columns) => ({ columns }));
  const groups = [{ label: "x", members: [0, 1] }, { label: "y", members: [1] }, { label: "z", members: [2] }];
  const [mean, lone, none] = seriesOf(groups, tables, "a", { axis: "step", smooth: 0 });
  assert.deepEqual([mean.y, mean.low, mean.high, mean.tails], [[1, 3], [0, 2], [2, 4], []]);
  assert.deepEqual([lone.y, lone.raw], [[2, 4], null]);
  assert.deepEqual(none.x, []);
  assert.deepEqual(seriesOf(groups, tables, "a", { axis: "step", smooth: 0.5 })[1].raw, [2, 4]);
});

test("a seed that is ahead of the others shows how far it has come", () => {
  const tables = [{ columns: { step: [1, 2], a: [0, 2] } }, { columns: { step: [1, 2, 3], a: [2, 4, 9] } }];
  const [mean] = seriesOf([{ label: "x", members: [0, 1] }], tables, "a", { axis: "step", smooth: 0 });
  assert.deepEqual([mean.x, mean.tails], [[1, 2], [{ x: [2, 3], y: [4, 9] }]]);
  const apart = [{ columns: { step: [1], a: [1] } }, { columns: { step: [5], a: [2] } }];
  const [none] = seriesOf([{ label: "x", members: [0, 1] }], apart, "a", { axis: "step", smooth: 0 });
  assert.deepEqual([none.x, none.tails.map((tail) => tail.x)], [[], [[1], [5]]]);
});

test("metrics stand by prefix, the telling ones first, and can be searched", () => {
  const keys = ["step", "time/learn", "optim/lr", "rollout/turns", "rollout/success_rate", "eval/spl", "odd"];
  assert.deepEqual(groupKeys([...keys, ...keys], ""), [["eval", ["eval/spl"]],
    ["rollout", ["rollout/success_rate", "rollout/turns"]], ["optim", ["optim/lr"]], ["time", ["time/learn"]], ["other", ["odd"]]]);
  assert.deepEqual(groupKeys(keys, "ROLL turn"), [["rollout", ["rollout/turns"]]]);
  assert.deepEqual(groupKeys(keys, "nothing"), []);
});
