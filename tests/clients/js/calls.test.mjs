// What the JavaScript client repeats, refuses and waits for: its calls without a network.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as pay from "../../../clients/javascript/src/index.js";

const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const ORDER = { reference: "order-1", recipient: SHOP, amount: 100n, confirmations: 3 };
const LOST = Symbol("lost");
const [WATCH, EVENT] = [`svcwh_${"1".repeat(32)}`, `svcevt_${"1".repeat(32)}`];
const TXID = "ab".repeat(32);
const buyer = await pay.Key.fromSeed(new Uint8Array(32).fill(1));
const ORIGIN = await buyer.address(pay.DEVNET);

const answer = (content, status = 200, headers = {}) => new Response(JSON.stringify(content), { status, headers });
const refusal = (status, retryAfter) =>
  answer({ ok: false, error: "no, and this is why" }, status, retryAfter ? { "retry-after": retryAfter } : {});

function payment(state, changes = {}, synced = true) {
  const terms = { reference: "order-1", recipient: SHOP, amount: "100", amountSvc: "0.000001", requiredConfirmations: 3 };
  const settled = state === "confirmed";
  const found = { state, canonical: settled, confirmations: settled ? 3 : 0, matchCount: 0, mismatches: [] };
  const tip = { height: "1", hash: "ab" };
  return answer({ ok: true, payment: { ...terms, ...found, tip, node: { ...tip, synced }, ...changes } });
}

/** A client of a node that gives these answers, what it asked, and how long it paused. */
function clientOf(...answers) {
  const asked = [];
  const paused = [];
  async function fetch(url, options) {
    asked.push({ url: new URL(url), ...options });
    const next = answers.shift();
    if (next === LOST) throw new TypeError("fetch failed");
    return next();
  }
  const client = new pay.Client("https://node.example/", {
    token: "t".repeat(32),
    fetch,
    sleep: async (s) => paused.push(s),
  });
  return { client, asked, paused, left: answers };
}

test("a question is repeated", async () => {
  for (const trouble of [LOST, () => refusal(503), () => refusal(429), () => refusal(502)]) {
    const good = clientOf(trouble, trouble, () => payment("unpaid"));
    assert.equal((await good.client.payment(ORDER)).state, "unpaid");
    assert.ok(good.paused[0] >= 0.25 && good.paused[0] <= 0.5 && good.paused[1] <= 1);
    const bad = clientOf(trouble, trouble, trouble, trouble, LOST);
    await assert.rejects(bad.client.payment(ORDER), trouble === LOST ? pay.NodeUnreachable : pay.ApiError);
    assert.deepEqual([bad.left.length, bad.paused.length], [1, 3]);
  }
});

const URI = `svc:${SHOP}?amount=0.000001&ref=order:1&confirmations=12&label=Tea%20%26%20%28milk%29`;
const REQUEST = {
  reference: "order:1",
  recipient: SHOP,
  amount: "100",
  requiredConfirmations: 12,
  sinceHeight: "7",
  networkId: 2,
  label: "Tea & (milk)",
  paymentUri: URI,
  checkoutPath:
    `/pay/?reference=order%3A1&recipient=${SHOP}&amount=0.000001&confirmations=12&sinceHeight=7` +
    "&label=Tea%20%26%20%28milk%29",
  walletPath: `/wallet/?pay=${encodeURIComponent(URI)}`,
};

function requested(member, wanted = { reference: "order:1" }) {
  const { client } = clientOf(() => answer({ ok: true, payment: { ...REQUEST, ...member } }));
  return client.paymentRequest({ recipient: SHOP, amount: 100n, label: "Tea & (milk)", ...wanted });
}

test("a payment request says why nobody can pay it", async () => {
  for (const [member, warning] of [[{}, null], [{ warning: "not yet" }, "not yet"]]) {
    const order = { reference: "order:1", recipient: SHOP, amount: "100", confirmations: 12, sinceHeight: "7" };
    const { label, paymentUri, checkoutPath, walletPath } = REQUEST;
    assert.deepEqual(await requested(member), { order, paymentUri, checkoutPath, walletPath, label, warning });
  }
});

test("a node does not choose the reference of an order: it could choose that of an order which is paid", async () => {
  const say = () => answer({ ok: true, payment: REQUEST });
  const { client, asked } = clientOf(say, say);
  for (let count = 0; count < 2; count++)
    await assert.rejects(client.paymentRequest({ recipient: SHOP, amount: 100n }), { name: "InvalidAnswer" });
  const [first, second] = asked.map(({ body }) => JSON.parse(body).reference);
  assert.notEqual(first, second);
  assert.match(first, /^pay_[a-z2-7]{26}$/);
});

test("a payment request names nobody else than the shop, and nothing else than its order", async () => {
  const thief = "svcd1qpfr5nxm6y3nsqdtcsd9x0c9vkj3h6gtauqg9j7n";
  const lies = [
    { recipient: thief },
    { reference: "order:2" },
    { amount: "101" },
    { requiredConfirmations: 1 },
    { networkId: 1 },
    { label: "Tea" },
    { label: undefined },
    { label: 5 },
    { paymentUri: URI.replace(SHOP, thief) },
    { paymentUri: `${URI}&recipient=${thief}` },
    { paymentUri: "javascript:alert(1)" },
    { paymentUri: null },
    { checkoutPath: REQUEST.checkoutPath.replace(SHOP, thief) },
    { checkoutPath: `@other.example${REQUEST.checkoutPath}` },
    { checkoutPath: "" },
    { walletPath: REQUEST.walletPath.replace(SHOP, thief) },
    { sinceHeight: "8" },
    { sinceHeight: "9007199254740992" },
    { sinceHeight: 7 },
  ];
  for (const lie of lies) await assert.rejects(requested(lie), { name: "InvalidAnswer" }, JSON.stringify(lie));
  for (const label of ["\ud800", 5, null]) await assert.rejects(requested({}, { label }), pay.InvalidInput);
});

test("an answer about something else than was asked for is refused", async () => {
  const watch = { id: WATCH, active: true, lastState: "unpaid", callbackUrl: "https://a.example/" };
  const terms = { reference: "order-1", recipient: SHOP, amount: "100", requiredConfirmations: 3 };
  const subscription = { ...watch, ...terms, wantedEvents: [], createdAt: "1", expiresAt: "1" };
  const other = { ...subscription, id: "svcwh_2", reference: "order-2" };
  const account = { address: SHOP.replace("0", "2"), balance: "1", nonce: "0", pendingNonce: "0", pendingBalance: "1" };
  const content = { payment: { state: "pending", confirmations: 0 } };
  const event = { id: "svcevt_2", event: "payment.confirmed", createdAt: "1", attempts: 1, content };
  const cases = [
    [payment("unpaid", { requiredConfirmations: 2 }), (client) => client.payment(ORDER)],
    [answer({ ok: true, account }), (client) => client.account(SHOP)],
    [answer({ ok: true, block: { height: "2", hash: TXID } }), (client) => client.blockHash(1n)],
    [answer({ ok: true, subscription: other }), (client) => client.register(ORDER, "https://a.example/")],
    [answer({ ok: true, subscription: other }), (client) => client.watch(WATCH)],
    [answer({ ok: true, subscription: other }), (client) => client.cancel(WATCH)],
    [answer({ ok: true, event }), (client) => client.redeliver(WATCH, EVENT)],
  ];
  const message = /about another .* than the one that was asked for/;
  for (const [told, call] of cases)
    await assert.rejects(call(clientOf(() => told).client), { name: "InvalidAnswer", message }, String(call));
});

test("Retry-After is respected as long as the caller waits, five seconds unless it says more", async () => {
  const short = [() => refusal(429, "2"), () => refusal(503, "3"), () => payment("unpaid")];
  const patient = clientOf(...short);
  await patient.client.payment(ORDER);
  assert.deepEqual(patient.paused, [2, 3]);
  const late = clientOf(...short.slice(0, 1), () => refusal(429, "4"));
  await assert.rejects(late.client.payment(ORDER), { retryAfter: 4 });
  assert.deepEqual(late.paused, [2]);
  const long = clientOf(() => refusal(429, "60"));
  const message = "no, and this is why";
  await assert.rejects(long.client.payment(ORDER), { name: "ApiError", status: 429, retryAfter: 60, message });
  assert.deepEqual(long.paused, []);
  const [answers, slept] = [[() => refusal(429, "60"), () => payment("unpaid")], []];
  const patience = { timeout: 90, retrySeconds: 60 };
  const asked = { fetch: async () => answers.shift()(), sleep: async (s) => slept.push(s), ...patience };
  await new pay.Client("http://node.example/", asked).payment(ORDER);
  assert.deepEqual(slept, [60]);
});

test("what would have a further effect is never repeated", async () => {
  for (const trouble of [LOST, () => refusal(503), () => refusal(429, "1"), () => refusal(409)]) {
    for (const call of [(c) => c.redeliver(WATCH, EVENT), (c) => c.testCallback("https://a.example/")]) {
      const { client, asked, paused } = clientOf(trouble, LOST);
      await assert.rejects(call(client), pay.SvcPayError);
      assert.deepEqual([asked.length, paused], [1, []]);
    }
  }
});

test("an answer that makes no sense is an error", async () => {
  for (const odd of [
    new Response("<html>"),
    answer([]),
    answer({ ok: true }),
    payment("paid"),
    payment("unpaid", { amount: 100 }),
    payment("unpaid", { confirmations: 1.5 }),
    payment("unpaid", { canonical: 1 }),
    payment("confirmed", { reference: "order-2" }),
    payment("confirmed", { amount: "101" }),
    payment("confirmed", { node: {} }),
  ])
    await assert.rejects(clientOf(() => odd).client.payment(ORDER), pay.InvalidAnswer);
});

test("a URL that is not a node's is named, with what is wrong with it", async () => {
  const unlike = (why) => ({ message: `https://node.example does not answer like a svcd node (${why}): check the URL` });
  const page = (status) => () => new Response("<h1>Welcome</h1>", { status });
  await assert.rejects(clientOf(page(404)).client.account(SHOP), unlike("status 404"));
  await assert.rejects(clientOf(page(200)).client.payment(ORDER), unlike("its answer is not JSON"));
  // A node has a sentence about another method, too, but none of its paths refuses those of this client.
  const method = { ok: false, error: "this path answers GET, HEAD only" };
  await assert.rejects(clientOf(() => answer(method, 405)).client.payment(ORDER), unlike("status 405"));
  const proxy = "https://node.example answers with status 502; a proxy before the node may do that";
  await assert.rejects(clientOf(...Array(4).fill(page(502))).client.account(SHOP), { message: proxy });
});

test("a wait asks with the state it knows, and counts a confirmation only on a synced node", async () => {
  const states = ["unpaid", "pending", "unpaid", "confirming"].map((state) => () => payment(state));
  const unsynced = () => payment("confirmed", {}, false);
  const { client, asked } = clientOf(...states, unsynced, () => payment("confirmed"));
  assert.ok(pay.isSettled(await client.waitFor(ORDER)));
  const given = asked.map(({ url }) => [url.searchParams.get("wait"), url.searchParams.get("state")]);
  assert.deepEqual(given, [
    [null, null],
    ["30", "unpaid"],
    ["30", "pending"],
    ["30", "unpaid"],
    ["30", "confirming"],
    ["2", "confirmed"],
  ]);
});

test("a node that does not wait is asked after a pause", async () => {
  const states = ["unpaid", "unpaid", "unpaid", "pending", "pending", "confirmed"];
  const { client, paused } = clientOf(...states.map((state) => () => payment(state)));
  assert.equal((await client.waitFor(ORDER)).state, "confirmed");
  assert.deepEqual(paused, [2, 2, 2]);
});

test("a wait for which there is no room asks without waiting, and a wait ends", async () => {
  const full = Array.from({ length: 4 }, () => () => refusal(429, "1"));
  const { client, asked } = clientOf(
    () => payment("unpaid"),
    ...full,
    () => payment("pending"),
  );
  assert.equal((await client.waitFor(ORDER, { state: "pending" })).state, "pending");
  assert.equal(asked.at(-1).url.searchParams.get("wait"), null);
  const late = clientOf(() => payment("unpaid")).client.waitFor(ORDER, { state: "pending", timeout: 0 });
  await assert.rejects(late, { name: "WaitTimeout", message: "the payment of order-1 is unpaid, not yet pending" });
  const aborted = clientOf(LOST).client.waitFor(ORDER, { signal: AbortSignal.abort(new Error("no longer")) });
  await assert.rejects(aborted, /no longer/);
});

test("a wait goes on without its node until its deadline", async () => {
  const good = clientOf(
    LOST,
    () => refusal(503, "600"),
    () => payment("pending"),
  );
  const failing = clientOf(
    () => refusal(500),
    () => payment("pending"),
  );
  assert.equal((await failing.client.waitFor(ORDER, { state: "pending", timeout: 9 })).state, "pending");
  assert.equal((await good.client.waitFor(ORDER, { state: "pending", timeout: 9 })).state, "pending");
  assert.equal(good.paused[0], 2);
  assert.ok(good.paused[1] > 8 && good.paused[1] <= 9);
  const late = clientOf(LOST).client.waitFor(ORDER, { timeout: 0.5 });
  const message = "the payment of order-1 is not known; the last question failed: the node does not answer: fetch failed";
  await assert.rejects(late, { name: "WaitTimeout", message });
  await assert.rejects(clientOf(LOST, LOST, LOST, LOST).client.waitFor(ORDER), pay.NodeUnreachable);
});

test("a call of a wait is given up at the deadline, and a signal cancels a pause", async () => {
  const hanging = (_, { signal }) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  const patient = new pay.Client("http://node.example", { fetch: hanging, timeout: 600 });
  const alive = setInterval(() => {}, 1000); // timers of AbortSignal do not keep the process alive
  await assert.rejects(patient.waitFor(ORDER, { timeout: 0.1 }), pay.WaitTimeout);
  clearInterval(alive);
  const stop = new AbortController();
  const busy = new pay.Client("http://node.example", {
    fetch: async () => {
      setTimeout(() => stop.abort(new Error("no longer")), 10);
      return refusal(503, "60");
    },
    timeout: 90,
    retrySeconds: 60,
  });
  const began = performance.now();
  await assert.rejects(busy.payment(ORDER, { signal: stop.signal }), /no longer/);
  assert.ok(performance.now() - began < 10_000);
});

const TRANSFER = {
  ...{ txid: TXID, sender: ORIGIN, reference: "order-1", amount: "5", amountSvc: "0.00000005" },
  ...{ canonical: true, confirmations: 1 },
};
const listed = (changes) => clientOf(() => answer({ payments: [{ ...TRANSFER, ...changes }], next: null })).client;

test("payments are read to their end, and a proof is the answer as it came", async () => {
  const one = { ...TRANSFER, reference: null, canonical: false, confirmations: 0 };
  const pages = [
    { payments: [one], next: "x" },
    { payments: [], next: "y" },
    { payments: [{ ...one, canonical: true, confirmations: 1 }], next: null },
  ];
  const { client, asked } = clientOf(...pages.map((page) => () => answer(page)));
  assert.deepEqual(
    (await client.payments(SHOP)).map(({ canonical }) => canonical),
    [true],
  );
  assert.deepEqual(
    asked.map(({ url }) => url.searchParams.get("after")),
    [null, "x", "y"],
  );
  const proof = clientOf(() => answer({ next: null }));
  assert.equal(await proof.client.proof(ORDER), '{"next":null}');
  assert.equal(proof.asked[0].url.searchParams.get("chain"), "1");
});

test("a list with something that was not asked for is refused", async () => {
  const asked = { reference: "order-1", sinceHeight: 7n };
  for (const right of [{}, { blockHeight: "7" }, { canonical: false }])
    assert.equal((await listed(right).payments(SHOP, asked)).length, 1);
  for (const wrong of [{ reference: null }, { reference: "order-2" }, { blockHeight: "6" }])
    await assert.rejects(listed(wrong).payments(SHOP, asked), { name: "InvalidAnswer" }, JSON.stringify(wrong));
  assert.equal((await listed({ reference: null, blockHeight: "6" }).payments(SHOP)).length, 1);
  const watch = { id: WATCH, active: true, reference: "order-1", lastState: "pending", callbackUrl: "https://[::1]:9/" };
  const kept = { ...watch, wantedEvents: [], createdAt: "1", expiresAt: "2" };
  const watched = (changes) => clientOf(() => answer({ subscriptions: [{ ...kept, ...changes }], next: null })).client;
  const chosen = { reference: "order-1", state: "pending", host: "0:0::1" };
  assert.equal((await watched({}).watches(chosen)).watches.length, 1);
  for (const wrong of [{ reference: "order-2" }, { lastState: "unpaid" }, { callbackUrl: "https://a/" }, { callbackUrl: "" }])
    await assert.rejects(watched(wrong).watches(chosen), { name: "InvalidAnswer" }, JSON.stringify(wrong));
});

test("a payment says nothing that a shop or a person would act on wrongly", async () => {
  const wrong = { txid: TXID, amount: "5", amountSvc: "0.00000005", confirmations: 1 };
  for (const right of [{ mismatches: [wrong] }, { txid: TXID, blockHash: TXID, blockHeight: "1", blockTime: "1" }])
    assert.equal((await clientOf(() => payment("confirmed", right)).client.payment(ORDER)).state, "confirmed");
  const lies = [
    ...[{ amountSvc: "500" }, { amountSvc: undefined }, { amountSvc: 0.000001 }, { txid: "$(id)" }, { txid: "AB".repeat(32) }],
    ...[{ blockHash: "ab" }, { blockTime: "soon" }, { canonical: false }, { confirmations: 2 }, { sinceHeight: "1" }],
    ...[{ txid: 7 }, { amount: "x" }, { amountSvc: "5" }, { confirmations: "1" }].map((lie) => ({
      mismatches: [{ ...wrong, ...lie }],
    })),
  ];
  for (const lie of lies) {
    const told = clientOf(() => payment("confirmed", lie)).client.payment(ORDER);
    await assert.rejects(told, { name: "InvalidAnswer" }, JSON.stringify(lie));
  }
});

test("an answer counts the transfers of the blocks that the order names", async () => {
  const asked = { ...ORDER, sinceHeight: "7" };
  assert.equal((await clientOf(() => payment("unpaid", { sinceHeight: "7" })).client.payment(asked)).sinceHeight, "7");
  for (const sinceHeight of ["0", undefined])
    await assert.rejects(clientOf(() => payment("unpaid", { sinceHeight })).client.payment(asked), /sinceHeight differs/);
});

test("a transfer of a list is one of its network, with its own amount and mismatch", async () => {
  const right = [
    [5n, { mismatch: null }],
    [5n, { mismatch: "duplicate" }],
    [6n, { mismatch: "too-little" }],
    [4n, { mismatch: "too-much" }],
    [undefined, {}],
  ];
  for (const [amount, changes] of right)
    assert.equal((await listed(changes).payments(SHOP, { reference: "order-1", amount })).length, 1);
  const lies = [
    ...[{ mismatch: "too-much" }, { mismatch: "too-little" }, { mismatch: "late" }, { mismatch: {} }, { mismatch: "" }],
    ...[{ txid: "$(id)" }, { blockHash: "ab" }, { blockTime: 5 }, { amountSvc: "999" }, { amountSvc: undefined }],
    ...[{ sender: "svcd1qEVIL" }, { sender: ORIGIN.replace("q", "p") }, { sender: `${ORIGIN.slice(0, -1)}q` }],
    { sender: await buyer.address(pay.MAINNET) },
  ];
  for (const lie of lies) {
    const told = listed(lie).payments(SHOP, { reference: "order-1", amount: 5n });
    await assert.rejects(told, { name: "InvalidAnswer" }, JSON.stringify(lie));
  }
  for (const [amount, mismatch] of [[6n, null], [4n, "too-little"], [4n, "duplicate"]])
    await assert.rejects(listed({ mismatch }).payments(SHOP, { reference: "order-1", amount }), /is listed as/);
});

test("the times of a watch are numbers, and it counts the transfers that the order names", async () => {
  const terms = { reference: "order-1", recipient: SHOP, amount: "100", requiredConfirmations: 3, sinceHeight: "7" };
  const watch = { ...terms, id: WATCH, active: true, lastState: "unpaid", callbackUrl: "https://a/", wantedEvents: [] };
  const content = { payment: { state: "pending", confirmations: 0, txid: TXID } };
  const event = { id: EVENT, event: "payment.pending", createdAt: "1", attempts: 0, nextAttemptAt: null, content };
  const register = (changes) => {
    const subscription = { ...watch, createdAt: "1", expiresAt: "2", events: [event], ...changes };
    return clientOf(() => answer({ subscription })).client.register({ ...ORDER, sinceHeight: 7n }, "https://a/");
  };
  for (const right of [{}, { payUntil: "2", ending: "closed", breaker: { openedAt: "1", nextProbeAt: "2" } }])
    assert.equal((await register(right)).id, WATCH);
  const paid = await payment("confirmed").json();
  for (const lie of [
    ...[{ payUntil: "soon" }, { createdAt: 1 }, { endedAt: "x" }, { mismatchesUntil: -1 }, { ending: 7 }, { breaker: {} }],
    ...[{ sinceHeight: "0" }, { sinceHeight: undefined }, { payment: { ...paid.payment, canonical: false } }],
    ...[{ events: [{ ...event, nextAttemptAt: 5 }] }, { events: [{ ...event, content: { payment: { state: 1 } } }] }],
  ])
    await assert.rejects(register(lie), { name: "InvalidAnswer" }, JSON.stringify(lie));
});

test("an id becomes a part of a path only in its form", async () => {
  const { client, asked } = clientOf();
  const event = /the id of an event is svcevt_ and 32/;
  for (const id of ["", "..", `${WATCH}/cancel`, `${WATCH}\n`, WATCH.toUpperCase(), EVENT, 5, null, undefined]) {
    const refused = { name: "InvalidInput", message: /the id of a watch is svcwh_ and 32 lower-case hex characters/ };
    for (const call of [client.watch(id), client.cancel(id), client.redeliver(id, EVENT)]) await assert.rejects(call, refused);
    if (id !== EVENT) await assert.rejects(client.redeliver(WATCH, id), { name: "InvalidInput", message: event });
  }
  assert.equal(asked.length, 0);
});

test("watches are listed page after page", async () => {
  const one = { id: WATCH, active: true, lastState: "pending", callbackUrl: "https://a/", wantedEvents: [] };
  const page = { subscriptions: [{ ...one, createdAt: "1", expiresAt: "2", events: [] }], next: WATCH };
  const { client, asked } = clientOf(
    () => refusal(503),
    () => answer(page),
    () => answer({ subscriptions: [], next: null }),
  );
  const found = await client.watches({ state: "pending", host: "a", after: "svcwh_2", limit: 9 });
  assert.deepEqual([found.watches.map(({ id }) => id), found.next], [[WATCH], WATCH]);
  assert.deepEqual(await client.watches({ after: null }), { watches: [], next: null });
  assert.deepEqual(
    asked.map(({ url, headers }) => [url.pathname, url.search, headers.authorization]),
    ["?state=pending&host=a&after=svcwh_2&limit=9", "?state=pending&host=a&after=svcwh_2&limit=9", "?limit=50"].map(
      (search) => ["/rpc/commerce/webhooks", search, `Bearer ${"t".repeat(32)}`],
    ),
  );
});

test("a redirect is an error that is not repeated", async () => {
  const opaque = () => Object.defineProperty(Response.error(), "type", { value: "opaqueredirect" });
  for (const redirect of [301, 302, 303, 307, 308].map((status) => () => new Response(null, { status })).concat(opaque)) {
    const { client, asked, paused } = clientOf(redirect);
    await assert.rejects(client.payment(ORDER), { name: "InvalidAnswer", message: /^the answer is a redirect/ });
    assert.deepEqual([asked.length, asked[0].redirect, paused], [1, "manual", []]);
  }
});

test("only watches get the token", async () => {
  const { client, asked } = clientOf(
    () => payment("unpaid"),
    () => refusal(404),
  );
  await client.payment(ORDER);
  await assert.rejects(client.watch(WATCH), pay.ApiError);
  assert.deepEqual(
    asked.map(({ headers }) => headers.authorization),
    [undefined, `Bearer ${"t".repeat(32)}`],
  );
  assert.equal(asked[1].url.pathname, `/rpc/commerce/webhooks/${WATCH}`);
  await assert.rejects(new pay.Client("http://node.example").watch(WATCH), /management token/);
});

test("impossible values are refused before anything is asked", async () => {
  const { client, asked } = clientOf();
  for (const changes of [
    { amount: 100 },
    { amount: 0n },
    { amount: "0100" },
    { amount: 2n ** 53n },
    { reference: ".." },
    { recipient: `${SHOP.slice(0, -1)}q` },
    { recipient: SHOP.toUpperCase() },
    { confirmations: 0 },
    { sinceHeight: "-1" },
  ])
    await assert.rejects(client.payment({ ...ORDER, ...changes }), pay.InvalidInput, JSON.stringify(String(changes)));
  await assert.rejects(client.payment(ORDER, { wait: 5 }), pay.InvalidInput);
  const misspelt = { recipient: SHOP, amount: 1n, refrence: "order-1" };
  await assert.rejects(client.paymentRequest(misspelt), /unknown member refrence; use recipient, amount, reference/);
  await assert.rejects(client.sign(null, pay.DEVNET, misspelt), /unknown member refrence/);
  for (const wrong of [{ amount: 0n }, { amount: 5 }, { recipient: SHOP.slice(0, -1) }])
    await assert.rejects(client.sign(null, pay.DEVNET, { recipient: SHOP, amount: 1n, ...wrong }), pay.InvalidInput);
  await assert.rejects(pay.signTransfer(null, pay.DEVNET, { ...misspelt, nonce: 0n }), /unknown member refrence/);
  await assert.rejects(pay.signTransfer(null, "devnet", {}), /network must be MAINNET, DEVNET or/);
  await assert.rejects(client.waitFor(ORDER, { state: "unpaid" }), pay.InvalidInput);
  for (const url of ["127.0.0.1:18645", "ftp://node.example", "http://[::1", "http://", "", null])
    assert.throws(() => new pay.Client(url), pay.InvalidInput);
  assert.equal(asked.length, 0);
});

test("a token that no header can have is refused and not repeated", () => {
  for (const token of ["a-secret-token\n", "a-secret-token\nand more", "a-secret tokén", "", 7])
    assert.throws(
      () => new pay.Client("http://node.example", { token }),
      (error) =>
        error instanceof pay.InvalidInput && /visible ASCII/.test(error.message) && !/secret/.test(error.message),
    );
});

test("a token does not cross the network unencrypted unless it may", () => {
  const token = "a-secret-token";
  for (const url of ["http://node.example", "http://127.0.0.1.example:8645", "http://10.0.0.7:8645"])
    assert.throws(
      () => new pay.Client(url, { token }),
      (error) =>
        error instanceof pay.InvalidInput &&
        error.message.includes(`unencrypted to ${new URL(url).hostname}: use https://`) &&
        !error.message.includes(token),
    );
  assert.throws(() => new pay.Client("http://node.example", { token, insecureHttp: "no" }), /insecureHttp: true/);
  new pay.Client("http://node.example", { token, insecureHttp: true });
  new pay.Client("http://node.example");
  for (const url of ["https://node.example", "http://127.0.0.1:1", "http://127.8.9.1", "http://[::1]", "http://localhost"])
    new pay.Client(url, { token });
});

// Signing

const key = await pay.Key.fromSeed(new Uint8Array(32));
const OWN = await key.address(pay.DEVNET);
const consensus =
  ({ genesisHash } = pay.DEVNET) =>
  () =>
    answer({ consensus: { genesisHash, accountMinimum: "1000000" } });
const fees = (suggestedFee) => () => answer({ fees: { suggestedFee } });
const account =
  (address, balance, waiting = 0n) =>
  () => {
    const pendingBalance = String(balance - waiting);
    const content = { address, balance: String(balance), pendingBalance, nonce: "3", pendingNonce: "4" };
    return answer({ account: content });
  };

test("a fee above the limit is not paid, and nothing is signed for another network", async () => {
  const dear = clientOf(consensus(), fees("10001"));
  const wanted = { recipient: SHOP, amount: 1n, maximumFee: 10_000n };
  await assert.rejects(dear.client.sign(key, pay.DEVNET, wanted), /suggests a fee of 10001 base units/);
  await assert.rejects(clientOf(consensus(pay.MAINNET)).client.sign(key, pay.DEVNET, wanted), /is not on devnet/);
});

test("no transfer leaves an account below the minimum", async () => {
  const keep = "the account must keep 1000000 base units: it can send at most";
  const reach = "the recipient must have 1000000 base units after the transfer: send at least";
  const nothing = (balance) =>
    `the account can send nothing now: it has ${balance} base units, needs 10000 for the fee, and must keep 1000000`;
  const both =
    "the account can send at most 990000 base units now, and the recipient needs at least 1000000: " +
    "each must have 1000000 after the transfer";
  for (const [amount, balance, received, message, possible] of [
    [990_001n, 2_000_000n, 1_000_000n, `${keep} 990000 now`, 990_000n],
    [2n ** 53n - 1n, 2n ** 53n - 6n, 0n, `${keep} 9007199253730986 now`, 9007199253730986n],
    [999_999n, 10n ** 8n, 0n, `${reach} 1000000`, 1_000_000n],
    [1n, 10n ** 8n, 999_998n, `${reach} 2`, 2n],
    [990_001n, 2_000_000n, 0n, both, null],
    [1n, 1_010_000n, 1_000_000n, nothing(1_010_000), null],
    [1n, 0n, 0n, nothing(0), null],
  ]) {
    // What the sender's own transfers spend counts while they wait.
    const accounts = [account(OWN, balance + 5n, 5n), account(SHOP, received, received)];
    const signing = (units) => {
      const { client } = clientOf(consensus(), fees("10000"), ...accounts);
      return client.sign(key, pay.DEVNET, { recipient: SHOP, amount: units });
    };
    await assert.rejects(signing(amount), { name: "ImpossibleAmount", message, possible });
    if (possible === null) continue;
    const { transaction } = await signing(possible);
    assert.deepEqual([transaction.payload.amount, transaction.nonce], [String(possible), "4"]);
  }
});

test("an amount that is enough for any recipient needs no look at its account", async () => {
  const { client } = clientOf(consensus(), fees("10000"), account(OWN, 2_010_000n));
  const { transaction } = await client.sign(key, pay.DEVNET, { recipient: SHOP, amount: 1_000_000n });
  assert.equal(transaction.payload.recipient, SHOP);
});

test("a transfer to oneself asks for one account", async () => {
  const signing = (amount) => {
    const { client } = clientOf(consensus(), fees("10000"), account(OWN, 1_010_001n));
    return client.sign(key, pay.DEVNET, { recipient: OWN, amount });
  };
  assert.equal((await signing("1")).transaction.payload.recipient, OWN);
  await assert.rejects(signing("2"), { name: "ImpossibleAmount", possible: 1n });
});

test("a page of the feed", async () => {
  const tip = { height: "7", hash: TXID };
  const payment = { type: "payment", txid: TXID, reference: null, amount: "1", amountSvc: "0.00000001", sender: ORIGIN };
  const entry = { ...payment, height: "6", hash: "cd".repeat(32), time: "5", position: 3 };
  const rewind = { type: "rewind", height: "5", hash: "ef".repeat(32) };
  const feed = { entries: [rewind, entry], pending: [], next: "cursor", tip, node: { ...tip, synced: true } };
  const { client, asked } = clientOf(...Array(3).fill(() => answer({ ok: true, feed })));
  assert.deepEqual(await client.feed(SHOP), feed);
  const wanted = { after: "a b", wait: 30, limit: 2, sinceHeight: 3n, minHeight: "4" };
  assert.deepEqual(await client.feed(SHOP, wanted), feed);
  assert.deepEqual(
    asked.map(({ url }) => `${url.pathname}${url.search}`),
    [`/rpc/commerce/feed/${SHOP}?limit=100`, `/rpc/commerce/feed/${SHOP}?limit=2&after=a+b&wait=30&sinceHeight=3&minHeight=4`],
  );
  await assert.rejects(client.feed(SHOP, { limit: 1 }), { name: "InvalidAnswer", message: /longer than a node's/ });
  for (const limit of [0, 1001, "5"])
    await assert.rejects(client.feed(SHOP, { limit }), { name: "InvalidInput", message: /limit must be/ });
  await assert.rejects(client.feed("svcd1q"), { name: "InvalidInput" });
});
