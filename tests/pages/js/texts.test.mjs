// The texts of a page: placeholders, forms, times.

import assert from "node:assert/strict";
import { test } from "node:test";

import { localTime, message, timeLeft } from "../../../svcd/pages/static/texts.mjs";

test("a text with its values", () => {
  assert.equal(message("script.confirmations", { count: 1 }), "1 confirmation");
  assert.equal(message("script.confirmations", { count: 0 }), "0 confirmations");
  assert.equal(message("script.confirmations", { count: 12_345n }), "12\u202f345 confirmations");
  assert.equal(message("checkout.pay-before", { time: "$& {count}" }), "Pay before $& {count}.");
});

test("a text or a value that is missing is a fault of the program", () => {
  assert.throws(() => message("script.nothing"), /there is no text script.nothing/);
  assert.throws(() => message("checkout.pay-before"), /needs time/);
});

test("durations", () => {
  const said = [-5, 59, 60, 61, 7_200, 7_201].map((seconds) => timeLeft(seconds));
  const [soon, rounded] = ["Less than a minute left", ["About 2 minutes left", "About 120 minutes left", "About 3 hours left"]];
  assert.deepEqual(said, [soon, soon, "About a minute left", ...rounded]);
  const untilDeadline = [-5, 59, 119, 779, 7_259, 10_799].map((seconds) => timeLeft(seconds, Math.floor));
  const minutes = ["About a minute left", "About 12 minutes left", "About 120 minutes left", "About 2 hours left"];
  assert.deepEqual(untilDeadline, ["Less than a minute left", "Less than a minute left", ...minutes]);
});

test("a time is written in the language of the page", () => {
  assert.match(localTime(1_793_491_200_000), /20(26)?/);
});
