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
    tab.idle.begin();
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
  assert.deepEqual([one.locked, other.locked], [1, 1]);
});

test("a tab that finds the time over has the others look, and only look", () => {
  const [one, other] = tabs(2);
  one.time.now += IDLE_LIMIT - 1;
  assert.equal(one.idle.check(), false);
  other.channel.postMessage({ kind: "check" });
  assert.equal(one.locked, 0, "the time is not over");
  one.time.now += 1;
  assert.equal(one.idle.check(), true);
  assert.deepEqual([one.locked, other.locked], [1, 1], "the timers of a hidden tab come late");
  assert.equal(one.idle.check(), false, "there is nothing to lock any more");
});

test("a clock that goes backwards locks", () => {
  const [one, other] = tabs(2);
  one.time.now -= 1_000;
  assert.equal(one.idle.check(), false, "clocks are corrected by a second");
  one.time.now -= 1;
  one.idle.active();
  assert.deepEqual([one.locked, other.locked], [1, 1]);
  one.idle.begin();
  assert.equal(one.idle.check(), false);
});

test("small steps back do not add up to time", () => {
  const [tab] = tabs(1);
  for (let step = 0; step < 1_000 && tab.locked === 0; step += 1) {
    tab.time.now += step % 2 === 0 ? 1_000 : -999;
    tab.idle.check();
  }
  assert.equal(tab.locked, 0);
  tab.time.now += IDLE_LIMIT;
  assert.equal(tab.idle.check(), true);
});

test("where there is no secret there is nothing to lock", () => {
  const [one] = tabs(1);
  one.idle.lockAll();
  one.time.now += IDLE_LIMIT;
  one.idle.active();
  assert.deepEqual([one.idle.check(), one.locked], [false, 1]);
});

test("another keyfile or password locks", () => {
  const [one, other] = tabs(2);
  one.channel.postMessage({ kind: "changed" });
  assert.deepEqual([one.locked, other.locked], [0, 1]);
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
