import assert from "node:assert/strict";
import test from "node:test";

import { chosenRows, kindsOf, storeLabels } from "./rows.js";

const ROWS = [
  { id: "a", question: "Find the bed.", return: 0.5, length: 3, ended: "terminated", success: true, is_valid: true },
  { id: "b", question: "Find the sofa.", return: 1.5, length: 9, ended: "truncated", success: false, is_valid: false },
  { id: "c", question: "Find the bed.", return: -1, length: 3, ended: "error", success: null, is_valid: false },
];
const USUAL = { rows: ROWS, only: "all", order: "in order", words: [] };
const ids = (patch) => chosenRows({ ...USUAL, ...patch }).map((row) => row.id).join("");

test("rows are listed in the order asked for, equal ones as they stand", () => {
  assert.equal(ids({}), "abc");
  assert.equal(ids({ order: "highest return" }), "bac");
  assert.equal(ids({ order: "lowest return" }), "cab");
  assert.equal(ids({ order: "longest" }), "bac");
  assert.equal(ids({ order: "shortest" }), "acb");
});

test("rows are found by words and by kind, and keep their number", () => {
  assert.equal(ids({ words: ["bed"] }), "ac");
  assert.equal(ids({ words: ["bed", "error"] }), "c");
  assert.equal(ids({ only: "success" }), "a");
  assert.equal(ids({ only: "failure" }), "b");
  assert.equal(ids({ only: "invalid" }), "bc");
  assert.equal(chosenRows({ ...USUAL, only: "error" })[0].number, 3);
});

test("only kinds that tell episodes apart are offered", () => {
  assert.deepEqual(kindsOf(ROWS.slice(0, 1)), [["all", 1]]);
  assert.deepEqual(kindsOf(ROWS).map(([kind]) => kind), [
    "all", "success", "failure", "terminated", "truncated", "error", "invalid",
  ]);
});

test("folders are called by what tells them apart", () => {
  const run = "nav-rloo/small-seed0/episodes/";
  assert.deepEqual(
    storeLabels([`${run}after-greedy`, `${run}step-000020`, `${run}step-000004-student`, `${run}random`]),
    ["after RL, greedy", "step 20", "step 4, student", "random"],
  );
  assert.deepEqual(storeLabels(["a/episodes", "b/episodes"]), ["a / episodes", "b / episodes"]);
  assert.deepEqual(storeLabels(["."]), ["this folder"]);
  assert.deepEqual(storeLabels(["episodes", "episodes/in_distribution"]), ["episodes", "episodes / in distribution"]);
});
