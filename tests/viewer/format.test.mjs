import assert from "node:assert/strict";
import test from "node:test";

import { agoOf, bytesOf, plainText, shortNumber, spanOf, tickLabel, unitOf, withUnit } from "./format.js";

test("units follow from names", () => {
  const keys = ["eval/success_rate", "policy/clip_fraction", "world/accuracy", "time/learn", "eval/psnr", "optim/lr"];
  assert.deepEqual(keys.map(unitOf), ["%", "%", "%", "s", "dB", ""]);
});

test("numbers have four digits that matter", () => {
  const told = [[0, "0"], [130, "130"], [0.123456, "0.1235"], [1234.567, "1235"], [12345, "12.3k"], [2e6, "2M"],
    [999999, "1M"], [999999999, "1G"], [99940, "99.9k"], [0.00005, "5e-5"],
    [-0.000123, "-1.23e-4"], [3.2e15, "3.2e15"], [null, "–"]];
  for (const [value, text] of told) assert.equal(shortNumber(value), text);
});

test("values carry their unit", () => {
  assert.equal(withUnit(0.7656, "%"), "76.6%");
  assert.equal(withUnit(22.3, "dB"), "22.3 dB");
  assert.equal(withUnit(null, "%"), "–");
  assert.equal(tickLabel(0.975, "%"), "97.5%");
  assert.equal(tickLabel(0, ""), "0");
});

test("times are told in what people count in", () => {
  const told = ["0.3 s", "45 s", "1.5 min", "12 min", "1 h", "3 h 20", "2 d 4 h"];
  assert.deepEqual([0.25, 45, 90, 720, 3600, 12000, 190000].map(spanOf), told);
  assert.equal(agoOf(2), "just now");
  assert.equal(agoOf(61), "1 min ago");
  assert.equal(agoOf(350), "6 min ago");
  assert.deepEqual([12, 2048, 3 << 20].map(bytesOf), ["12 B", "2 kB", "3 MB"]);
});

test("settings are told as they are written", () => {
  const told = ["none", "true", "“”", "1, 2", "[ ]", "2e-4", '{"a":1}'];
  assert.deepEqual([null, true, "", [1, 2], [], 0.0002, { a: 1 }].map(plainText), told);
});
