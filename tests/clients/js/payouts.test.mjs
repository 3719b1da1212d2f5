// Payouts of one key in JavaScript, case by case, and with lies and kills at random: without a network.

import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FileJournal } from "../../../clients/javascript/src/file-journal.js";
import * as pay from "../../../clients/javascript/src/index.js";

const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const KEY = await pay.Key.fromSeed(new TextEncoder().encode("a key of the payouts".padEnd(32)));
const START = 1_795_170_000_000;
const DAY = 24 * 3600 * 1000;
const FUNDS = 10n ** 12n;

const answer = (content, status = 200) => ({ status, content });
const refusal = (error, status = 400) => answer({ ok: false, error }, status);
const account = (nonce, pendingNonce) => {
  const numbers = { balance: FUNDS, pendingBalance: FUNDS, nonce, pendingNonce };
  const texts = Object.entries(numbers).map(([name, value]) => [name, String(value)]);
  return answer({ account: Object.fromEntries(texts) });
};

/** A journal that outlives its workers. */
class MemoryJournal {
  entries = [];

  async read(after) {
    return this.entries.slice(after);
  }

  async append(sequence, entry) {
    assert.ok(sequence <= this.entries.length + 1);
    if (sequence <= this.entries.length) return false;
    this.entries.push(entry);
    return true;
  }
}

/** The transfers of the key: those that somebody has got, the chain, and the mempool of an honest node. */
class World {
  now = START;
  known = new Map();
  chain = [];
  pool = new Set();

  get included() {
    return this.chain.flat();
  }

  mine(wanted = (txid) => this.pool.has(txid)) {
    const block = [];
    for (;;) {
      const nonce = String(this.included.length + block.length);
      const ready = [...this.known].filter(([txid, each]) => each.nonce === nonce && wanted(txid));
      if (ready.length === 0) break;
      block.push(ready[0][0]);
    }
    this.chain.push(block);
    for (const txid of this.pool) if (Number(this.known.get(txid).nonce) < this.included.length) this.pool.delete(txid);
  }

  reorganise(depth) {
    for (const txid of this.chain.splice(Math.max(this.chain.length - depth, 0)).flat()) this.pool.add(txid);
  }

  record(txid) {
    const height = this.chain.findIndex((block) => block.includes(txid));
    return { ...this.known.get(txid), txid, confirmations: this.chain.length - height };
  }

  answer({ path, body }) {
    if (path === "/rpc/consensus")
      return answer({ consensus: { genesisHash: pay.DEVNET.genesisHash, accountMinimum: "1000000" } });
    if (path === "/rpc/fees") return answer({ fees: { suggestedFee: "10000" } });
    if (path.startsWith("/rpc/balance/")) {
      const waiting = [...this.pool].map((txid) => Number(this.known.get(txid).nonce));
      let pending = this.included.length;
      while (waiting.includes(pending)) pending++;
      return account(this.included.length, pending);
    }
    if (path.startsWith("/rpc/transaction/")) {
      const txid = path.split("/").at(-1);
      if (!this.included.includes(txid)) return refusal("no block of the chain contains it", 404);
      return answer({ transaction: this.record(txid) });
    }
    if (path.startsWith("/rpc/mempool/"))
      return answer({ transactions: [...this.pool].map((txid) => ({ ...this.known.get(txid), txid })), next: null });
    if (path.startsWith("/rpc/address/"))
      return answer({ transactions: this.included.reverse().map((txid) => this.record(txid)), next: null });
    assert.equal(path, "/rpc/broadcast");
    return this.take(body.txid);
  }

  take(txid) {
    const { nonce, fee, timestamp } = this.known.get(txid);
    if (this.pool.has(txid) || this.included.includes(txid)) return answer({ txid, state: "known" });
    if (Number(nonce) < this.included.length) return refusal("the nonce is already used");
    if (Number(nonce) >= this.included.length + 16) return refusal("the nonce is too far ahead");
    if (Number(timestamp) + DAY <= this.now) return refusal("expired");
    for (const other of this.pool) {
      const waiting = this.known.get(other);
      if (Number(waiting.timestamp) + DAY <= this.now) this.pool.delete(other);
      else if (waiting.nonce === nonce) {
        if (10n * BigInt(fee) < 11n * BigInt(waiting.fee)) return refusal("the nonce is taken by a waiting transfer");
        this.pool.delete(other);
      }
    }
    this.pool.add(txid);
    return answer({ txid, state: "accepted" });
  }
}

/** A worker; `node` answers its calls: an answer, or an error that is thrown. */
function workerOf(world, journal, node = (call) => world.answer(call), options = {}) {
  const fetch = async (url, { body }) => {
    const path = new URL(url).pathname;
    const call = { path };
    if (body !== undefined) {
      const { transaction } = JSON.parse(body);
      const { signature: _, ...unsigned } = transaction;
      const draft = { ...unsigned.payload, ...unsigned };
      const { recipient, amount, paymentReference: reference } = draft.payload;
      const { nonce, fee, timestamp } = draft;
      const { txid } = await pay.signTransfer(KEY, pay.DEVNET, { recipient, amount, reference, nonce, fee, timestamp });
      call.body = { txid };
      if (!world.deaf) world.known.set(txid, transaction);
    }
    const { status, content } = await node(call);
    if (content.account) content.account.address = path.split("/").at(-1);
    return new Response(JSON.stringify(content), { status });
  };
  const client = new pay.Client("http://node.example", { fetch, sleep: async () => {} });
  const settings = { confirmations: 2, now: () => world.now, ...options };
  return new pay.Payouts(client, journal, KEY, pay.DEVNET, settings);
}

const terms = (id, amount = 10n ** 8n) => ({ recipient: SHOP, amount, reference: id });
const instead = (world, path, came) => (call) => {
  if (!call.path.startsWith(path)) return world.answer(call);
  if (came instanceof Error) throw came;
  return came;
};

async function byAnotherProgram(world, nonce) {
  const given = { recipient: SHOP, amount: 5n, nonce, fee: 20_000n, timestamp: BigInt(world.now) };
  const { txid, transaction } = await pay.signTransfer(KEY, pay.DEVNET, given);
  world.known.set(txid, transaction);
  world.pool.add(txid);
}

test("a payout is stored before it is sent, and followed until it is deep", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  const payouts = workerOf(world, journal, (call) => {
    if (call.path === "/rpc/broadcast") assert.equal(journal.entries.length, 1);
    return world.answer(call);
  });
  const payout = await payouts.pay("a", terms("a"));
  assert.deepEqual([payout.state, payout.nonce, payout.problem, payout.amount], ["waiting", "0", null, "100000000"]);
  world.mine();
  assert.deepEqual((await payouts.advance()).map(({ state }) => state), ["confirming"]);
  const other = answer({ transaction: { txid: "ab".repeat(32), confirmations: 9 } });
  const [told] = await workerOf(world, journal, instead(world, "/rpc/transaction/", other)).advance();
  assert.match(told.problem, /about another transfer than the one that was asked for/);
  world.mine();
  assert.deepEqual((await payouts.advance()).map(({ state }) => state), ["paid"]);
  assert.deepEqual(await payouts.advance(), []);
  assert.equal((await payouts.pay("a", terms("a"))).txid, payout.txid);
  assert.equal((await payouts.check("a")).confirmations, 2);
  assert.equal(world.known.size, 1);
  const message =
    `payout a pays 100000000 base units to ${SHOP} with the reference a; ` +
    `to pay 100000000 base units to ${SHOP} without a reference, give it another id`;
  await assert.rejects(payouts.pay("a", { recipient: SHOP, amount: 10n ** 8n }), { name: "PayoutRefused", message });
  for (const id of ["", "a\n", "a".repeat(201), 7, null])
    await assert.rejects(payouts.pay(id, terms("a")), /the id of a payout is 1 to 200 printable characters/);
  await assert.rejects(payouts.pay("b", { ...terms("b"), refrence: "b" }), /unknown member refrence/);
  world.reorganise(2);
  world.pool.clear();
  const [undone] = await workerOf(world, journal, instead(world, "/rpc/broadcast", refusal("later", 503))).advance();
  assert.deepEqual([undone.state, undone.problem], ["waiting", "later"]);
  const again = await workerOf(world, journal).advance();
  assert.deepEqual(again.map(({ txid, state, problem }) => [txid, state, problem]), [[payout.txid, "waiting", null]]);
  assert.deepEqual([...world.pool], [payout.txid]);
});

test("what the node refuses is kept and sent again", async () => {
  for (const came of [refusal("no"), refusal("later", 503), new TypeError("lost"), answer({ txid: "ab", state: "x" })]) {
    const [world, journal] = [new World(), new MemoryJournal()];
    const payout = await workerOf(world, journal, instead(world, "/rpc/broadcast", came)).pay("a", terms("a"));
    assert.equal(payout.state, "waiting");
    assert.equal(typeof payout.problem, "string");
    assert.deepEqual((await workerOf(world, journal).advance()).map(({ problem }) => problem), [null]);
    assert.deepEqual([...world.pool], [payout.txid]);
  }
});

test("nonces follow the journal, and not only the node", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  const deaf = workerOf(world, journal, instead(world, "/rpc/broadcast", refusal("no")));
  for (const id of ["a", "b", "c"]) await deaf.pay(id, terms(id));
  assert.equal((await workerOf(world, journal).pay("d", terms("d"))).nonce, "3");
  await workerOf(world, journal).advance();
  for (let block = 0; block < 2; block++) world.mine();
  assert.deepEqual((await workerOf(world, journal).advance()).map(({ state }) => state), Array(4).fill("paid"));
  const behind = workerOf(world, journal, instead(world, "/rpc/balance/", account(1, 1)));
  assert.equal((await behind.pay("e", terms("e"))).nonce, "4");
  const poor = workerOf(world, journal, instead(world, "/rpc/broadcast", refusal("no")));
  await poor.pay("f", terms("f", FUNDS - 10n ** 9n));
  await assert.rejects(workerOf(world, journal).pay("g", terms("g", 10n ** 9n)), pay.ImpossibleAmount);
});

test("a nonce that the node cannot show makes no gap", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  for (const shown of [account(7, 7), account(0, 7)]) {
    const payouts = workerOf(world, journal, instead(world, "/rpc/balance/", shown));
    await assert.rejects(payouts.pay("a", terms("a")), /next nonce is 7, and shows no transfer of this key with nonce 6/);
  }
  for (const nonce of [0n, 1n, 2n]) await byAnotherProgram(world, nonce);
  assert.equal((await workerOf(world, journal).pay("a", terms("a"))).nonce, "3");
  world.mine();
  await byAnotherProgram(world, 4n);
  world.mine();
  assert.equal((await workerOf(world, journal).pay("b", terms("b"))).nonce, "5");
  const forged = { ...world.record(world.included.at(-1)), nonce: "9" };
  const liar = workerOf(world, journal, (call) => {
    if (call.path.startsWith("/rpc/address/")) return answer({ transactions: [forged, {}, { nonce: 9 }], next: null });
    return call.path.startsWith("/rpc/balance/") ? account(10, 10) : world.answer(call);
  });
  await assert.rejects(liar.pay("c", terms("c")), /shows no transfer of this key with nonce 9/);
});

test("a payout is signed again under its nonce only, after its day and for a higher fee", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  const first = await workerOf(world, journal).pay("a", terms("a"));
  world.now += DAY - 1;
  assert.equal((await workerOf(world, journal).advance())[0].transfers.length, 1);
  world.now += 1;
  const [again] = await workerOf(world, journal).advance();
  assert.deepEqual([again.nonce, again.transfers.length, again.problem], ["0", 2, null]);
  for (const [suggestedFee, fees] of [["10999", 2], ["11000", 3], ["2000000", 3]]) {
    const dear = workerOf(world, journal, instead(world, "/rpc/fees", answer({ fees: { suggestedFee } })));
    assert.equal((await dear.advance())[0].transfers.length, fees);
  }
  assert.deepEqual([...world.known.values()].map(({ nonce, fee }) => [nonce, fee]), [
    ["0", "10000"],
    ["0", "10000"],
    ["0", "11000"],
  ]);
  // The first one, which somebody has kept, is on the chain after all: it is this payout.
  world.chain.push([first.txid], []);
  assert.deepEqual((await workerOf(world, journal).advance()).map(({ state, txid }) => [state, txid]), [
    ["paid", first.txid],
  ]);
});

test("a nonce that another program has used is for a person to decide", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  const payouts = workerOf(world, journal);
  const refused = (message, node) =>
    assert.rejects(workerOf(world, journal, node).reassign("a"), { name: "PayoutRefused", message });
  await refused(/there is no payout a/);
  await workerOf(world, journal, instead(world, "/rpc/broadcast", refusal("no"))).pay("a", terms("a"));
  const own = world.known.keys().next().value;
  await refused(/nonce 0 of payout a is not used/);
  await byAnotherProgram(world, 0n);
  world.known.delete(own);
  world.mine();
  const [payout] = await payouts.advance();
  const problem = "the node says that another transfer of this key has used nonce 0: decide";
  assert.deepEqual([payout.state, payout.problem], ["conflicted", problem]);
  world.now += DAY + 3_599_999;
  await refused(/^until 1795260000000 ms \(Unix time\) a block can include a transfer of payout a$/);
  world.now += 1;
  await refused(/has 1 of 2 confirmations/);
  world.mine();
  const none = answer({ transactions: [], next: null });
  await refused(/shows no other transfer/, instead(world, "/rpc/address/", none));
  const mine = answer({ transactions: [{ ...payout.transfers[0].transaction, confirmations: 9 }], next: null });
  await refused(/shows no other transfer/, instead(world, "/rpc/address/", mine));
  const second = await payouts.reassign("a");
  assert.deepEqual([second.state, second.nonce, second.transfers.length], ["waiting", "1", 2]);
  for (let block = 0; block < 2; block++) world.mine();
  assert.deepEqual((await payouts.advance()).map(({ state }) => state), ["paid"]);
  await refused(/payout a is on the chain/);
});

test("a damaged journal is refused", async () => {
  const [world, journal] = [new World(), new MemoryJournal()];
  await workerOf(world, journal).pay("a", terms("a"));
  const [good] = journal.entries;
  const { id, transaction } = JSON.parse(good);
  const changed = JSON.stringify({ id, transaction: { ...transaction, nonce: "1" } });
  for (const damaged of ["", "[]", "null", '{"id":"b","paid":"ab"}', '{"id":"a","paid":"ab"}', changed]) {
    journal.entries = [good, damaged];
    const message = "entry 2 of the journal is damaged: restore it";
    await assert.rejects(workerOf(world, journal).advance(), { name: "JournalError", message });
  }
});

/** Numbers from 0 to 1 that follow from a seed (mulberry32). */
function randomOf(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test("one payout is never two payments: random lies, time-outs, workers and reorganisations", async () => {
  let paid = 0;
  for (let seed = 1; seed <= 30; seed++) {
    const random = randomOf(seed);
    const [world, journal] = [new World(), new MemoryJournal()];
    const one = (...choices) => choices[Math.floor(random() * choices.length)];
    const any = () => BigInt(Math.floor(random() * 6)) + (random() < 0.05 ? 10n ** 9n : 0n);
    const lie = ({ path, body }) => {
      if (path.startsWith("/rpc/balance/")) return account(any(), any());
      if (path.startsWith("/rpc/transaction/")) {
        const transaction = { txid: path.split("/").at(-1), confirmations: Math.floor(random() * 5) };
        return random() < 0.5 ? refusal("none", 404) : answer({ transaction });
      }
      if (path === "/rpc/fees") return answer({ fees: { suggestedFee: String(Math.floor(random() * 2e6)) } });
      if (path === "/rpc/broadcast") return answer({ txid: body.txid, state: "accepted" });
      const records = [...world.known].map(([txid, each]) => ({ ...each, txid, confirmations: 9 }));
      return path.startsWith("/rpc/consensus") ? world.answer({ path }) : answer({ transactions: records, next: null });
    };
    const node = (honesty) => (call) => {
      if (random() < honesty) return world.answer(call);
      const how = one("lie", "lie", "refuse", "lose", "fail");
      if (how === "lose") throw new TypeError("lost");
      if (how === "fail") return refusal("not now", 503);
      return how === "lie" ? lie(call) : refusal("no");
    };
    for (let round = 0; round < 15; round++) {
      const calls = Array.from({ length: 3 }, () => {
        // A worker that the others do not wait for, and whose memory is gone after its call.
        const payouts = workerOf(world, journal, node(one(1, 0.7, 0)));
        const id = `payout-${Math.floor(random() * 5)}`;
        const amount = 10n ** 8n + BigInt(id.slice(7));
        const what = one("pay", "pay", "advance", "advance", "reassign");
        return what === "pay" ? payouts.pay(id, terms(id, amount)) : payouts[what](id);
      });
      for (const { reason } of await Promise.allSettled(calls))
        if (reason !== undefined) assert.ok(reason instanceof pay.SvcPayError, reason?.stack);
      if (random() < 0.5) world.mine(() => random() < 0.7);
      if (random() < 0.3) world.reorganise(1 + Math.floor(random() * 4));
      if (random() < 0.3) world.now += Math.floor(random() * 30 * 3600 * 1000);
      const references = world.included.map((txid) => world.known.get(txid).payload.paymentReference);
      assert.equal(new Set(references).size, references.length, `seed ${seed}`);
    }
    const pairs = new Set([...world.known.values()].map(({ nonce, payload }) => `${payload.paymentReference} ${nonce}`));
    for (const place of [0, 1]) assert.equal(new Set([...pairs].map((pair) => pair.split(" ")[place])).size, pairs.size);
    const honest = workerOf(world, journal);
    for (let round = 0; round < 8 && (await honest.advance()).length > 0; round++) world.mine();
    const stored = await honest.stored();
    assert.deepEqual(new Set(stored.map(({ state }) => state)), new Set(stored.length > 0 ? ["paid"] : []));
    assert.equal(world.included.length, stored.length);
    paid += stored.length;
  }
  assert.ok(paid > 30);
});

test("of all who append to a folder one gets the place", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "payouts-"));
  context.after(() => rm(folder, { recursive: true }));
  const journals = Array.from({ length: 8 }, () => new FileJournal(join(folder, "new")));
  assert.deepEqual(await journals[0].read(0), []);
  for (let sequence = 1; sequence <= 10; sequence++) {
    const won = await Promise.all(journals.map((journal, place) => journal.append(sequence, `${place}`)));
    assert.deepEqual(won.filter(Boolean), [true]);
    assert.deepEqual(await journals[0].read(sequence - 1), [String(won.indexOf(true))]);
  }
  assert.equal((await journals[3].read(0)).length, 10);
  assert.equal((await readdir(join(folder, "new"))).length, 10);
  await rm(join(folder, "new", "0000000004.json"));
  await assert.rejects(journals[0].read(0), /are damaged: an entry is missing/);
  await writeFile(join(folder, "file"), "");
  const name = "JournalError";
  await assert.rejects(new FileJournal(join(folder, "file")).read(0), { name, message: /cannot be read or written/ });
  await assert.rejects(new FileJournal(join(folder, "file")).append(1, "a"), { name });
  assert.throws(() => new FileJournal(""), { name });
});
