import assert from "node:assert/strict";
import { test } from "node:test";

import { judge, underWay } from "../../../svcd/pages/static/review.mjs";

const COIN = 100_000_000n;
const INTENT = { recipient: "bob", amount: 25n * COIN, fromLink: true };
const KNOWN = {
  sender: "alice",
  account: { balance: 100n * COIN },
  view: { syncing: false, time: 1_000_000 },
  fee: 10_000n,
  waiting: 0n,
  paid: { state: "unpaid" },
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

test("the last base unit can be spent, and one more cannot", () => {
  const amount = 100n * COIN - 10_000n;
  assert.deepEqual([judge({ ...INTENT, amount }, KNOWN).after, judge({ ...INTENT, amount }, KNOWN).blocked], [0n, null]);
  const { blocked } = judge({ ...INTENT, amount: amount + 1n }, KNOWN);
  assert.equal(blocked.code, "insufficient");
  assert.match(blocked.message, /0\.000\u202f000\u202f01\u00a0SVC/);
});

test("what is under way cannot be spent again", () => {
  assert.equal(judge(INTENT, { ...KNOWN, waiting: 80n * COIN }).blocked.code, "insufficient");
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

test("nothing is signed for an order that has expired by the node's clock", () => {
  assert.deepEqual(codes(judge({ ...INTENT, until: 1_000_001 }, KNOWN)), [null, []]);
  assert.deepEqual(codes(judge({ ...INTENT, until: 1_000_000 }, KNOWN)), ["link-expired", []]);
  assert.deepEqual(codes(judge({ ...INTENT, until: null }, KNOWN)), [null, []]);
});

test("nothing is signed for a node that is catching up, nor by a wrong clock", () => {
  assert.equal(judge(INTENT, { ...KNOWN, view: { syncing: true, time: 1_000_000 } }).blocked.code, "node-syncing");
  assert.equal(judge(INTENT, { ...KNOWN, now: 1_300_000 }).blocked, null);
  assert.equal(judge(INTENT, { ...KNOWN, now: 1_300_001 }).blocked.code, "clock");
  assert.equal(judge(INTENT, { ...KNOWN, now: 699_999 }).blocked.code, "clock");
});

test("amount and fee together must be a number of the wire", () => {
  const rich = { ...KNOWN, account: { balance: 9_007_199_254_740_991n } };
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
