import assert from "node:assert/strict";
import { test } from "node:test";

import { typedAmount } from "../../../svcd/pages/static/amounts.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { isReference } from "../../../svcd/pages/static/orders.mjs";
import { csvOf } from "../../../svcd/pages/static/statement-csv.mjs";
import { ordersOf, rowsOf, totalsOf } from "../../../svcd/pages/static/till-books.mjs";
import { nameOf } from "../../../svcd/pages/static/till-list.mjs";
import {
  asBefore,
  atCounter,
  charactersOf,
  dayOf,
  isOpen,
  joined,
  missingBelow,
  newOrder,
  orderIn,
  ordersNamed,
  pricesIn,
  rangesOf,
  reconciled,
  referenceOf,
  refundOf,
  settlement,
  slugOf,
  standingOf,
  sumOf,
  timeOf,
  tillOf,
  transferIn,
  uriOf,
  verified,
} from "../../../svcd/pages/static/till-orders.mjs";
import { GREATEST } from "../../../svcd/pages/static/units.mjs";
import { parseUri } from "../../../svcd/pages/static/uri.mjs";
import { codeOf } from "./vectors.mjs";

const COIN = 100_000_000n;
const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const BUYER = "svcd1qkkdc74lsmkrzphngq8gkl3pygr82umndcxleht";
const NOW = 1_795_170_187_000;
const TILL = tillOf("3259", SHOP, "Bar 1");
const PRICE = (5n * COIN) / 2n;
const REFERENCE = referenceOf("bar-1", "20261130", "abcdefgh", PRICE);

const order = (rule = 1, more = {}) => ({ ...newOrder(REFERENCE, TILL, rule, [], NOW), ...more });
const paid = (amount, height, txid = "t1") => ({ txid, other: BUYER, amount, height, time: NOW });
const state = (given, height = 10n) => standingOf(given, height).state;

test("the name of a till is the beginning of its references", () => {
  const names = ["Bar 1", "BAR-1 ", "Bär", "Straße", "a".repeat(30), "東京", "-", `${"b".repeat(17)} c`];
  assert.deepEqual(names.map(slugOf), ["bar-1", "bar-1", "bar", "strasse", "a".repeat(18), "", "", "b".repeat(17)]);
});

test("every reference fits, and its refund's too", () => {
  const longest = referenceOf(slugOf("a".repeat(40)), "20261130", charactersOf(new Uint8Array(8).fill(255)), GREATEST);
  assert.ok(isReference(`refund:${longest}`), longest);
  assert.deepEqual(orderIn(longest, "a".repeat(18)), { day: "20261130", amount: GREATEST });
});

test("another device reads day and amount in a reference of the same till only", () => {
  assert.deepEqual(orderIn(REFERENCE, "bar-1"), { day: "20261130", amount: PRICE });
  assert.equal(orderIn(REFERENCE, "bar"), null);
  assert.equal(orderIn(`x-${REFERENCE}`, "bar-1"), null);
  for (const coins of ["0", "2.50", "02.5", "2.", "90071992.54740992", "", "1e3", "2,5"])
    assert.equal(orderIn(`bar-1-20261130-abcdefgh-${coins}`, "bar-1"), null, coins);
});

test("a day begins at the hour that is set", () => {
  const three = new Date(2026, 11, 1, 3, 30).getTime();
  assert.deepEqual([dayOf(three, 0), dayOf(three, 4)], ["20261201", "20261130"]);
  assert.equal(dayOf(new Date(2027, 0, 1, 2).getTime(), 6), "20261231");
});

test("random characters are even, and none looks like another", () => {
  const all = new Set(Array.from({ length: 256 }, (_, byte) => charactersOf(new Uint8Array([byte]))));
  assert.equal(all.size, 32);
  for (const odd of "l1o0") assert.ok(!all.has(odd), odd);
});

test("a price list", async () => {
  const items = pricesIn("Tea 2.5\n\n Large beer  4,5 \r\n1 more 3", typedAmount);
  const wanted = [["Tea", PRICE], ["Large beer", (9n * COIN) / 2n], ["1 more", 3n * COIN]];
  assert.deepEqual(items.map(({ name, price }) => [name, price]), wanted);
  assert.equal(sumOf(items.map((item, at) => ({ ...item, count: at }))), (21n * COIN) / 2n);
  for (const wrong of ["Tea", "2.5", "Tea free", "Tea 0", "Tea -1", `${"x".repeat(41)} 1`, "Tea 1\n".repeat(61)])
    assert.equal(await codeOf(async () => pricesIn(wrong, typedAmount)), "prices", wrong);
  assert.throws(() => pricesIn("Tea 1\nBeer", typedAmount), /Line 2 /);
});

test("the links of an order and of its refund are payment URIs", () => {
  const asked = parseUri(uriOf(order(3), SHOP, "Bär & Söhne"), NETWORKS.devnet);
  const terms = { recipient: SHOP, amount: PRICE, reference: REFERENCE, confirmations: 3, label: "Bär & Söhne" };
  assert.deepEqual(asked, terms);
  const unnamed = parseUri(uriOf(order(0), SHOP, ""), NETWORKS.devnet);
  assert.deepEqual([unnamed.confirmations, unnamed.label], [1, null]);
  const refund = parseUri(refundOf(order(), paid(2n * COIN, 1n), "Refund"), NETWORKS.devnet);
  assert.deepEqual([refund.recipient, refund.amount, refund.reference], [BUYER, 2n * COIN, `refund:${REFERENCE}`]);
  assert.equal(refundOf(order(), { ...paid(COIN, 1n), other: null }, "Refund"), null);
});

test("when goods are handed over", () => {
  assert.equal(state(order(0)), "waiting");
  assert.equal(state(order(0, { payments: [paid(PRICE, null)] })), "paid");
  assert.equal(state(order(1, { payments: [paid(PRICE, null)] })), "seen");
  assert.equal(state(order(1, { payments: [paid(PRICE, 10n)] })), "paid");
  assert.equal(state(order(3, { payments: [paid(PRICE, 9n)] })), "confirming");
  assert.equal(state(order(3, { payments: [paid(PRICE, 8n)] })), "paid");
  assert.equal(standingOf(order(3, { payments: [paid(PRICE, 8n)] }), 10n).confirmations, 3);
  assert.equal(state(order(1, { payments: [paid(PRICE, 11n)] })), "seen", "of a block that is not there");
});

test("one base unit too little or too much pays nothing", () => {
  for (const amount of [PRICE - 1n, PRICE + 1n]) {
    const { state, owed, urgent } = standingOf(order(0, { payments: [paid(amount, 1n)] }), 10n);
    assert.deepEqual([state, owed, urgent], ["wrong", amount, true]);
  }
  const name = (amount) => nameOf(order(0, { payments: [paid(amount, 1n)] }), 10n, true).text;
  assert.deepEqual([name(PRICE - 1n), name(PRICE + 1n)], ["Too little", "Too much"]);
});

test("what arrives besides is owed until it is refunded or settled", () => {
  const both = order(1, { payments: [paid(COIN, 1n), paid(PRICE, 2n, "t2")] });
  assert.deepEqual([state(both), standingOf(both, 10n).owed], ["paid", COIN]);
  assert.ok(standingOf({ ...both, done: NOW }, 10n).urgent, "handed over is not settled");
  const refunded = { ...both, refunds: [paid(COIN, 3n, "r1")] };
  assert.deepEqual([standingOf(refunded, 10n).owed, standingOf(refunded, 10n).urgent], [0n, false]);
  assert.ok(!standingOf({ ...both, settled: COIN }, 10n).urgent);
  const twice = order(1, { payments: [paid(PRICE, 1n), paid(PRICE, 2n, "t2")] });
  const standing = standingOf(twice, 10n);
  assert.deepEqual([standing.twice, standing.owed, standing.urgent], [true, PRICE, true]);
  assert.equal(nameOf(twice, 10n, true).text, "Paid twice");
});

test("a payment of an order that was called off is late, until the goods are handed over", () => {
  const left = order(1, { left: NOW });
  assert.equal(state(left), "left");
  const late = { ...left, payments: [paid(PRICE, 1n)] };
  assert.deepEqual([state(late), standingOf(late, 10n).owed, standingOf(late, 10n).urgent], ["late", PRICE, true]);
  assert.equal(state({ ...late, payments: [paid(PRICE, null)] }), "seen");
  assert.deepEqual([state({ ...late, done: NOW }), standingOf({ ...late, done: NOW }, 10n).urgent], ["paid", false]);
  assert.ok(!standingOf({ ...late, refunds: [paid(PRICE, 2n, "r")] }, 10n).urgent);
});

test("nothing is called paid while the node is behind", () => {
  const seen = order(0, { payments: [paid(PRICE, null)] });
  assert.equal(nameOf(seen, 10n, true).text, "Paid");
  assert.equal(nameOf(seen, 10n, false).text, "0 of 1 confirmation");
});

const told = (more = {}) => ({
  state: "confirmed",
  txid: "t1",
  confirmations: 2,
  requiredConfirmations: 1,
  matchCount: 1,
  mismatches: [],
  blockTime: `${NOW}`,
  node: { synced: true },
  tip: { height: "10" },
  ...more,
});
const pending = { state: "pending", confirmations: 0, blockTime: null };

test("an order as the node verifies it", () => {
  const found = verified(order(), told(), NOW);
  assert.deepEqual(found.order.payments, [{ txid: "t1", other: null, amount: PRICE, height: 9n, time: NOW }]);
  assert.deepEqual([found.order.reached, found.height, found.synced, found.more], [true, 10n, true, true]);
  const known = verified(order(1, { payments: [paid(PRICE, null)] }), told({ node: { synced: false } }), NOW);
  assert.deepEqual([known.order.payments[0].other, known.synced, known.more], [BUYER, false, false]);
  assert.equal(verified(order(), told(pending), NOW).order.payments[0].height, null);
  const wrong = { state: "unpaid", matchCount: 0, confirmations: 0, txid: null, mismatches: [{ txid: "w", amount: "7", confirmations: 3 }] };
  assert.deepEqual(
    verified(order(), told(wrong), NOW).order.payments.map(({ amount, height }) => [amount, height]),
    [[7n, 8n]],
  );
  const second = order(1, { payments: [paid(PRICE, null), paid(PRICE, null, "t2")] });
  assert.equal(verified(second, told({ matchCount: 2 }), NOW).order.payments.length, 2);
  assert.ok(verified(order(), told({ matchCount: 2 }), NOW).more);
});

test("a verification that contradicts itself is none", () => {
  const lies = [
    ...[{ tip: null }, { tip: { height: "x" } }, { node: null }, { node: {} }, { mismatches: null }],
    ...[{ mismatches: [null] }, { mismatches: [{ txid: "w", amount: "-1", confirmations: 0 }] }, { txid: null }],
    ...[{ matchCount: 0 }, { state: "unpaid" }, { confirmations: 0 }, { confirmations: 12 }, { confirmations: "2" }],
    ...[{ state: "pending" }, { state: "confirming" }, { blockTime: null }, { requiredConfirmations: 3 }],
    ...[{ ...pending, confirmations: 1 }, { matchCount: -1 }],
  ];
  for (const lie of lies) assert.equal(verified(order(), told(lie), NOW), null, JSON.stringify(lie));
});

const transfer = (amount, height, more = {}) => ({
  ...{ txid: "t1", sender: BUYER, recipient: SHOP, amount, reference: REFERENCE, height, time: height && NOW },
  ...more,
});
const listing = (transfers, more = {}) => ({ transfers, since: 5n, height: 10n, begun: NOW, whole: true, ...more });
const own = { till: TILL, rule: 1, turn: 0, now: NOW };
const one = (orders, list) => reconciled(orders, list, own)[0];

test("a list pays the orders of this device", () => {
  const found = one([order()], listing([transfer(PRICE, 9n)]));
  assert.deepEqual([state(found), found.made, found.reached], ["paid", NOW, true]);
  assert.deepEqual(reconciled([found], listing([transfer(PRICE, 9n)]), own), [], "nothing is new");
  const both = one([order()], listing([transfer(PRICE, 9n), transfer(PRICE, null)]));
  assert.equal(both.payments[0].height, 9n, "it got into a block between the two lists");
});

test("a list that is older than the newest block does not take a payment out of it", () => {
  const deeper = order(1, { payments: [{ ...paid(PRICE, 11n), other: null }] });
  const found = one([deeper], listing([transfer(PRICE, null)]));
  assert.deepEqual([found.payments[0].height, found.payments[0].other], [11n, BUYER]);
  assert.equal(one([order()], listing([transfer(PRICE, null), transfer(PRICE, 11n)])).payments[0].height, 11n);
});

test("a list finds the orders of another device with the same name", () => {
  const found = one([], listing([transfer(PRICE, 9n)]));
  assert.deepEqual([found.amount, found.day, found.made, state(found)], [PRICE, "20261130", null, "paid"]);
  assert.equal(state(one([], listing([transfer(COIN, 9n)]))), "wrong");
  const others = ["order-1", REFERENCE.replace("bar-1", "bar-2"), `refund:${REFERENCE}`];
  for (const reference of others) assert.deepEqual(reconciled([], listing([transfer(PRICE, 9n, { reference })]), own), []);
  assert.deepEqual(reconciled([], listing([transfer(PRICE, 9n, { recipient: BUYER })]), own), []);
});

test("a payment without a reference belongs to no order", () => {
  const txid = "ab".repeat(32);
  const stray = one([], listing([transfer(COIN, 9n, { reference: null, txid })]));
  assert.deepEqual([state(stray), standingOf(stray, 10n).owed, stray.reference], ["unknown", COIN, "ab".repeat(16)]);
  const back = transfer(COIN, 10n, { sender: SHOP, recipient: BUYER, txid: "r", reference: `refund:${stray.reference}` });
  assert.ok(!standingOf(one([stray], listing([transfer(COIN, 9n, { reference: null, txid }), back])), 10n).urgent);
});

test("a refund by the shop's wallet, and by nobody else, settles what is owed", () => {
  const wrong = one([order()], listing([transfer(COIN, 9n)]));
  const back = transfer(COIN, null, { sender: SHOP, recipient: BUYER, txid: "r", reference: `refund:${REFERENCE}` });
  const refunded = one([wrong], listing([transfer(COIN, 9n), back]));
  assert.deepEqual([standingOf(refunded, 10n).back, standingOf(refunded, 10n).urgent], [COIN, false]);
  assert.deepEqual(reconciled([wrong], listing([transfer(COIN, 9n), { ...back, sender: BUYER }]), own), []);
});

test("a payment that is gone was undone, if the list would have it", () => {
  const before = one([order()], listing([transfer(PRICE, 9n)]));
  const after = one([before], listing([]));
  assert.deepEqual([state(after), standingOf(after, 10n).urgent], ["undone", true]);
  assert.ok(standingOf({ ...after, settled: PRICE }, 10n).urgent, "what was returned before pays nothing");
  assert.equal(state(one([after], listing([transfer(PRICE, 10n)]))), "paid", "it has come back");
  assert.deepEqual(reconciled([before], listing([], { whole: false }), own), [], "the chain has changed meanwhile");
  assert.deepEqual(reconciled([before], listing([], { since: 10n }), own), [], "it is older than the list");
  assert.deepEqual(reconciled([before], listing([], { height: 8n }), own), [], "it is newer than the list");
  const seen = order(0, { payments: [paid(PRICE, null)], reached: true });
  assert.deepEqual(reconciled([seen], listing([], { begun: NOW - 1 }), own), [], "it was seen after the list was begun");
  assert.equal(state(one([seen], listing([], { begun: NOW + 1 }))), "undone");
});

test("payments that are too many for one list are asked for again, until they are listed or lie too far back", () => {
  const first = rangesOf(null, 5_000n, 0n, 4_000n);
  assert.deepEqual(first, { since: 1_000n, below: null, oldest: 1_000n });
  assert.equal(missingBelow(first, 1_000n, 1_000n), null);
  assert.equal(missingBelow(first, 4_000n, 1_000n), 4_000n, "more than one list has");
  const before = { first: 5_000n, height: 5_000n, missingBelow: 4_000n };
  const second = rangesOf(before, 5_010n, 0n, 4_000n);
  assert.deepEqual(second, { since: 4_900n, below: 4_000n, oldest: 1_010n });
  assert.equal(missingBelow(second, 4_900n, 2_500n), 2_500n, "a part of it");
  assert.equal(missingBelow(second, 4_950n, 1_010n), 4_950n, "the newest are too many again");
  assert.equal(missingBelow(second, 4_900n, 1_010n), null, "all of it");
  assert.equal(rangesOf(before, 8_000n, 0n, 4_000n).below, null, "it lies too far back");
  assert.equal(rangesOf(before, 5_010n, 4_000n, 4_000n).below, null, "the node has deleted these blocks");
  assert.equal(rangesOf({ ...before, missingBelow: 4_990n }, 5_010n, 0n, 4_000n).below, 4_900n);
  const whole = rangesOf({ ...before, missingBelow: null }, 5_010n, 0n, 4_000n);
  assert.deepEqual([whole.below, missingBelow(whole, 4_900n, 1_010n)], [null, null]);
});

test("coins that came without an order before the till was set up are settled, whenever they are listed", () => {
  const stray = (height) => one([], listing([transfer(COIN, height, { reference: null })]));
  assert.equal(asBefore(stray(9n), 9n, false).settled, COIN);
  assert.equal(asBefore(stray(10n), 9n, false).settled, 0n);
  assert.deepEqual([asBefore(stray(null), 9n, true).settled, asBefore(stray(null), 9n, false).settled], [COIN, 0n]);
  assert.equal(asBefore(one([], listing([transfer(COIN, 9n)])), 9n, true).settled, 0n, "it names an order");
});

test("a list has payments of earlier blocks too, and takes no other of these away", () => {
  const early = order(1, { payments: [paid(PRICE, 2n)], reached: true });
  const found = one([early], listing([transfer(COIN, 3n, { txid: "t2" })]));
  assert.deepEqual(found.payments.map(({ txid }) => txid), ["t1", "t2"]);
});

test("an order of another device whose payment was undone stays in the books", () => {
  const before = one([], listing([transfer(PRICE, 9n)]));
  assert.equal(timeOf(before), NOW);
  const [after] = reconciled([before], listing([]), { ...own, now: NOW + 5 });
  assert.deepEqual([after.made, after.payments, state(after), timeOf(after)], [null, [], "undone", NOW]);
  assert.equal(joined(before, { ...after, known: NOW + 5 }).known, NOW);
  assert.deepEqual(ordersOf({ orders: new Map([[REFERENCE, after]]) }, "20261130"), [after]);
  assert.match(rowsOf([after], 10n)[1][0], /^2026-/);
});

test("nobody fills the list at the counter from outside", () => {
  const names = (orders) => atCounter(orders, 10n).shown.map(({ reference }) => reference);
  const made = (reference, more = {}) => order(1, { reference, ...more });
  const other = (reference, more = {}) => made(reference, { made: null, ...more });
  const twice = { payments: [paid(PRICE, 1n), paid(PRICE, 2n, "t2")] };
  const dust = { payments: [paid(1n, 9n)] };
  const stray = other("stray", { amount: null, ...dust });
  const found = [other("dust", dust), other("twice", twice), other("undone", { reached: true }), stray];
  assert.deepEqual(names([...found, made("own", dust)]), ["own", "twice", "undone"]);
  assert.deepEqual(names([made("done", { done: NOW, payments: [paid(PRICE, 1n)] }), made("left", { left: NOW })]), []);
  const many = Array.from({ length: 40 }, (_, at) => other(`${at}`, { payments: twice.payments.map((each) => ({ ...each, time: NOW + at })) }));
  const { shown, more } = atCounter([...many, made("own")], 10n);
  assert.deepEqual([shown.length, more, shown[0].reference, shown[1].reference], [30, 11, "own", "39"]);
});

test("only an order that was made here within the hour is waited for", () => {
  assert.ok(isOpen(order(), 10n, NOW + 1_000));
  assert.ok(!isOpen(order(), 10n, NOW + 3_600_000), "it was forgotten");
  assert.ok(!isOpen(order(1, { made: null }), 10n, NOW), "another device has made it");
  assert.ok(!isOpen(order(1, { payments: [paid(PRICE, 9n)] }), 10n, NOW));
});

test("which orders a list of transfers names", () => {
  const stray = transfer(COIN, 9n, { reference: null, txid: "ab".repeat(32) });
  const back = transfer(COIN, 9n, { reference: `refund:${REFERENCE}` });
  assert.deepEqual(ordersNamed([stray, back, transfer(PRICE, null)]), ["ab".repeat(16), REFERENCE]);
  const known = [one([], listing([stray])), order()];
  assert.deepEqual(ordersNamed([stray, back]), known.map(({ reference }) => reference));
});

test("a payment that comes back after the buyer has paid in another way is owed", () => {
  const undone = order(1, { payments: [], reached: true, done: NOW });
  const settled = { ...undone, ...settlement(undone, 10n) };
  assert.deepEqual([settled.paidOtherwise, settled.settled], [true, 0n]);
  assert.deepEqual([state(settled), standingOf(settled, 10n).owed, standingOf(settled, 10n).urgent], ["undone", 0n, false]);
  assert.ok(joined(settled, undone).paidOtherwise && joined(undone, settled).paidOtherwise);
  const back = one([settled], listing([transfer(PRICE, 9n)]));
  const standing = standingOf(back, 10n);
  assert.deepEqual([standing.state, standing.owed, standing.urgent, standing.twice], ["paid", PRICE, true, true]);
  assert.equal(nameOf(back, 10n, true).text, "Paid twice");
  assert.ok(!standingOf({ ...back, refunds: [paid(PRICE, 10n, "r")] }, 10n).urgent);
  assert.ok(!standingOf({ ...back, ...settlement(back, 10n) }, 10n).urgent, "it was returned in cash");
  const both = { ...settled, payments: [paid(COIN, 9n)] };
  assert.ok(!standingOf({ ...both, ...settlement(both, 10n) }, 10n).urgent, "dust that came besides");
});

test("a record of a transfer", () => {
  const record = { txid: "t1", senderAddress: BUYER, payload: { recipient: SHOP, amount: "7", paymentReference: "r" } };
  const placed = { ...record, blockHeight: "9", blockTime: `${NOW}` };
  assert.deepEqual(transferIn(placed), transfer(7n, 9n, { reference: "r" }));
  assert.deepEqual(transferIn(record), transfer(7n, null, { reference: "r" }));
  assert.equal(transferIn({ ...record, payload: { recipient: SHOP, amount: "7" } }).reference, null);
  const lies = [{ txid: 1 }, { txid: "../x" }, { senderAddress: null }, { senderAddress: "svc1q?amount=1" }];
  lies.push({ payload: undefined }, { payload: { recipient: SHOP, amount: "x" } });
  lies.push({ blockHeight: "x" }, { blockTime: "x" }, { payload: { ...record.payload, paymentReference: 7 } });
  for (const lie of lies) assert.equal(transferIn({ ...placed, ...lie }), null, JSON.stringify(lie));
});

test("what one tab has noted stays when another writes", () => {
  const lines = [{ name: "Tea", price: PRICE, count: 1 }];
  const kept = order(2, { lines, done: NOW, settled: 7n, reached: true });
  const found = one([], listing([transfer(PRICE, 9n)]));
  const both = joined(kept, found);
  assert.deepEqual([both.lines, both.made, both.done, both.rule, both.settled], [lines, NOW, NOW, 2, 7n]);
  assert.deepEqual([both.reached, both.payments], [true, found.payments]);
  assert.equal(joined(found, kept).done, NOW);
  assert.equal(joined(undefined, kept), kept);
});

const DAY = [
  order(1, { payments: [paid(PRICE, 9n)], lines: [{ name: "=Tea", price: PRICE, count: 1 }] }),
  order(0, { reference: "b", payments: [paid(PRICE, null)] }),
  order(1, { reference: "c", payments: [paid(COIN, 9n)], refunds: [paid(COIN, 10n, "r")] }),
  order(1, { reference: "d" }),
  order(1, { reference: "e", left: NOW, payments: [paid(PRICE, 9n)] }),
];

test("the sum of a day has what is paid, and tells what of it is only seen", () => {
  assert.deepEqual(totalsOf(DAY, 10n), { count: 2, sum: 5n * COIN, seen: PRICE, back: COIN, urgent: 1 });
});

test("the file of a day has a row for each order, and no formula", () => {
  const [header, first, , third] = csvOf(rowsOf(DAY, 10n)).split("\r\n");
  assert.equal(header, "date (UTC),day,reference,items,amount,state,received,refunded,confirmations,txids");
  const date = new Date(NOW).toISOString().replace("T", " ").slice(0, 19);
  assert.equal(first, `${date},20261130,${REFERENCE},1 =Tea,2.5,paid,2.5,0,2,t1`);
  assert.equal(third, `${date},20261130,c,,2.5,wrong,1,1,0,t1`);
  const [, row] = csvOf([[], ["=1+1", "-1", "+x"]]).split("\r\n");
  assert.equal(row, "'=1+1,-1,'+x");
});
