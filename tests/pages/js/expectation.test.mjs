// What is promised of the blocks to come: no time where the checkout promises none.

import assert from "node:assert/strict";
import { test } from "node:test";

import { blocksLeft } from "../../../svcd/pages/static/expectation.mjs";

const NOW = 1_795_170_187_000;
const TIMING = { blockSeconds: 300, idleSeconds: 1500 };
const NEXT = "Waits for the next block";
const view = (seconds, syncing = false) => ({ syncing, time: NOW, tipTime: NOW - 1000 * seconds });

test("a time is promised while blocks come", () => {
  assert.equal(blocksLeft(1, view(0), TIMING), "About 5 minutes left");
  assert.equal(blocksLeft(12, view(1500), TIMING), "About 60 minutes left");
  assert.equal(blocksLeft(1, view(-60), TIMING), "About 5 minutes left", "the clock of the node may be late");
});

test("none is promised where nobody knows one", () => {
  assert.equal(blocksLeft(1, view(1501), TIMING), NEXT, "no block has come for long");
  assert.equal(blocksLeft(1, view(0), { blockSeconds: null, idleSeconds: null }), NEXT, "the operator makes them by hand");
  assert.equal(blocksLeft(1, view(0, true), TIMING), "Time unknown", "the node is catching up");
  assert.equal(blocksLeft(1, null, TIMING), NEXT, "before the node has answered");
});

test("blocks of a devnet may be dated before the present", () => {
  assert.equal(blocksLeft(1, view(5400), { blockSeconds: 30, idleSeconds: null }), "Less than a minute left");
});
