import assert from "node:assert/strict";
import { test } from "node:test";

import { LongPoll } from "../../../svcd/pages/static/long-poll.mjs";
import { Poller } from "../../../svcd/pages/static/polling.mjs";

class Page extends EventTarget {
  hidden = false;
  show(shown) {
    this.hidden = !shown;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

/** Timers that only tell what they were set to. */
class Timers {
  waits = [];
  set = null;
  setTimeout(work, wait) {
    this.waits.push(wait);
    this.set = work;
    return this.waits.length;
  }
  clearTimeout(timer) {
    if (timer !== null) this.set = null;
  }
}

function opened(work) {
  const page = new Page();
  const timers = new Timers();
  const failures = [];
  const network = new EventTarget();
  const poller = new Poller(work, (problem) => failures.push(problem.message), page, timers, network);
  return { page, timers, failures, network, poller };
}

test("asks every two seconds", async () => {
  let asked = 0;
  const { timers, poller } = opened(async () => void (asked += 1));
  await poller.ask();
  await timers.set();
  assert.deepEqual([asked, timers.waits], [2, [2000, 2000]]);
});

test("asks again after what the work says, and backs off from two seconds", async () => {
  const answers = [100, undefined, 100];
  const { timers, poller } = opened(async () => {
    if (answers.length === 0) throw new Error("no");
    return answers.shift();
  });
  await poller.ask();
  for (let again = 0; again < 3; again += 1) await timers.set();
  assert.deepEqual(timers.waits, [100, 2000, 100, 4000]);
});

test("asks less and less often while it fails, and is told why", async () => {
  let failing = true;
  const { timers, failures, poller } = opened(async () => {
    if (failing) throw new Error("no");
  });
  await poller.ask();
  for (let again = 0; again < 5; again += 1) await timers.set();
  assert.deepEqual(timers.waits, [4000, 8000, 16000, 30000, 30000, 30000]);
  assert.deepEqual(failures, ["no", "no", "no", "no", "no", "no"]);
  failing = false;
  await timers.set();
  assert.equal(timers.waits.at(-1), 2000);
});

test("is done when there is nothing left to ask", async () => {
  let asked = 0;
  const { timers, page, poller } = opened(async () => (asked += 1) === 1);
  await poller.ask();
  assert.equal(timers.set, null);
  page.show(true);
  await poller.ask();
  assert.equal(asked, 1);
});

test("rests while the page is hidden, and asks at once when it is seen again", async () => {
  let asked = 0;
  const { timers, page, poller } = opened(async () => void (asked += 1));
  await poller.ask();
  page.show(false);
  assert.equal(timers.set, null);
  page.show(true);
  await new Promise(setImmediate);
  assert.equal(asked, 2);
  assert.notEqual(timers.set, null);
});

test("asks at once when the network is back, unless it is done", async () => {
  const answers = ["no", "no", true];
  let asked = 0;
  const { timers, network, poller } = opened(async () => {
    const answer = answers[asked];
    asked += 1;
    if (answer === "no") throw new Error(answer);
    return answer;
  });
  await poller.ask();
  await timers.set();
  assert.deepEqual(timers.waits, [4000, 8000]);
  network.dispatchEvent(new Event("online"));
  await new Promise(setImmediate);
  assert.deepEqual([asked, timers.set], [3, null]);
  network.dispatchEvent(new Event("online"));
  await new Promise(setImmediate);
  assert.equal(asked, 3);
});

test("never asks twice at once", async () => {
  let running = 0;
  let most = 0;
  const { poller } = opened(async () => {
    most = Math.max(most, (running += 1));
    await new Promise(setImmediate);
    running -= 1;
  });
  await Promise.all([poller.ask(), poller.ask()]);
  assert.equal(most, 1);
});

test("what ends while a question is under way asks no more", async () => {
  const { timers, failures, poller } = opened(async () => {
    poller.end();
    throw new Error("late");
  });
  await poller.ask();
  assert.deepEqual([timers.set, failures], [null, []]);
});

/** A question that the test ends, by an answer or by an abort. */
const untilAborted = ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

test("a page that is hidden ends its wait, and waits again once it is shown", async () => {
  const page = new Page();
  const patience = new LongPoll(page);
  const waits = [];
  assert.equal(await patience.ask(10, async ({ wait }) => waits.push(wait)), 1, "the first is answered at once");
  const asked = patience.ask(10, untilAborted);
  page.show(false);
  assert.equal(await asked, null);
  page.show(true);
  for (let round = 0; round < 2; round += 1) await patience.ask(10, async ({ wait }) => waits.push(wait));
  assert.deepEqual(waits, [0, 0, 10], "one question without a wait is enough");
});

test("where no question may wait, fifteen are asked without", async () => {
  const patience = new LongPoll(new Page());
  const refused = async () => Promise.reject(new Error("no"));
  await assert.rejects(patience.ask(10, refused), /no/);
  await patience.ask(10, async () => {});
  assert.equal(await patience.ask(10, refused), null, "it is asked again without a wait");
  const waits = [];
  for (let round = 0; round < 16; round += 1) await patience.ask(10, async ({ wait }) => waits.push(wait));
  assert.deepEqual(waits, [...Array(15).fill(0), 10]);
});

test("a wait that is ended stays ended", async () => {
  const patience = new LongPoll(new Page());
  patience.hurry();
  await patience.ask(10, async () => {});
  const asked = patience.ask(10, untilAborted);
  patience.end();
  assert.equal(await asked, null);
});
