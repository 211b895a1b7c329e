import assert from "node:assert/strict";
import test from "node:test";

import { spokenName, tabulate } from "./report.js";

test("what was compared stands side by side with intervals", () => {
  const kinds = (greedy, sampled) => ({
    greedy: { success_rate: greedy, episodes: 100, ci: { success_rate: [greedy - 0.1, greedy + 0.1] } },
    sampled: { success_rate: sampled, episodes: 100, ci: { success_rate: [0, 1] } },
  });
  const result = { before: kinds(0.5, 0.25), after: kinds(0.75, 0.5), seed: 3, seconds: { imitating: 5 } };
  const { columns, rows, loose, seconds } = tabulate(result);
  assert.deepEqual(columns, ["before", "after"]);
  const names = [["success_rate", "greedy"], ["success_rate", "sampled"], ["episodes", ""]];
  assert.deepEqual(rows.map((row) => [row.measure, row.kind]), names);
  const told = rows[0].cells.map((cell) => [cell.value, cell.low, cell.rate]);
  assert.deepEqual(told, [[0.5, 0.4, true], [0.75, 0.65, true]]);
  assert.deepEqual(rows[2].cells.map((cell) => cell.value), [100, 100]);
  assert.deepEqual(loose.map(([name, cell]) => [name, cell.value]), [["seed", 3]]);
  assert.deepEqual(seconds, [["imitating", 5]]);
});

test("rates of a group find their intervals under its name", () => {
  const { rows } = tabulate({ after: { ood: { vision: 0.5 }, ci: { ood: { vision: [0.4, 0.6] } } } });
  const [{ measure, kind, cells: [cell] }] = rows;
  assert.deepEqual([measure, kind, cell.low, cell.high, cell.rate], ["vision", "ood", 0.4, 0.6, true]);
  assert.equal(rows.length, 1);
});

test("a column that lacks a measure is empty there", () => {
  const { rows } = tabulate({ random: { spl: 0.1 }, after: { turns: 5 } });
  assert.deepEqual(rows.map((row) => row.cells.map((cell) => cell?.value ?? null)), [[0.1, null], [null, 5]]);
});

test("an empty result is an empty table", () => {
  assert.deepEqual(tabulate({}), { columns: [], rows: [], loose: [], seconds: [] });
});

test("names are spoken", () => {
  assert.deepEqual(["success_rate", "spl", "room_size"].map(spokenName), ["success", "SPL", "room size"]);
});
