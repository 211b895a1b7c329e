import assert from "node:assert/strict";
import test from "node:test";

import { addressOf, readState, writeState } from "./state.js";

test("an empty address is the list of runs", () => {
  const state = readState("");
  assert.deepEqual([state.runs, state.tab, state.smooth, state.mean], [[], "charts", 0, true]);
  assert.equal(writeState(state), "#");
});

test("a state survives its address", () => {
  const chosen = { runs: ["a/b c", "d&e"], tab: "episodes", episode: "x|y", turn: 3 };
  const state = { ...readState(""), ...chosen, smooth: 0.5, log: true, mean: false };
  assert.deepEqual(readState(writeState(state)), state);
});

test("an address can be had of a few words", () => {
  assert.equal(addressOf({ runs: ["nav-rloo/a"] }), "#run=nav-rloo%2Fa");
  assert.deepEqual(readState(addressOf({ store: "s", tab: "episodes" })), { ...readState(""), store: "s", tab: "episodes" });
});

test("what is no number is as usual", () => {
  assert.equal(readState("#turn=many").turn, 0);
});
