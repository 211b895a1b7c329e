import assert from "node:assert/strict";
import test from "node:test";

import { compareSettings, flatten } from "./settings.js";

test("settings have dotted names", () => {
  const flat = { seed: 0, "learn.lr": 0.1, "learn.groups": [1, 2], empty: {} };
  assert.deepEqual(flatten({ seed: 0, learn: { lr: 0.1, groups: [1, 2] }, empty: {} }), flat);
  assert.deepEqual(flatten(null), {});
});

test("differences are marked, also where one config lacks a setting", () => {
  const rows = compareSettings([{ seed: 0, a: { b: [1] } }, { seed: 1, a: { b: [1] }, c: null }]);
  assert.deepEqual(rows, [["seed", [0, 1], true], ["a.b", [[1], [1]], false], ["c", [undefined, null], true]]);
});
