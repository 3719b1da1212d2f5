// What is sent back of a payment, and what has been sent back of it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { paidUnder, refundedOf, refundReference, restOf } from "../../../svcd/pages/static/refund.mjs";

const TXID = "ab".repeat(32);

test("the reference of a refund is the one of svc wallet refund", async () => {
  const most = "x".repeat(57);
  const longer = "y".repeat(58);
  const digest = createHash("sha256").update(longer).digest("hex");
  assert.equal(await refundReference("order-7", TXID), "refund:order-7");
  assert.equal(await refundReference(null, TXID), `refund:${TXID.slice(0, 32)}`);
  assert.equal(await refundReference(most, TXID), `refund:${most}`);
  assert.equal(await refundReference(longer, TXID), `refund:${longer.slice(0, 40)}.${digest.slice(0, 16)}`);
});

test("what was refunded counts once, whether this browser or another device has signed it", () => {
  const refund = { recipient: "buyer", reference: "refund:A" };
  const payload = (amount, more = {}) => ({ recipient: "buyer", amount, paymentReference: "refund:A", ...more });
  const payment = (txid, amount, state = "pending", more = {}) => ({ txid, state, transfer: { payload: payload(amount, more) } });
  const record = (txid, amount, more = {}, senderAddress = "shop") => ({ txid, senderAddress, payload: payload(amount, more) });
  const sum = (payments, records) => refundedOf(refund, "shop", payments, records);
  assert.equal(sum([], []), 0n);
  assert.equal(sum([payment("a", "3")], []), 3n);
  assert.equal(sum([payment("a", "3")], [record("a", "3")]), 3n);
  assert.equal(sum([payment("a", "3")], [record("a", "5"), record("b", "4")]), 7n, "its own word counts");
  assert.equal(sum([payment("a", "3", "refused")], []), 0n);
  const again = { ...payment("b", "3"), earlier: [payment("a", "3")] };
  assert.equal(sum([again], [record("a", "3")]), 3n, "a block has what was signed first");
  assert.equal(sum([again], [record("a", "3"), record("b", "3")]), 6n, "blocks have both");
  const others = [{ recipient: "other" }, { paymentReference: "refund:B" }, { paymentReference: undefined }];
  for (const other of others) assert.equal(sum([payment("a", "3", "pending", other)], [record("b", "3", other)]), 0n);
  assert.equal(sum([], [record("b", "3", {}, "other")]), 0n);
});

test("what was refunded is read to its end, however much the wallet has done since", async () => {
  const refund = { recipient: "buyer", reference: "refund:A" };
  const listed = Array.from({ length: 150 }, (_, at) => ({ txid: `${at}`, sender: at === 149 ? "shop" : "other", amount: "3", reference: "refund:A" }));
  const asked = [];
  const ask = async (path) => {
    asked.push(path);
    const after = Number(new URL(path, "http://node").searchParams.get("after") ?? 0);
    const answer = { payments: listed.slice(after, after + 100), next: after + 100 < listed.length ? `${after + 100}` : null };
    return { status: 200, answer, tip: "", size: 1 };
  };
  const records = await paidUnder({ ask }, refund, 7n, () => new Error("odd"));
  assert.equal(refundedOf(refund, "shop", [], records), 3n);
  assert.equal(asked.length, 2);
  assert.ok(asked.every((path) => path.startsWith("/rpc/commerce/payments?recipient=buyer&reference=refund%3AA&sinceHeight=7&")));
  const broken = async () => ({ status: 410, answer: {}, tip: "", size: 1 });
  await assert.rejects(paidUnder({ ask: broken }, refund, 7n, () => new Error("odd")), /odd/);
});

test("a refund is proposed of what is left, and of all once nothing is", () => {
  const proposed = [0n, 1n, 3n, 4n].map((refunded) => restOf(3n, refunded));
  assert.deepEqual(proposed, [3n, 2n, 3n, 3n]);
});
