// One payment is never two, whatever a node answers.

import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf } from "../../../svcd/pages/static/bytes.mjs";
import { pairOf } from "../../../svcd/pages/static/ed25519.mjs";
import { addressOf } from "../../../svcd/pages/static/key-hash.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { Node } from "../../../svcd/pages/static/node.mjs";
import { linkId, Paying } from "../../../svcd/pages/static/paying.mjs";
import { Problem } from "../../../svcd/pages/static/problem.mjs";
import { isUnsettled } from "../../../svcd/pages/static/signed.mjs";
import { about, Devnet } from "./devnet.mjs";
import { Memory } from "./memory.mjs";
import { codeOf, vectors } from "./vectors.mjs";

const COIN = 100_000_000n;
const BOB = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const network = NETWORKS.devnet;
const key = await pairOf(bytesOf(vectors("svc_protocol").networks.devnet.keys[0].seed));
const sender = await addressOf(key.publicKey, network);
const signer = { key, sender };
const HOUR = 3_600_000;

const answer = (status, body) => new Response(JSON.stringify(body), { status });
const refusal = (error) => answer(400, { ok: false, error });
const order = (reference) => {
  const terms = { recipient: BOB, amount: 10n * COIN, reference };
  return { ...terms, id: linkId(sender, terms), confirmations: 3, label: null, fromLink: true };
};

/** A store that also remembers every transfer that was ever signed, as the network may. */
class Remembering extends Memory {
  signed = [];
  keep = async (payment) => {
    const { id, txid, transfer } = payment;
    if (!this.signed.some((each) => each.txid === txid)) this.signed.push({ id, txid, transfer });
    this.kept.set(id, structuredClone(payment));
  };
}

function opened() {
  const devnet = new Devnet();
  devnet.balances.set(sender, 1_000n * COIN);
  const store = new Remembering();
  const tab = () =>
    new Paying({ store, node: new Node(devnet.fetch), clock: () => devnet.now, network, exclusive: (work) => work() });
  return { devnet, store, tab, paying: tab() };
}

/** What the node does with a request behind the liar. */
async function behind(devnet, path, body) {
  const { between } = devnet;
  devnet.between = () => null;
  const done = await devnet.fetch(path, { body });
  devnet.between = between;
  return done;
}

/** How often the chain has paid `reference` from here. */
const paidTimes = ({ chain }, reference) =>
  [...chain.values()].filter(({ payload }) => payload.paymentReference === reference).length;

test("a node that relays, answers 400 and hides what it relayed gets no second payment", async () => {
  const { devnet, paying, store } = opened();
  devnet.between = async (path, body) => {
    if (path === "/rpc/broadcast") return behind(devnet, path, body).then(() => refusal("the pool is full"));
    if (path.startsWith("/rpc/transaction/")) return answer(404, { ok: false, error: "no block holds it" });
    if (path.startsWith("/rpc/commerce/")) return answer(200, { payment: { ...about(path), state: "unpaid" } });
    if (path.startsWith("/rpc/address/")) return answer(200, { ...about(path), transactions: [], next: null });
    return null;
  };
  const link = order("order-1");
  const refused = await paying.follow(await paying.sign(link, signer));
  assert.equal(refused.state, "refused");
  devnet.mine();
  assert.equal(paidTimes(devnet, "order-1"), 1);
  // The node tells the truth of the nonce, which is used: by the very payment that it says was not made.
  for (let hour = 0; hour <= 25; hour += 1) {
    assert.equal(await codeOf(paying.sign(link, signer, { again: refused.txid, anew: true })), "nonce-used");
    devnet.now += HOUR;
  }
  assert.equal(await codeOf(paying.sign(link, signer, { again: refused.txid })), "nonce-ask");
  assert.equal(store.signed.length, 1);
});

test("a node that relays, times out and then denies gets the same bytes", async () => {
  const { devnet, paying, store } = opened();
  const link = order("order-1");
  const payment = await paying.sign(link, signer);
  devnet.between = async (path, body) => {
    if (path !== "/rpc/broadcast") return null;
    await behind(devnet, path, body);
    throw new TypeError("Failed to fetch");
  };
  assert.equal(await codeOf(paying.follow(payment)), "node-unreachable");
  devnet.between = (path) => (path === "/rpc/broadcast" ? refusal("no") : null);
  const refused = await paying.follow(payment);
  assert.equal(refused.problem.code, "nonce-stale");
  assert.equal(await codeOf(paying.sign(link, signer, { again: refused.txid, anew: true })), "already-paid");
  assert.equal(store.signed.length, 1);
});

test("a node whose clock or newest block is not of this time gets no signature", async () => {
  const { devnet, paying, store } = opened();
  for (const lie of [{ time: `${devnet.now + 300_001}` }, { time: `${devnet.now - 300_001}` }, { slot: "9007199254" }]) {
    const status = { ...devnet.status, slot: "1", height: "0", time: `${devnet.now}`, ...lie };
    devnet.between = (path) => (path === "/rpc/status" ? answer(200, { status }) : null);
    assert.equal(await codeOf(paying.sign(order("order-1"), signer)), "clock");
  }
  assert.equal(store.signed.length, 0);
});

test("what was refused and is typed again has its nonce, or is not signed while that may be paid", async () => {
  const { devnet, paying, store } = opened();
  const typed = (id) => ({ ...order("order-1"), id, fromLink: false });
  const terms = { ...typed("send a"), reference: null };
  let pendingNonce = "0";
  devnet.between = async (path, body) => {
    if (path === "/rpc/broadcast") return behind(devnet, path, body).then(() => refusal("the pool is full"));
    if (path.startsWith("/rpc/commerce/")) return answer(200, { payment: { ...about(path), state: "pending" } });
    if (!path.startsWith("/rpc/balance/")) return null;
    const account = { ...about(path), balance: `${900n * COIN}`, pendingBalance: `${900n * COIN}`, nonce: "0", pendingNonce };
    return answer(200, { account });
  };
  for (const [id, intent] of [["b", typed("send b")], ["c", terms]]) {
    const first = await paying.follow(await paying.sign({ ...intent, id }, signer));
    assert.deepEqual([first.state, first.transfer.nonce], ["refused", pendingNonce]);
    // The same nonce: of both one is paid at most.
    assert.equal((await paying.sign({ ...intent, id: `${id} again` }, signer)).transfer.nonce, pendingNonce);
    await paying.follow(await store.payment(`${id} again`));
    pendingNonce = `${BigInt(pendingNonce) + 1n}`;
    assert.equal(await codeOf(paying.sign({ ...intent, id: `${id} later` }, signer)), "already-signed");
  }
  devnet.mine();
  assert.equal(paidTimes(devnet, "order-1"), 1);
});

test("a payment besides a refused one, under a later nonce, comes with a warning", async () => {
  const { devnet, paying } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? refusal("the pool is full") : null);
  const first = await paying.follow(await paying.sign({ ...order("order-1"), fromLink: false }, signer));
  const other = { ...order("order-2"), id: "send b", fromLink: false };
  const warned = async () => (await paying.review(other, sender)).warnings.map(({ code }) => code);
  assert.deepEqual(await warned(), [], "it has the nonce of the refused one");
  // The liar hands in what it has refused.
  await behind(devnet, "/rpc/broadcast", JSON.stringify({ transaction: first.transfer }));
  devnet.between = (path) => (path.startsWith("/rpc/transaction/") ? answer(404, { ok: false, error: "none" }) : null);
  const review = await paying.review(other, sender);
  assert.deepEqual([review.nonce, review.warnings.map(({ code }) => code)], [1n, ["unsettled"]]);
  devnet.now += 26 * HOUR;
  assert.deepEqual(await warned(), []);
});

/** Random numbers from a seed (mulberry32). */
function randomOf(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  return { next, below: (limit) => Math.floor(next() * limit), of: (list) => list[Math.floor(next() * list.length)] };
}

/** The liar: each answer is true, false, late or missing. */
function lyingBetween(devnet, random) {
  return async (path, body) => {
    if (random.next() < 0.4) return null;
    if (path === "/rpc/broadcast") {
      const lies = [
        () => refusal(random.of(["the pool is full", "nonce 0 is already used", "expired", "the balance is short"])),
        () => answer(503, { ok: false, error: "busy" }),
        () => Promise.reject(new TypeError("Failed to fetch")),
      ];
      if (random.next() < 0.6) await behind(devnet, path, body);
      return random.of(lies)();
    }
    if (path.startsWith("/rpc/balance/")) {
      const [nonce, waiting] = random.next() < 0.5 ? [0, 0] : [random.below(4), random.below(3)];
      const pendingNonce = `${nonce + waiting}`;
      const account = { ...about(path), balance: `${900n * COIN}`, pendingBalance: `${900n * COIN}`, nonce: `${nonce}`, pendingNonce };
      return answer(200, { account });
    }
    if (path.startsWith("/rpc/transaction/") && random.next() < 0.8) return answer(404, { ok: false, error: "none" });
    if (path.startsWith("/rpc/transaction/")) {
      const transaction = { ...about(path), confirmations: random.below(120), blockHeight: "1", blockTime: `${devnet.now}` };
      return answer(200, { transaction });
    }
    if (path.startsWith("/rpc/commerce/")) return answer(200, { payment: { ...about(path), state: "unpaid" } });
    if (path.startsWith("/rpc/address/")) return answer(200, { ...about(path), transactions: [], next: null });
    return null;
  };
}

/** The newest blocks are replaced: what was in them waits again, or is dropped. */
function reorganise(devnet, keepsWaiting) {
  for (const [txid, transfer] of devnet.chain) if (keepsWaiting) devnet.pool.set(txid, transfer);
  devnet.chain.clear();
  devnet.nonces.clear();
  devnet.balances.set(sender, 1_000n * COIN);
}

/** Fifty things that happen to a wallet; gives what was signed.
 *
 * `anew`: the person agrees to whatever is asked; `typed`: and types again what was refused, so many times as often as
 * anything else.
 */
async function history(seed, { anew, longest, typed }) {
  const random = randomOf(seed);
  const { devnet, store, tab } = opened();
  let paying = tab();
  const links = ["order-1", "order-2", "order-3"].map(order);
  const lies = lyingBetween(devnet, random);
  const typedOf = (id) => ({ ...order(store.kept.get(id).transfer.payload.paymentReference), id, fromLink: false });
  const happenings = [
    () => paying.sign({ ...random.of(links), fee: BigInt(10_000 + random.below(50_000)) }, signer),
    ...Array(4).fill(async () => {
      const refused = [...store.kept.values()].filter(({ state }) => state === "refused");
      if (refused.length === 0) return;
      const { id, txid } = random.of(refused);
      const link = { ...(links.find((each) => each.id === id) ?? typedOf(id)), fee: BigInt(10_000 + random.below(90_000)) };
      await paying.sign(link, signer, { again: txid, anew });
    }),
    // Somebody types again what was refused, and signs what the review shows, unless that says that it was paid.
    ...Array(typed).fill(async () => {
      const refused = [...store.kept.values()].filter((each) => isUnsettled(each, devnet.now, network));
      if (refused.length === 0) return;
      const { paymentReference: reference } = random.of(refused).transfer.payload;
      const intent = { ...order(reference), id: `send ${store.kept.size}`, fromLink: false };
      await paying.settle(sender);
      const { nonce, blocked } = await paying.review(intent, sender);
      if (blocked !== null) return;
      const before = [...store.kept.values()].filter(({ transfer }) => transfer.payload.paymentReference === reference);
      if (!before.every((each) => isUnsettled(each, devnet.now, network))) return;
      await paying.follow(await paying.sign({ ...intent, nonce }, signer));
    }),
    async () => {
      if (store.kept.size > 0) await paying.follow(structuredClone(random.of([...store.kept.values()])));
    },
    () => paying.settle(sender),
    () => void (paying = tab()),
    () => devnet.mine(random.below(3)),
    () => reorganise(devnet, random.next() < 0.5),
    () => void (devnet.now += random.below(longest)),
    // Somebody hands in what the network has seen before.
    () => store.signed.length && behind(devnet, "/rpc/broadcast", JSON.stringify({ transaction: random.of(store.signed).transfer })),
  ];
  for (let step = 0; step < 50; step += 1) {
    devnet.between = random.next() < 0.9 ? lies : () => null;
    try {
      await random.of(happenings)();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
    }
    for (const { reference } of links) assert.ok(paidTimes(devnet, reference) <= 1, `${reference} was paid twice`);
  }
  return store.signed;
}

/** How many histories of each kind; `make test-all` tries more. */
const HISTORIES = Number(process.env.SVC_HISTORIES ?? 60);

for (const [what, options] of Object.entries({
  "for as long as it lies": { anew: false, longest: 12 * HOUR, typed: 0, least: 100 },
  "within a day, though the person agrees to all that is asked": { anew: true, longest: HOUR / 4, typed: 0, least: 80 },
  "though the person types again what was refused": { anew: false, longest: HOUR / 4, typed: 8, least: 10 },
})) {
  test(`random lies, time-outs, restarts and reorganisations make no second payment: ${what}`, async () => {
    let again = 0;
    for (let seed = 1; seed <= HISTORIES; seed += 1) {
      const byIntent = new Map();
      for (const { id, transfer } of await history(seed, options)) {
        byIntent.set(id, [...(byIntent.get(id) ?? []), transfer.nonce]);
      }
      for (const [id, nonces] of byIntent) {
        if (options.typed === 0) again += nonces.length - 1;
        else if (id.startsWith("send ")) again += 1;
        assert.deepEqual([...new Set(nonces)], [nonces[0]], `seed ${seed}: ${id} was signed under two nonces`);
      }
    }
    assert.ok(again >= (options.least * HISTORIES) / 300, `only ${again} payments were signed again`);
  });
}
