import assert from "node:assert/strict";
import { test } from "node:test";

import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { judge, needsBalance, spendable, underWay } from "../../../svcd/pages/static/review.mjs";

const COIN = 100_000_000n;
const LEAST = 1_000_000n;
const INTENT = { id: "a", recipient: "bob", amount: 25n * COIN, reference: "A", fromLink: true };
const KNOWN = {
  sender: "alice",
  view: { network: NETWORKS.mainnet, syncing: false, time: 1_000_000, tipTime: 1_000_000 },
  fee: 10_000n,
  available: 100n * COIN,
  received: null,
  paid: { state: "unpaid" },
  own: [],
  now: 1_000_000,
};
const codes = ({ blocked, warnings }) => [blocked?.code ?? null, warnings.map(({ code }) => code)];

test("fee, total and what is left", () => {
  const judged = judge(INTENT, KNOWN);
  assert.deepEqual([judged.fee, judged.total, judged.after], [10_000n, 25n * COIN + 10_000n, 75n * COIN - 10_000n]);
  assert.deepEqual(codes(judged), [null, []]);
});

test("a fee above the minimum is told, and counts", () => {
  const judged = judge(INTENT, { ...KNOWN, fee: 25_000n });
  assert.deepEqual([judged.fee, judged.total, judged.after], [25_000n, 25n * COIN + 25_000n, 75n * COIN - 25_000n]);
  assert.deepEqual(codes(judged), [null, ["fee-raised"]]);
});

test("all but the account minimum can be spent, and not a base unit more", () => {
  const amount = 100n * COIN - 10_000n - LEAST;
  const { after, blocked: none } = judge({ ...INTENT, amount }, KNOWN);
  assert.deepEqual([after, none], [LEAST, null]);
  const { blocked } = judge({ ...INTENT, amount: amount + 1n }, KNOWN);
  assert.deepEqual([blocked.code, blocked.missing], ["insufficient", 1n]);
  assert.equal(
    blocked.message,
    "The balance is too small: 0.000\u202f000\u202f01\u00a0SVC are missing for the amount, the fee and the 0.01\u00a0SVC that must remain.",
  );
});

test("who chooses the amount is told the most", () => {
  const most = /You can send at most 99\.9899\u00a0SVC\.$/;
  assert.match(judge({ ...INTENT, amount: 100n * COIN, fromLink: false }, KNOWN).blocked.message, most);
  assert.doesNotMatch(judge({ ...INTENT, amount: 100n * COIN }, KNOWN).blocked.message, /at most/);
  const poor = { ...KNOWN, available: LEAST + 10_000n };
  assert.doesNotMatch(judge({ ...INTENT, fromLink: false }, poor).blocked.message, /at most/);
});

test("the recipient must have the account minimum afterwards", () => {
  for (const [received, least] of [
    [0n, "0.01"],
    [400_000n, "0.006"],
  ]) {
    const enough = LEAST - received;
    assert.equal(judge({ ...INTENT, amount: enough }, { ...KNOWN, received }).blocked, null);
    const { blocked } = judge({ ...INTENT, amount: enough - 1n }, { ...KNOWN, received });
    assert.equal(blocked.code, "recipient-minimum");
    assert.match(blocked.message, new RegExp(`the amount must be at least ${least}\u00a0SVC\\.$`));
  }
  assert.equal(judge({ ...INTENT, amount: 1n }, { ...KNOWN, received: LEAST }).blocked, null);
});

test("the recipient's balance matters only where the amount alone is too little", () => {
  assert.equal(needsBalance({ ...INTENT, amount: LEAST }, "alice", NETWORKS.mainnet), false);
  assert.equal(needsBalance({ ...INTENT, amount: LEAST - 1n }, "alice", NETWORKS.mainnet), true);
  assert.equal(needsBalance({ recipient: "alice", amount: 1n }, "alice", NETWORKS.mainnet), false);
});

test("what is under way cannot be spent again, neither what was signed here nor what waits at the node", () => {
  const signed = (id, state, amount) => ({
    id,
    state,
    transfer: { senderAddress: "alice", fee: "1", payload: { recipient: "bob", amount: `${amount}` } },
  });
  const account = (pendingBalance) => ({ balance: 100n, pendingBalance });
  assert.equal(spendable(account(100n), []), 100n);
  assert.equal(spendable(account(100n), [signed("a", "signed", 19)]), 80n, "the node has lost it, or not got it yet");
  assert.equal(spendable(account(30n), []), 30n, "another device has signed it");
  assert.equal(spendable(account(30n), [signed("a", "pending", 19)]), 30n, "it is among what waits at the node");
  assert.equal(spendable(account(80n), [signed("a", "pending", 19)], "a"), 100n, "it is the one that is replaced");
  assert.equal(spendable(account(80n), [signed("a", "pending", 19)], "b"), 80n);
});

test("a payment to oneself is warned of, and costs the fee alone", () => {
  const judged = judge({ ...INTENT, recipient: "alice" }, KNOWN);
  assert.deepEqual(codes(judged), [null, ["self-payment"]]);
  assert.equal(judged.after, 100n * COIN - 10_000n);
});

for (const state of ["pending", "confirming", "confirmed"]) {
  test(`an order whose payment is ${state} is not paid again from its link`, () => {
    assert.deepEqual(codes(judge(INTENT, { ...KNOWN, paid: { state } })), ["already-paid", []]);
    assert.deepEqual(codes(judge({ ...INTENT, fromLink: false }, { ...KNOWN, paid: { state } })), [
      null,
      ["already-paid"],
    ]);
  });
}

test("a node that has only later blocks does not know whether an earlier one pays the order", () => {
  const paid = { state: "unpaid", txid: null, first: 7_000n };
  for (const fromLink of [true, false]) {
    const { blocked, warnings } = judge({ ...INTENT, fromLink }, { ...KNOWN, paid });
    assert.deepEqual([blocked, warnings.map(({ code }) => code)], [null, ["pruned"]]);
    assert.match(warnings[0].message, /only blocks from height 7\u202f000 on\./);
  }
  assert.deepEqual(codes(judge(INTENT, { ...KNOWN, paid: { ...paid, first: 0n } })), [null, []]);
  assert.deepEqual(codes(judge(INTENT, { ...KNOWN, paid: null })), [null, []]);
});

test("nothing is signed for an order that has expired by the node's clock", () => {
  assert.deepEqual(codes(judge({ ...INTENT, until: 1_000_001 }, KNOWN)), [null, []]);
  assert.deepEqual(codes(judge({ ...INTENT, until: 1_000_000 }, KNOWN)), ["link-expired", []]);
  assert.deepEqual(codes(judge({ ...INTENT, until: null }, KNOWN)), [null, []]);
});

test("nothing is signed for a node that is catching up, nor by a wrong clock", () => {
  const { view } = KNOWN;
  assert.equal(judge(INTENT, { ...KNOWN, view: { ...view, syncing: true } }).blocked.code, "node-syncing");
  assert.equal(judge(INTENT, { ...KNOWN, view: { ...view, tipTime: 1_300_000 } }).blocked, null);
  assert.equal(judge(INTENT, { ...KNOWN, view: { ...view, tipTime: 1_300_001 } }).blocked.code, "clock");
  assert.equal(judge(INTENT, { ...KNOWN, now: 1_300_000 }).blocked, null);
  assert.equal(judge(INTENT, { ...KNOWN, now: 1_300_001 }).blocked.code, "clock");
  assert.equal(judge(INTENT, { ...KNOWN, now: 699_999 }).blocked.code, "clock");
});

test("amount and fee together must be a number of the wire", () => {
  const rich = { ...KNOWN, available: 9_007_199_254_740_991n };
  assert.equal(judge({ ...INTENT, amount: 9_007_199_254_740_991n }, rich).blocked.code, "amount");
});

test("what is under way: signed and waiting transfers, those to oneself with their fee", () => {
  const payment = (state, recipient) => ({
    state,
    transfer: { senderAddress: "alice", fee: "10000", payload: { recipient, amount: "5" } },
  });
  assert.equal(underWay([payment("signed", "bob"), payment("pending", "alice")]), 20_005n);
  assert.equal(underWay([payment("confirming", "bob"), payment("confirmed", "bob"), payment("refused", "bob")]), 0n);
});

test("nothing is signed if the newest block is three hours old, but on a devnet, which has blocks when it is asked", () => {
  const view = { ...KNOWN.view, time: 20_000_000, tipTime: 20_000_000 - 10_800_000 };
  const known = { ...KNOWN, view, now: 20_000_000 };
  assert.deepEqual(codes(judge(INTENT, known)), [null, []]);
  assert.deepEqual(codes(judge(INTENT, { ...known, view: { ...view, tipTime: view.tipTime - 1 } })), ["tip-old", []]);
  const devnet = { ...view, network: NETWORKS.devnet, tipTime: 0 };
  assert.deepEqual(codes(judge(INTENT, { ...known, view: devnet })), [null, []]);
});
