// Open orders in JavaScript: the cases of tests/vectors/order_events.json, and any store and feed, without a network.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FileJournal } from "../../../clients/javascript/src/file-journal.js";
import { FileOrders } from "../../../clients/javascript/src/file-orders.js";
import * as pay from "../../../clients/javascript/src/index.js";
import { newOrder, rowOf } from "../../../clients/javascript/src/order-book.js";
import { OrderIndex } from "../../../clients/javascript/src/order-index.js";

import { BUYER, SHOP, ShopChain } from "./shop-chain.mjs";
import { MemoryOrders, randomOf, Shop, toldOf } from "./shop.mjs";

const VECTORS = new URL("../../vectors/order_events.json", import.meta.url);
const { cases: CASES, members: MEMBERS } = JSON.parse(await readFile(VECTORS, "utf8"));

/** In memory where the system has such a disk: what a power failure does is not tested here. */
const DISK = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

async function folderOf(context) {
  const folder = await mkdtemp(join(DISK, "orders-"));
  context.after(() => rm(folder, { recursive: true }));
  return folder;
}

/** The parts of a step, after each of which the shop asks. */
function partsOf(step, chain) {
  if (step.mempool !== undefined) return [() => chain.wait(step.mempool)];
  if (step.undone !== undefined) return [() => chain.reorganise(step.undone, step.blocks)];
  if (step.seconds !== undefined) return [() => (chain.now += 1000 * step.seconds)];
  return step.blocks.map((names) => () => {
    chain.now += 2000;
    chain.add(names, chain.now - 1000 * (step.secondsAgo ?? 0));
  });
}

/** Every teller of the cases says it in bodies with the same members. */
function checkMembers({ event, payment, ...body }) {
  const transfer = payment.txid === undefined && payment.confirmations === 0 ? [] : MEMBERS.transfer;
  const block = payment.confirmations === 0 ? [] : MEMBERS.block;
  const names = Object.keys({ event, payment, ...body });
  assert.deepEqual(names.sort(), [...MEMBERS.body, ...(MEMBERS[event] ?? [])].sort());
  const { sinceHeight, ...members } = payment;
  assert.deepEqual(Object.keys(members).sort(), [...MEMBERS.payment, ...transfer, ...block].sort());
  assert.deepEqual([payment.hardFinality, payment.settlementModel], [false, "canonical-chain-depth"]);
}

function grouped(events) {
  const found = {};
  for (const event of events) (found[event.reference] ??= []).push(event);
  return found;
}

/** Tells a case to a shop that is made anew as often as `again` says. */
async function run({ orders, transfers, steps }, makeStore, again) {
  const chain = new ShopChain(transfers);
  chain.now += 2000;
  chain.add([]);
  let shop = new Shop(chain, await makeStore());
  await shop.tell();
  for (const { payWithinSeconds, ...given } of orders)
    await shop.add(given, payWithinSeconds && { payUntil: chain.now + 1000 * payWithinSeconds });
  const places = new Map();
  const ids = new Set();
  for (const [number, step] of steps.entries()) {
    const told = [];
    const parts = step.restart === undefined ? partsOf(step, chain) : [() => {}];
    for (const part of parts) {
      part();
      told.push(...(await shop.tell()));
      if (again || step.restart === "shop") shop = new Shop(chain, again ? await makeStore() : shop.store);
    }
    told.forEach(checkMembers);
    for (const { id, event, subscriptionId, epoch, sequence } of told) {
      const before = places.get(subscriptionId) ?? { epoch: 0, sequence: 0 };
      const reorged = event === "payment.reorged" ? 1 : 0;
      assert.deepEqual([epoch, sequence], [before.epoch + reorged, before.sequence + 1]);
      places.set(subscriptionId, { epoch, sequence });
      assert.ok(!ids.has(id));
      ids.add(id);
    }
    const found = told.map((event) => toldOf(event, chain));
    assert.deepEqual(grouped(found), grouped(step.events ?? []), `step ${number + 1}: ${JSON.stringify(step)}`);
  }
}

for (const each of CASES)
  test(`a store in memory: ${each.what}`, () => {
    const store = new MemoryOrders();
    return run(each, () => store, false);
  });

test("a store in a folder, which another program reads after each step", async (context) => {
  const folder = await folderOf(context);
  const told = async (each, place) => {
    // A short journal is written anew again and again.
    const makeStore = () => new FileOrders(join(folder, String(place)), place % 2 === 0 ? 3 : undefined);
    await run(each, makeStore, true).catch((error) => {
      throw new Error(each.what, { cause: error });
    });
  };
  await Promise.all(CASES.map(told));
});

// Random stories

const REFERENCES = ["order-1", "order-2", "order-3"];

/** A story at random: a chain, and `step`, which lets something happen. */
function storyOf(random) {
  const chain = new ShopChain();
  chain.add([]);
  const one = (...choices) => choices[Math.floor(random() * choices.length)];
  let count = 0;
  const made = () => {
    const name = `t${++count}`;
    const replaces = random() < 0.25 && one(...chain.mempool.keys(), `t${1 + Math.floor(random() * (count - 1))}`);
    const isFirst = chain.given(replaces || name) !== undefined && chain.given(replaces).replaces === undefined;
    const reference = one(...REFERENCES, "order-9", null);
    const amount = random() < 0.8 ? "5000" : one("4999", "5001", "1");
    chain.give(name, isFirst ? { replaces } : { reference, amount, elsewhere: random() < 0.1 });
    return name;
  };
  const some = (most) => {
    const included = new Set(chain.blocks.flatMap(({ names }) => names).map((name) => chain.nonce(name)));
    const free = [];
    const take = (name) => {
      if (included.has(chain.nonce(name))) return;
      included.add(chain.nonce(name));
      free.push(name);
    };
    for (const name of chain.mempool.keys()) if (random() < 0.5) take(name);
    for (let left = Math.floor(random() ** 2 * (most + 1)); left > 0; left--) take(made());
    return free;
  };
  const submit = () => {
    const name = made();
    const included = chain.blocks.some(({ names }) => names.some((each) => chain.nonce(each) === chain.nonce(name)));
    if (!included) chain.wait(name);
  };
  const reorganise = () => {
    const depth = Math.min(1 + Math.floor(random() * one(2, 8, 50)), chain.height);
    const undone = chain.blocks.slice(-depth).flatMap(({ names }) => names);
    const kept = new Set(chain.blocks.slice(0, -depth).flatMap(({ names }) => names.map((name) => chain.nonce(name))));
    const blocks = Array.from({ length: depth + one(0, 1, 1, 2) }, () => []);
    for (const name of undone) {
      if (random() < 0.4 || kept.has(chain.nonce(name))) continue;
      kept.add(chain.nonce(name));
      one(...blocks).push(name);
    }
    chain.reorganise(depth, blocks);
  };
  const step = () => {
    const what = random();
    chain.rows = one(1, 2, 3, Infinity);
    if (what < 0.25) submit();
    else if (what < 0.7) {
      chain.now += 2000;
      chain.add(some(3));
    } else if (what < 0.85) reorganise();
    else chain.now += 1000 * one(1, 20, 60);
  };
  return { chain, step, one };
}

/** What events there are to tell of an order, by looking at the whole chain and the whole mempool each time. */
class Naive {
  state = "unpaid";
  paid = null;
  seen = false;
  confirmed = 0;
  expired = false;
  reported = new Set();

  constructor(chain, order, payUntil) {
    Object.assign(this, { chain, order, payUntil });
  }

  matching(names) {
    const found = names.map((name) => ({ ...this.chain.transfer(name) }));
    return found.filter(({ reference, elsewhere }) => reference === this.order.reference && !elsewhere);
  }

  tell() {
    const { chain, order, payUntil } = this;
    const onChain = chain.blocks.flatMap(({ names, hash, time }, height) =>
      this.matching(names).map((each) => ({ ...each, hash, time, height })),
    );
    const isRight = ({ amount }) => amount === order.amount;
    const rights = onChain.filter(isRight);
    const waits = this.matching([...chain.mempool.keys()]).filter(isRight);
    let [paid, waiting] = [rights[0] ?? null, rights.length > 0 ? null : (waits[0] ?? null)];
    const came = paid?.time ?? (waiting && Math.min(chain.mempool.get(waiting.name), chain.now));
    if (payUntil !== null && !this.seen && came !== null && came >= payUntil) [paid, waiting] = [null, null];
    const depth = (each) => (each === null ? 0 : chain.height - each.height + 1);
    let now = waiting === null ? "unpaid" : "pending";
    if (paid !== null) now = depth(paid) >= order.confirmations ? "confirmed" : "confirming";
    const told = [];
    const say = (event, state = now, shown = paid ?? waiting, more = {}) =>
      told.push({
        event: `payment.${event}`,
        reference: order.reference,
        state,
        confirmations: shown?.height === undefined ? 0 : depth(shown),
        ...(shown && { transfer: shown.name }),
        ...more,
      });
    if (!this.expired) {
      const before = this.paid;
      const moved = before !== null && (before.name !== paid?.name || before.hash !== paid.hash);
      if (moved) say("reorged");
      if (now === "confirmed" && (moved || this.state !== "confirmed")) say("confirmed");
      else if (now === "confirming" && !moved && (before === null || depth(paid) > this.depth)) say("confirming");
      else if (now === "pending" && !moved && this.state === "unpaid") say("pending");
      else if (now === "unpaid" && this.state === "pending") say("dropped");
      Object.assign(this, { state: now, paid, depth: depth(paid), seen: this.seen || now !== "unpaid" });
      if (told.some(({ event }) => event === "payment.confirmed")) this.confirmed = chain.height + 30;
      if (now === "unpaid" && payUntil !== null && chain.now >= payUntil + 60_000 && chain.height >= this.confirmed) {
        say("expired");
        this.expired = true;
      }
    }
    for (const each of onChain) {
      const difference = Number(each.amount) - Number(order.amount);
      let kind = difference < 0 ? "too-little" : difference > 0 ? "too-much" : null;
      if (kind === null) kind = each.name !== rights[0].name ? "duplicate" : this.expired ? "late" : null;
      const count = this.reported.size;
      if (kind === null || this.reported.has(each.name) || count >= (each.amount === "1" ? 8 : 16)) continue;
      this.reported.add(each.name);
      const mismatch = { kind, transfer: each.name, ...(count === 15 && { more: true }) };
      say("mismatched", this.state, rights[0] ?? waits[0] ?? null, { mismatch });
    }
    return told;
  }
}

test("random stories with reorganisations are told as by who looks at everything", async () => {
  const names = new Map();
  for (let seed = 1; seed <= 50; seed++) {
    const random = randomOf(seed);
    const { chain, step, one } = storyOf(random);
    const store = new MemoryOrders();
    let shop = new Shop(chain, store);
    await shop.tell();
    const orders = [];
    for (const reference of REFERENCES) {
      const order = { reference, amount: "5000", confirmations: one(1, 2, 3, 6) };
      const payUntil = one(null, chain.now + 60_000, chain.now + 600_000);
      await shop.add(order, { payUntil });
      orders.push(new Naive(chain, order, payUntil));
    }
    for (let count = 1; count <= 40; count++) {
      step();
      const told = (await shop.tell()).map((event) => toldOf(event, chain));
      const expected = orders.flatMap((order) => order.tell());
      assert.deepEqual(grouped(told), grouped(expected), `seed ${seed}, step ${count}`);
      for (const { event } of told) names.set(event, (names.get(event) ?? 0) + 1);
      if (random() < 0.2) shop = new Shop(chain, store);
    }
  }
  assert.equal(names.size, 7);
  for (const [name, count] of names) assert.ok(count > 5, `${name}: ${count}`);
});

// Kills

class Killed extends Error {}

/** A store of a program that is killed at its write number `at`, before it or after it. */
function killedAt(store, at, after) {
  let count = 0;
  const write = async (update) => {
    if (++count < at) return store.write(update);
    if (count === at && after) await store.write(update);
    throw new Killed();
  };
  const methods = ["place", "orders", "affected", "events"].map((name) => [name, (given) => store[name](given)]);
  return { ...Object.fromEntries(methods), write };
}

/** A busy shop with payments, mismatches, and a reorganisation: what happens, part by part. */
function busyStory() {
  const given = { w: { reference: "order-1", amount: "4999" }, x: { replaces: "b2" } };
  for (const each of [1, 2, 3, 4]) given[`b${each}`] = { reference: `order-${each}`, amount: "5000" };
  const chain = new ShopChain(given);
  chain.add([]);
  const blocks = (...names) => {
    chain.now += 2000;
    chain.add(names);
  };
  const parts = [
    () => chain.wait("b1"),
    () => blocks("w", "b1", "b2"),
    () => blocks(),
    () => blocks("b3"),
    () => chain.reorganise(3, [["x"], ["b1"], [], ["b3"]]),
    () => (chain.now += 60_000),
    () => blocks("b4"),
    () => blocks(),
  ];
  const orders = [1, 2, 3, 4].map((each) => ({ reference: `order-${each}`, amount: "5000", confirmations: 2 }));
  return { chain, parts, orders };
}

/** What the shop is told, once each; the program is killed at a write and starts again. */
async function tellBusy(store, at, after) {
  const { chain, parts, orders } = busyStory();
  const given = new Shop(chain, store);
  for (const order of orders) await given.add(order, { payUntil: chain.now + 60_000 });
  const told = new Map();
  let again = 0;
  let shop = new Shop(chain, killedAt(store, at, after));
  for (const part of parts) {
    part();
    for (;;) {
      // All that was handed over before a kill counts as told, even if the store does not know it.
      const heard = (event) => {
        if (told.has(event.id)) again++;
        told.set(event.id, event);
      };
      try {
        await shop.tell(heard);
        break;
      } catch (error) {
        if (!(error instanceof Killed)) throw error;
        shop = new Shop(chain, store);
      }
    }
  }
  return { told: [...told.values()].map((event) => toldOf(event, chain)), again };
}

for (const [what, makeStore] of [
  ["in memory", async () => new MemoryOrders()],
  ["in a folder", async (context) => new FileOrders(await folderOf(context), 4)],
])
  test(`each event is told after a kill at any write of a store ${what}`, async (context) => {
    const { told: expected, again: none } = await tellBusy(await makeStore(context), Infinity, false);
    assert.ok(expected.length > 10);
    assert.equal(none, 0);
    let repeated = 0;
    for (let at = 1; at <= 40; at++)
      for (const after of [false, true]) {
        const { told, again } = await tellBusy(await makeStore(context), at, after);
        assert.deepEqual(grouped(told), grouped(expected), `write ${at}`);
        repeated += again;
      }
    assert.ok(repeated > 0);
  });

// Answers

const ORDER = { reference: "order-1", amount: "5000", confirmations: 3 };

/** A shop that has read a block with a payment, and what its node answers next, before `change` changes it. */
async function shopAfterBlock(change) {
  const transfers = { a: ORDER, b: ORDER, c: { reference: null, amount: "7" }, d: ORDER };
  const chain = new ShopChain(transfers);
  chain.add([]);
  let lies = false;
  const feed = (asked) => {
    const found = structuredClone(chain.feed(asked));
    return lies ? (change(found, asked) ?? found) : found;
  };
  const shop = new Shop(chain, new MemoryOrders(), { feed });
  await shop.add(ORDER);
  chain.now += 2000;
  chain.add(["a"]);
  await shop.tell();
  return { chain, shop, lie: (truth) => (lies = truth) };
}

const first = ({ entries }) => entries[0];
const last = ({ entries }) => entries.at(-1);
const HASH = "ab".repeat(32);
const LIES = {
  "no entries": (feed) => delete feed.entries,
  "no cursor": (feed) => delete feed.next,
  "an empty cursor": (feed) => (feed.next = ""),
  "a long cursor": (feed) => (feed.next = "a".repeat(4097)),
  "no tip": (feed) => delete feed.tip,
  "no hash of the tip": (feed) => (feed.tip.hash = "ab"),
  "whether it is in sync": (feed) => (feed.node.synced = "yes"),
  "another kind of entry": (feed) => (first(feed).type = "gift"),
  "a rewind behind payments": (feed) => feed.entries.push({ type: "rewind", height: "1", hash: HASH }),
  "a rewind to where it has not been": (feed) => feed.entries.unshift({ type: "rewind", height: "2", hash: HASH }),
  "two rewinds": (feed) => {
    const rewind = { type: "rewind", height: "1", hash: HASH };
    feed.entries.unshift(rewind, rewind);
  },
  "a shorter chain": (feed) => Object.assign(feed, { entries: [], tip: { height: "1", hash: HASH } }),
  "no txid": (feed) => delete first(feed).txid,
  "a number as an amount": (feed) => (first(feed).amount = 5000),
  "no amount": (feed) => Object.assign(first(feed), { amount: "0", amountSvc: "0" }),
  "other coins": (feed) => (first(feed).amountSvc = "1"),
  "a sender of another network": (feed) => (first(feed).sender = "svc1qdcchhntg885gwuu4gyd50v4cn546ulxt8l45rt"),
  "another recipient": (feed) => (first(feed).recipient = BUYER),
  "an impossible reference": (feed) => (first(feed).reference = "order 1"),
  "a transfer twice": (feed) => (last(feed).txid = first(feed).txid),
  "a transfer that it has told": (feed) => (first(feed).txid = `${"0".repeat(53)}10000000000`),
  "a height that it has told": (feed) => (first(feed).height = "2"),
  "a height above the tip": (feed) => (last(feed).height = "9"),
  "not in the order of the chain": (feed) => feed.entries.reverse(),
  "an impossible position": (feed) => (last(feed).position = 65_536),
  "a place twice": (feed) => (last(feed).position = first(feed).position),
  "two hashes of a block": (feed) => (first(feed).hash = HASH),
  "a block that is not later": (feed) => {
    Object.assign(last(feed), { height: "4", hash: HASH });
    feed.tip = { height: "5", hash: "cd".repeat(32) };
  },
  "another hash of the tip": (feed) => (feed.tip.hash = HASH),
  "the same cursor": (feed, { after }) => (feed.next = after),
  "a waiting transfer twice": (feed) => feed.pending.push(feed.pending[0]),
  "a waiting transfer without a time": (feed) => delete feed.pending[0].arrivalTime,
  "more entries than were asked for": (feed) => (feed.entries = Array(1001).fill(first(feed))),
  "more waiting transfers than a node lists": (feed) => (feed.pending = Array(1001).fill(feed.pending[0])),
  "another answer": () => ({}),
};

for (const [what, change] of Object.entries(LIES))
  test(`a wrong answer changes nothing: ${what}`, async () => {
    const { chain, shop, lie } = await shopAfterBlock(change);
    const { writes } = shop.store;
    chain.now += 2000;
    chain.add(["b", "c"]);
    chain.wait("d");
    lie(true);
    await assert.rejects(shop.tell(), { name: "InvalidAnswer" });
    assert.equal(shop.store.writes, writes);
    lie(false);
    const told = await new Shop(chain, shop.store).tell();
    assert.deepEqual(told.map(({ event }) => event), ["payment.confirming", "payment.mismatched"]);
  });

test("an answer of a node that is not in sync changes nothing", async () => {
  const { chain, shop } = await shopAfterBlock(() => {});
  const { writes } = shop.store;
  chain.synced = false;
  chain.reorganise(1, [[], ["b"]]);
  chain.now += 3_600_000;
  assert.deepEqual(await shop.tell(), []);
  assert.deepEqual(await shop.tell(), []);
  assert.equal(shop.store.writes, writes);
  assert.ok(shop.pauses.every((seconds) => seconds === 2));
  chain.synced = true;
  assert.deepEqual((await shop.tell()).map(({ event }) => event), ["payment.reorged"]);
});

test("what a full list of waiting transfers does not have may wait all the same", async () => {
  const given = { a: ORDER };
  for (let each = 1; each <= 1000; each++) given[`t${each}`] = { amount: "1" };
  const chain = new ShopChain(given);
  chain.add([]);
  const shop = new Shop(chain, new MemoryOrders());
  await shop.add(ORDER, { payUntil: chain.now + 60_000 });
  chain.wait("a");
  const names = async () => (await shop.tell()).map(({ event }) => event);
  assert.deepEqual(await names(), ["payment.pending"]);
  // The node has restarted, and has met the others first.
  chain.mempool.clear();
  for (const name of [...Object.keys(given).slice(1), "a"]) chain.wait(name);
  chain.now += 120_000;
  assert.deepEqual(await names(), []);
  chain.mempool.delete("t1");
  assert.deepEqual(await names(), []);
  chain.mempool.delete("a");
  assert.deepEqual(await names(), ["payment.dropped", "payment.expired"]);
});

test("a clock that is wrong for a moment ends no order", async () => {
  for (const ahead of [172_800_000, -172_800_000]) {
    const chain = new ShopChain({ a: ORDER });
    chain.add([]);
    const shop = new Shop(chain, new MemoryOrders());
    await shop.add(ORDER, { payUntil: chain.now + 600_000 });
    await shop.add({ ...ORDER, reference: "order-2" }, { payUntil: chain.now + 600_000 });
    const names = async () => (await shop.tell()).map(({ event }) => event);
    assert.deepEqual(await names(), []);
    chain.ahead = ahead;
    assert.deepEqual(await names(), []);
    assert.equal(shop.asked.at(-1).wait, "30", "nothing is soon");
    chain.now += 30_000;
    chain.ahead = 0;
    assert.deepEqual(await names(), []);
    chain.wait("a");
    assert.deepEqual(await names(), ["payment.pending"], "not late");
    chain.now += 629_000;
    assert.deepEqual(await names(), []);
    chain.now += 1000;
    assert.deepEqual(await names(), ["payment.expired"]);
  }
});

test("a clock that was set is believed when it has been steady", async () => {
  const chain = new ShopChain({});
  chain.add([]);
  const shop = new Shop(chain, new MemoryOrders());
  await shop.add(ORDER, { payUntil: chain.now + 600_000 });
  await shop.tell();
  chain.ahead = 86_400_000;
  await shop.tell();
  chain.now += 299_000;
  assert.deepEqual(await shop.tell(), []);
  chain.now += 1000;
  assert.deepEqual((await shop.tell()).map(({ event }) => event), ["payment.expired"]);
});

test("events are those of webhooks", async () => {
  const { chain, shop } = await shopAfterBlock(() => {});
  chain.now += 2000;
  chain.add(["b"]);
  const [event, mismatched] = await shop.tell();
  const secret = "a-secret-of-at-least-thirty-two-characters";
  const body = new TextEncoder().encode(JSON.stringify(mismatched));
  const key = await crypto.subtle.importKey(
    "raw", new TextEncoder().encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"],
  );
  const time = Math.floor(Date.now() / 1000);
  const signed = new Uint8Array([...new TextEncoder().encode(`${mismatched.id}.${time}.`), ...body]);
  const signature = Buffer.from(await crypto.subtle.sign("HMAC", key, signed)).toString("base64");
  const headers = {
    "webhook-id": mismatched.id,
    "webhook-timestamp": String(time),
    "webhook-signature": `v1,${signature}`,
  };
  assert.deepEqual(await new pay.Webhook(secret).verify(body, headers), mismatched);
  const order = { ...ORDER, recipient: SHOP };
  assert.ok(pay.concerns(event, order));
  assert.ok(!pay.settles(event, order));
  assert.match(event.id, /^svcevt_[0-9a-f]{32}$/);
  assert.equal(
    pay.noticeOf(mismatched),
    `duplicate: 0.00005 SVC from ${BUYER}; svc wallet refund ${mismatched.mismatch.txid}`,
  );
  chain.add([]);
  const [settling] = await shop.tell();
  assert.ok(pay.settles(settling, order));
});

test("an answer looks only at the orders that it affects", async () => {
  const chain = new ShopChain({ a: { reference: "order-500", amount: "5000" } });
  chain.add([]);
  const store = new MemoryOrders();
  const index = new OrderIndex();
  Object.assign(store, { affected: async (wanted) => index.affected(wanted) });
  const write = store.write.bind(store);
  store.write = async (update) => {
    for (const row of [...(update.added ?? []), ...(update.changed ?? [])]) index.set(row);
    return write(update);
  };
  const shop = new Shop(chain, store);
  const rows = Array.from({ length: 100_000 }, (_, each) => {
    const terms = { reference: `order-${each}`, amount: "5000", confirmations: 3, sinceHeight: null };
    return rowOf(newOrder(terms, chain.now + 3_600_000 + each, chain.now));
  });
  await store.write({ added: rows });
  await shop.tell();
  let looked = 0;
  for (const name of ["orders", "affected"]) {
    const given = store[name].bind(store);
    store[name] = async (wanted) => {
      const found = await given(wanted);
      looked += found.length;
      return found;
    };
  }
  chain.wait("a");
  await shop.tell();
  chain.add(["a"]);
  assert.deepEqual((await shop.tell()).map(({ event }) => event), ["payment.confirming"]);
  chain.reorganise(1, [[], []]);
  assert.deepEqual((await shop.tell()).map(({ event }) => event), ["payment.reorged"]);
  assert.ok(looked < 50, String(looked));
});

test("rows are found by reference, height and time, whatever was written before", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = randomOf(seed);
    const number = (most) => (random() < 0.3 ? null : Math.floor(random() * most));
    const [index, rows] = [new OrderIndex(), new Map()];
    for (let step = 0; step < 500; step++) {
      const reference = `order-${Math.floor(random() * 60)}`;
      const row = { reference, text: "", awaits: number(9), due: number(50), top: number(20) };
      if (random() < 0.2) {
        index.delete(reference);
        rows.delete(reference);
      } else {
        index.set(row);
        rows.set(reference, row);
      }
      const asked = { height: number(9) ?? -1, now: number(50) ?? -1, above: number(20) ?? 99, limit: 5 };
      const after = `order-${Math.floor(random() * 60)}`;
      const found = [...rows.values()].filter(
        ({ reference: name, awaits, due, top }) =>
          name > after &&
          ((awaits !== null && awaits <= asked.height) || (due !== null && due <= asked.now) || top > asked.above),
      );
      const sorted = found.map((each) => each.reference).sort();
      const given = index.affected({ ...asked, after }).map((each) => each.reference);
      assert.deepEqual(given, sorted.slice(0, 5));
      assert.equal(index.size, rows.size);
    }
  }
});

// What a shop does

test("orders are added and removed", async () => {
  const { chain, shop } = await shopAfterBlock(() => {});
  const { orders } = shop;
  await shop.add(ORDER);
  await assert.rejects(shop.add({ ...ORDER, amount: "1" }), /another open order with the reference order-1/);
  await assert.rejects(shop.add(ORDER, { payUntil: chain.now }), /another open order with the reference order-1/);
  await assert.rejects(shop.add(ORDER, { payUntil: 1.5 }), /payUntil is a time/);
  await assert.rejects(orders.add({ ...ORDER, recipient: BUYER }), /these are the orders of svcd1qqr0t67/);
  const { client, store } = shop;
  assert.throws(() => new pay.Orders(client, { recipient: SHOP, stroe: store }), /unknown member stroe/);
  assert.throws(() => new pay.Orders(client, { recipient: "svcd1q", store }), { name: "InvalidInput" });
  const other = new pay.Orders(client, { recipient: BUYER, store });
  await assert.rejects(other.changes().next(), { name: "StoreError", message: /the store has the open orders of/ });
  const theirs = { ...ORDER, reference: "order-2", recipient: BUYER };
  await assert.rejects(other.add(theirs), { name: "StoreError", message: /the store has the open orders of/ });
  assert.deepEqual(await store.orders(["order-2"]), []);
  await orders.remove("order-1");
  chain.add(["b"]);
  assert.deepEqual(await shop.tell(), []);
});

test("a shop reads from the height that it says, and asks no more often than it must", async () => {
  const chain = new ShopChain({ a: ORDER, b: ORDER, c: { amount: "1" } });
  for (const names of [[], ["a"], ["b"], []]) chain.add(names);
  let told = 0;
  const feed = (asked) => chain.feed({ ...asked, sinceHeight: told > 0 ? 0 : asked.sinceHeight });
  const shop = new Shop(chain, new MemoryOrders(), { feed, sinceHeight: "3" });
  await shop.add(ORDER);
  assert.deepEqual((await shop.tell()).map(({ payment }) => chain.name(payment.txid)), ["b"]);
  const asked = shop.asked.map(({ sinceHeight, wait = "0" }) => `${sinceHeight} ${wait}`);
  assert.deepEqual(asked, ["3 0", "3 0", "3 5"]);
  // What waits changes nothing up to the tip that is known.
  chain.wait("c");
  await shop.tell();
  assert.deepEqual(shop.asked.slice(3).map(({ wait }) => wait), ["5"]);
  told = 1;
  chain.reorganise(3, [[], [], [], []]);
  chain.blocks[2].names = ["a"];
  await assert.rejects(shop.tell(), { name: "InvalidAnswer", message: /not in the order of the chain/ });
});

test("a signal ends the wait", async () => {
  const { shop } = await shopAfterBlock(() => {});
  const ending = new AbortController();
  const changes = shop.orders.changes({ signal: ending.signal });
  const next = changes.next();
  setTimeout(() => ending.abort(new Error("enough")), 10);
  await assert.rejects(next, /enough/);
});

test("two programs that read one feed for a store are told so, and nothing is lost", async () => {
  const { chain, shop } = await shopAfterBlock(() => {});
  const other = new Shop(chain, shop.store);
  await other.tell();
  chain.add(["b"]);
  assert.equal((await other.tell()).length, 2);
  await assert.rejects(shop.tell(), { name: "StoreError", message: /another program reads the feed/ });
  chain.add([]);
  assert.equal((await other.tell()).length, 1);
});

// A store in a folder

const NOT_DUE = { awaits: null, due: null, top: null };
const row = (each, more = {}) => ({ reference: `order-${each}`, text: "{}", ...NOT_DUE, ...more });
const all = async (store) => ({
  place: await store.place(),
  orders: await store.orders(Array.from({ length: 60 }, (_, each) => `order-${each}`)),
  events: await store.events(1000),
});

test("what is written is there for everybody, also if writing everything anew is interrupted", async (context) => {
  const { remove } = FileJournal.prototype;
  context.after(() => (FileJournal.prototype.remove = remove));
  for (let kept = 0; kept <= 8; kept++) {
    const folder = await folderOf(context);
    const [store, other] = [new FileOrders(folder, 4), new FileOrders(folder, 4)];
    FileJournal.prototype.remove = async function (number) {
      if (kept-- <= 0) throw new Killed();
      return remove.call(this, number);
    };
    let before = null;
    const left = kept;
    for (let each = 0; each < 20; each++) {
      const update = { added: [row(each)], events: [`event ${each}`], place: { before, after: `place ${each}` } };
      if (each > 2) Object.assign(update, { removed: `order-${each - 2}`, changed: [row(each - 1, { top: each })] });
      const one = each % 3 === 0 ? other : store;
      await one.write(update).catch((error) => assert.ok(error instanceof Killed));
      before = `place ${each}`;
      if (each % 5 === 0) await store.write({ told: each });
      const expected = await all(store);
      assert.equal(expected.place, before);
      // That events were told is known to others later.
      for (const each of [other, new FileOrders(folder, 4)]) {
        const found = await all(each);
        assert.deepEqual({ ...found, events: found.events.slice(-expected.events.length) }, expected);
      }
    }
    kept = left;
    assert.equal(await store.write({ place: { before: "place 3", after: "x" } }), false);
  }
});

test("who does not know that entries were removed writes nothing in their place", async (context) => {
  const { append } = FileJournal.prototype;
  context.after(() => (FileJournal.prototype.append = append));
  for (const known of [0, 1, 3]) {
    const folder = await folderOf(context);
    const [store, late] = [new FileOrders(folder, 4), new FileOrders(folder, 4)];
    for (let each = 0; each < known; each++) await store.write({ added: [row(each)] });
    await late.place();
    let isFirst = true;
    FileJournal.prototype.append = async function (sequence, entry) {
      if (isFirst && entry.includes("order-59")) {
        isFirst = false;
        for (let each = known; each < 30; each++) await store.write({ added: [row(each)] });
      }
      return append.call(this, sequence, entry);
    };
    await late.write({ added: [row(59)] });
    assert.ok(!isFirst);
    const expected = [...Array(30).keys(), 59].map((each) => `order-${each}`);
    for (const each of [store, late, new FileOrders(folder)])
      assert.deepEqual((await all(each)).orders.map(({ reference }) => reference), expected);
  }
});

test("told events are written together", async (context) => {
  const folder = await folderOf(context);
  const store = new FileOrders(folder);
  await store.write({ events: Array.from({ length: 250 }, (_, each) => `event ${each}`) });
  const left = async () => (await new FileOrders(folder).events(1000)).length;
  for (const [told, there] of [[1, 250], [99, 250], [100, 150], [101, 150], [249, 50], [250, 0]]) {
    for (let [[number]] = await store.events(1); number <= told; number++) await store.write({ told: number });
    assert.equal((await store.events(1000)).length, 250 - told);
    assert.equal(await left(), there);
  }
  await store.write({ events: ["event"] });
  assert.deepEqual(await store.events(9), [[251, "event"]]);
});

test("a damaged folder is refused", async (context) => {
  const folder = await folderOf(context);
  const name = "StoreError";
  assert.throws(() => new FileOrders(""), { name });
  const store = new FileOrders(folder, 4);
  for (let each = 0; each < 8; each++) await store.write({ added: [row(each)] });
  const files = (await readdir(folder)).sort();
  assert.ok(files.length < 8);
  await rm(join(folder, files[0]));
  await assert.rejects(new FileOrders(folder).place(), { name, message: /are damaged: an entry is missing/ });
  await writeFile(join(folder, files[0]), "null");
  await assert.rejects(new FileOrders(folder).place(), { name, message: /are damaged: an entry cannot be read/ });
  await writeFile(join(folder, "file"), "");
  await assert.rejects(new FileOrders(join(folder, "file")).place(), { name, message: /cannot be read or written/ });
  const { chain, shop } = await shopAfterBlock(() => {});
  for (const text of ["", "{}", "null", '{"recipient":"a"}']) {
    const damaged = Object.assign(new MemoryOrders(), { stored: text });
    await assert.rejects(new Shop(chain, damaged).tell(), { name, message: /the place in the feed cannot be read/ });
  }
  shop.store.rows.get("order-1").text = "{}";
  chain.add(["b"]);
  await assert.rejects(shop.tell(), { name, message: /'order-1' cannot be read/ });
  const events = Object.assign(new MemoryOrders(), { bodies: new Map([[1, "{}"]]) });
  await assert.rejects(new Shop(chain, events).tell(), { name, message: /an event cannot be read/ });
});
