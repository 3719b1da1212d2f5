import assert from "node:assert/strict";
import { test } from "node:test";

import { Idle, IDLE_LIMIT } from "../../../svcd/pages/static/idle.mjs";

/** Tabs that hear one another at once, as those of one origin do through a BroadcastChannel. */
function tabs(count) {
  const time = { now: 1_000_000 };
  const channels = [];
  return Array.from({ length: count }, () => {
    const channel = new EventTarget();
    channel.postMessage = (data) => {
      for (const other of channels) {
        if (other !== channel) other.dispatchEvent(Object.assign(new Event("message"), { data }));
      }
    };
    channels.push(channel);
    const tab = { time, locked: 0, channel };
    tab.idle = new Idle(
      () => time.now,
      channel,
      () => (tab.locked += 1),
    );
    return tab;
  });
}

test("locks after five minutes and not before", () => {
  const [tab] = tabs(1);
  tab.time.now += IDLE_LIMIT - 1;
  assert.equal(tab.idle.check(), false);
  tab.time.now += 1;
  assert.equal(tab.idle.check(), true);
  assert.deepEqual([IDLE_LIMIT, tab.locked], [300_000, 1]);
});

test("what is done in one tab keeps the others open", () => {
  const [one, other] = tabs(2);
  one.time.now += IDLE_LIMIT - 1;
  one.idle.active();
  one.time.now += IDLE_LIMIT - 1;
  assert.equal(other.idle.check(), false);
  one.time.now += 1;
  assert.equal(other.idle.check(), true);
});

test("a click after the limit locks and opens nothing", () => {
  const [one, other] = tabs(2);
  one.time.now += IDLE_LIMIT;
  one.idle.active();
  assert.equal(one.locked, 1);
  assert.equal(other.idle.check(), true);
});

test("locking locks all tabs", () => {
  const [one, other, third] = tabs(3);
  one.idle.lockAll();
  assert.deepEqual([one.locked, other.locked, third.locked], [1, 1, 1]);
});

test("unlocking begins anew", () => {
  const [tab] = tabs(1);
  tab.time.now += IDLE_LIMIT;
  tab.idle.begin();
  assert.equal(tab.idle.check(), false);
});

test("no message keeps a wallet open for ever", () => {
  const [one, other] = tabs(2);
  for (const at of [Number.MAX_VALUE, Infinity, NaN, "9", null]) one.channel.postMessage({ kind: "active", at });
  one.channel.postMessage("odd");
  one.time.now += IDLE_LIMIT;
  assert.equal(other.idle.check(), true);
});
