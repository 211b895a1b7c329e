import assert from "node:assert/strict";
import test from "node:test";

import { groupKeys, groupRuns, labelsOf, seriesOf } from "./seeds.js";

const run = (recipe, name, group) => ({ recipe, name, group, place: `${recipe}/${name}` });

test("runs of several recipes are told apart by both names", () => {
  assert.deepEqual(labelsOf([run("nav", "a", 1), run("nav", "b", 1)]), ["a", "b"]);
  assert.deepEqual(labelsOf([run("nav", "a", 1), run("vla", "a", 2)]), ["nav / a", "vla / a"]);
});

test("seeds of one config are one group, or each by itself", () => {
  const runs = [run("nav", "small-seed0", "g"), run("nav", "warm", "h"), run("nav", "small-seed1", "g")];
  const together = [{ label: "small · 2 seeds", members: [0, 2] }, { label: "warm", members: [1] }];
  assert.deepEqual(groupRuns(runs, true), together);
  assert.deepEqual(groupRuns(runs, false).map((group) => group.label), ["small-seed0", "warm", "small-seed1"]);
});

test("a group's metric is a mean with a band, a lone run's a line over what was recorded", () => {
  const seeds = [{ step: [1, 2], a: [0, 2] }, { step: [1, 2], a: [2, 4] }, { step: [1] }];
  const tables = seeds.map((columns) => ({ columns }));
  const groups = [{ label: "x", members: [0, 1] }, { label: "y", members: [1] }, { label: "z", members: [2] }];
  const [mean, lone, none] = seriesOf(groups, tables, "a", { axis: "step", smooth: 0 });
  assert.deepEqual([mean.y, mean.low, mean.high, mean.count], [[1, 3], [0, 2], [2, 4], 2]);
  assert.deepEqual([lone.y, lone.raw], [[2, 4], null]);
  assert.deepEqual(none.x, []);
  assert.deepEqual(seriesOf(groups, tables, "a", { axis: "step", smooth: 0.5 })[1].raw, [2, 4]);
});

test("metrics stand by prefix, the telling ones first, and can be searched", () => {
  const keys = ["step", "time/learn", "optim/lr", "rollout/turns", "rollout/success_rate", "eval/spl", "odd"];
  assert.deepEqual(groupKeys([...keys, ...keys], ""), [["eval", ["eval/spl"]],
    ["rollout", ["rollout/success_rate", "rollout/turns"]], ["optim", ["optim/lr"]], ["time", ["time/learn"]], ["other", ["odd"]]]);
  assert.deepEqual(groupKeys(keys, "ROLL turn"), [["rollout", ["rollout/turns"]]]);
  assert.deepEqual(groupKeys(keys, "nothing"), []);
});
