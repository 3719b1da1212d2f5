// The keys that lead through a chart.

import assert from "node:assert/strict";
import { test } from "node:test";

import { next } from "../../../svcd/pages/static/charts.mjs";

test("arrow keys go one block, page keys ten, Home and End to the ends", () => {
  assert.equal(next("ArrowLeft", 20, 50), 19);
  assert.equal(next("ArrowDown", 20, 50), 19);
  assert.equal(next("ArrowRight", 20, 50), 21);
  assert.equal(next("ArrowUp", 20, 50), 21);
  assert.equal(next("PageUp", 20, 50), 30);
  assert.equal(next("PageDown", 20, 50), 10);
  assert.equal(next("Home", 20, 50), 0);
  assert.equal(next("End", 20, 50), 49);
});

test("no key leads beyond the ends, and others nowhere", () => {
  assert.equal(next("ArrowLeft", 0, 50), 0);
  assert.equal(next("PageUp", 45, 50), 49);
  assert.equal(next("Tab", 20, 50), null);
  assert.equal(next("toString", 20, 50), null);
});
