import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf } from "../../../svcd/pages/static/bytes.mjs";
import { pairOf } from "../../../svcd/pages/static/ed25519.mjs";
import { addressOf } from "../../../svcd/pages/static/key-hash.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { Node } from "../../../svcd/pages/static/node.mjs";
import { hasFallen, linkId, Paying } from "../../../svcd/pages/static/paying.mjs";
import { about, Devnet } from "./devnet.mjs";
import { Memory } from "./memory.mjs";
import { codeOf, vectors } from "./vectors.mjs";

const COIN = 100_000_000n;
const BOB = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const network = NETWORKS.devnet;
const key = await pairOf(bytesOf(vectors("svc_protocol").networks.devnet.keys[0].seed));
const sender = await addressOf(key.publicKey, network);
const signer = { key, sender };

/** One piece of work after the other, as the browser's locks do for all tabs together. */
function turns() {
  let last = Promise.resolve();
  return (work) => (last = last.then(work, work));
}

function opened() {
  const devnet = new Devnet();
  devnet.balances.set(sender, 100n * COIN);
  const store = new Memory();
  const exclusive = turns();
  const tab = () => new Paying({ store, node: new Node(devnet.fetch), clock: () => devnet.now, network, exclusive });
  return { devnet, store, paying: tab(), tab };
}

const ORDER = {
  recipient: BOB,
  amount: 25n * COIN,
  reference: "order-1",
  confirmations: 3,
  label: "Tea",
  fromLink: true,
};
const LINK = { ...ORDER, id: linkId(sender, ORDER) };
const sent = (id, amount = COIN) => ({
  id,
  recipient: BOB,
  amount,
  reference: null,
  confirmations: 12,
  label: null,
  fromLink: false,
});
const broadcasts = ({ asked }) => asked.filter((path) => path === "/rpc/broadcast").length;

test("from the link to the chain", async () => {
  const { devnet, paying } = opened();
  const signed = await paying.sign(LINK, signer);
  assert.equal(signed.state, "signed");
  assert.equal(broadcasts(devnet), 0);
  assert.deepEqual(signed.transfer.payload, { recipient: BOB, amount: "2500000000", paymentReference: "order-1" });
  assert.equal((await paying.follow(signed)).state, "pending");
  devnet.mine();
  const confirming = await paying.follow(signed);
  assert.deepEqual([confirming.state, confirming.confirmations, confirming.blockHeight], ["confirming", 1, "1"]);
  devnet.mine(1);
  assert.equal((await paying.follow(signed)).state, "confirmed");
});

test("the fee is the one that was shown, or else the node's", async () => {
  const { devnet, paying } = opened();
  devnet.fees.suggestedFee = "20000";
  assert.equal((await paying.review(LINK, sender)).fee, 20_000n);
  devnet.fees.suggestedFee = "30000";
  assert.equal((await paying.sign({ ...LINK, fee: 20_000n }, signer)).transfer.fee, "20000");
  assert.equal((await paying.sign(sent("send 1"), signer)).transfer.fee, "30000");
});

test("what another device has signed with the key cannot be spent again", async () => {
  const { devnet, paying } = opened();
  const elsewhere = { recipient: BOB, amount: `${80n * COIN}` };
  devnet.pool.set("elsewhere", { senderAddress: sender, nonce: "0", fee: "10000", payload: elsewhere });
  assert.equal((await paying.review(LINK, sender)).blocked.code, "insufficient");
});

test("what is signed is kept before it is sent", async () => {
  const { devnet, store, paying } = opened();
  devnet.between = (path) => assert.ok(path !== "/rpc/broadcast" || store.kept.has(LINK.id));
  await paying.follow(await paying.sign(LINK, signer));
  assert.equal(broadcasts(devnet), 1);
});

test("nothing is sent that could not be kept", async () => {
  const { devnet, store, paying } = opened();
  store.keep = async () => Promise.reject(new Error("full"));
  await assert.rejects(paying.sign(LINK, signer), /full/);
  assert.equal(devnet.pool.size, 0);
});

test("a double click, a second tab and a reload give the same bytes", async () => {
  const { devnet, paying, tab } = opened();
  const all = await Promise.all([paying.sign(LINK, signer), paying.sign(LINK, signer), tab().sign(LINK, signer)]);
  devnet.now += 60_000;
  all.push(await tab().sign(LINK, signer));
  for (const payment of all) assert.deepEqual(payment, all[0]);
  await Promise.all(all.map((payment) => paying.follow(payment)));
  assert.equal(devnet.pool.size, 1);
});

test("a confirmed order stays paid, also after the tab was closed", async () => {
  const { devnet, paying, tab } = opened();
  const first = await paying.sign(LINK, signer);
  await paying.follow(first);
  devnet.mine(5);
  assert.equal((await tab().sign(LINK, signer)).txid, first.txid);
  assert.equal((await tab().sign(LINK, signer, { again: first.txid })).txid, first.txid);
});

test("a link that leaves the amount open is one intent, whatever amount is chosen", async () => {
  const { tab, paying } = opened();
  const open = { ...ORDER, amount: null, id: linkId(sender, { ...ORDER, amount: null }) };
  const first = await paying.sign({ ...open, amount: 2n * COIN }, signer);
  assert.equal((await tab().sign({ ...open, amount: 3n * COIN }, signer)).txid, first.txid);
  assert.notEqual(open.id, LINK.id);
});

test("an answer that is lost does not make a second payment", async () => {
  const { devnet, paying } = opened();
  const payment = await paying.sign(LINK, signer);
  devnet.between = async (path) => {
    if (path !== "/rpc/broadcast") return null;
    devnet.between = () => null;
    await devnet.fetch(path, { body: JSON.stringify({ transaction: payment.transfer }) });
    throw new TypeError("Failed to fetch");
  };
  assert.equal(await codeOf(paying.follow(payment)), "node-unreachable");
  assert.equal((await paying.follow(payment)).state, "pending");
  assert.equal(devnet.pool.size, 1);
});

test("two intents get two nonces, although the first was never sent", async () => {
  const { devnet, paying } = opened();
  const first = await paying.sign(sent("a"), signer);
  const second = await paying.sign(sent("b"), signer);
  assert.deepEqual([first.transfer.nonce, second.transfer.nonce], ["0", "1"]);
  await paying.follow(second);
  assert.equal(devnet.pool.size, 2);
});

test("while the first cannot be sent, nothing else is signed", async () => {
  const { devnet, store, paying } = opened();
  await paying.sign(sent("a"), signer);
  devnet.between = (path) => (path === "/rpc/broadcast" ? Promise.reject(new TypeError("Failed to fetch")) : null);
  assert.equal(await codeOf(paying.sign(sent("b"), signer)), "node-unreachable");
  assert.deepEqual([...store.kept.keys()], ["a"]);
});

test("an order that somebody else has paid is not paid again", async () => {
  const { devnet, paying } = opened();
  await paying.follow(await paying.sign(LINK, signer));
  const elsewhere = opened();
  elsewhere.devnet.pool = devnet.pool;
  assert.equal(await codeOf(elsewhere.paying.sign(LINK, signer)), "already-paid");
  assert.equal(elsewhere.store.kept.size, 0);
});

test("a balance that is too small is not signed for", async () => {
  const { paying, store } = opened();
  assert.equal(await codeOf(paying.sign({ ...LINK, amount: 100n * COIN }, signer)), "insufficient");
  assert.equal(store.kept.size, 0);
});

test("a recipient without an account must get the account minimum", async () => {
  const { devnet, paying, store } = opened();
  assert.equal(await codeOf(paying.sign(sent("a", 999_999n), signer)), "recipient-minimum");
  assert.equal(store.kept.size, 0);
  devnet.balances.set(BOB, 1_000_000n);
  assert.equal((await paying.follow(await paying.sign(sent("a", 1n), signer))).state, "pending");
});

test("what waits is taken from the balance", async () => {
  const { paying } = opened();
  await paying.follow(await paying.sign(sent("a", 60n * COIN), signer));
  assert.equal(await codeOf(paying.sign(sent("b", 60n * COIN), signer)), "insufficient");
});

test("what has come into a block is not taken twice", async () => {
  const { devnet, paying } = opened();
  await paying.follow(await paying.sign(sent("a", 60n * COIN), signer));
  devnet.mine();
  assert.equal((await paying.sign(sent("b", 30n * COIN), signer)).transfer.nonce, "1");
});

/** A payment whose nonce another device uses first. */
async function overtaken() {
  const all = opened();
  const payment = await all.paying.sign(LINK, signer);
  const other = opened();
  const theirs = await other.paying.sign(sent("theirs"), signer);
  await all.devnet.fetch("/rpc/broadcast", { body: JSON.stringify({ transaction: theirs.transfer }) });
  return { ...all, payment };
}

/** A day by the clock of this device, and the time that two clocks may differ. */
const DAY = 86_400_000 + 3_600_000;

test("a nonce that another device has taken: its transfer is not replaced, and nothing else is signed for a day", async () => {
  const { devnet, paying, payment, store } = await overtaken();
  const waiting = await paying.follow(payment);
  assert.deepEqual([waiting.state, waiting.problem.code], ["refused", "nonce-stale"]);
  assert.equal(await codeOf(paying.sign(LINK, signer, { again: payment.txid })), "nonce-waits");
  assert.equal((await paying.whyNotAgain(waiting)).code, "nonce-waits");
  devnet.mine();
  const used = await paying.look(waiting);
  assert.deepEqual([used.state, used.problem.code], ["refused", "nonce-stale"]);
  assert.equal((await paying.sign(LINK, signer)).txid, payment.txid);
  devnet.now += DAY;
  assert.equal(await codeOf(paying.sign(LINK, signer, { again: payment.txid, anew: true })), "nonce-used");
  assert.equal((await paying.whyNotAgain(used)).code, "nonce-used");
  devnet.now += 1;
  assert.equal(await codeOf(paying.sign(LINK, signer, { again: payment.txid })), "nonce-ask");
  assert.deepEqual([await paying.whyNotAgain(used), store.kept.get(LINK.id).txid], [null, payment.txid]);
  const anew = await paying.sign(LINK, signer, { again: payment.txid, anew: true });
  assert.deepEqual([anew.transfer.nonce, anew.earlier.map(({ txid }) => txid)], ["1", [payment.txid]]);
  assert.equal((await paying.follow(anew)).state, "pending");
});

for (const [state, more] of [["pending", 0], ["confirming", 1], ["confirmed", 8]]) {
  test(`a payment that was ${state} stays so when the node has deleted the block in which it may be`, async () => {
    const { devnet, paying } = opened();
    let payment = await paying.follow(await paying.sign(LINK, signer));
    devnet.mine();
    devnet.height += more;
    if (state !== "pending") payment = await paying.follow(payment);
    assert.equal(payment.state, state);
    devnet.now += 8 * DAY;
    devnet.prune();
    const left = await paying.follow(payment);
    assert.deepEqual([left.state, left.confirmations, left.blockHeight], [state, payment.confirmations, payment.blockHeight]);
    assert.equal(left.problem.code, "pruned");
    assert.match(left.problem.sentence, new RegExp(`only blocks from height ${devnet.status.pruneHeight} on`));
    await paying.settle(sender);
    assert.equal((await paying.of(sender))[0].state, state);
  });
}

test("an order of which the node has only the later blocks can be paid, after a warning that names the first", async () => {
  const { devnet, paying } = opened();
  devnet.height = 5;
  devnet.prune();
  for (const intent of [LINK, { ...sent("form"), reference: "order-2" }]) {
    const { warnings, blocked } = await paying.review(intent, sender);
    assert.deepEqual([warnings.map(({ code }) => code), blocked], [["pruned"], null]);
    assert.match(warnings[0].message, /only blocks from height 6 on\./);
  }
  assert.equal((await paying.follow(await paying.sign(LINK, signer))).state, "pending");
  const { warnings, blocked } = await paying.review({ ...LINK, id: "another device" }, sender);
  assert.deepEqual([warnings, blocked.code], [[], "already-paid"], "it knows the newer ones");
});

test("a payment whose nonce another has taken was not paid, if the node has all blocks since it was signed", async () => {
  const { devnet, paying, payment } = await overtaken();
  devnet.prune();
  devnet.mine();
  assert.equal((await paying.look(payment)).problem.code, "pruned");
  // On this network a block may be ten years older than its transfers.
  const later = { ...payment, signedAt: payment.signedAt + 1_000 * Number(NETWORKS.devnet.rules.transactionFutureSeconds) + DAY };
  assert.equal((await paying.look(later)).problem.code, "nonce-stale");
});

/** A refused payment, while another one waits under its nonce. */
async function besides() {
  const all = opened();
  const { devnet, paying } = all;
  devnet.fees.suggestedFee = "30000";
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const first = await paying.follow(await paying.sign(LINK, signer));
  assert.equal(first.problem.code, "rejected");
  devnet.between = () => null;
  devnet.fees.suggestedFee = "10000";
  const second = await paying.follow(await paying.sign(sent("other"), signer));
  assert.deepEqual([second.state, second.transfer.nonce], ["pending", first.transfer.nonce]);
  return { ...all, first, second };
}

test("a payment is not signed again while another one waits under its nonce", async () => {
  const { devnet, paying, first, second } = await besides();
  const again = { ...LINK, fee: 50_000n };
  assert.equal(await codeOf(paying.sign(again, signer, { again: first.txid })), "nonce-waits");
  assert.deepEqual([...devnet.pool.keys()], [second.txid]);
});

test("nor is what was refused handed in again then, although its fee would replace the other", async () => {
  const { devnet, paying, first, second } = await besides();
  assert.equal((await paying.follow(first)).problem.code, "nonce-stale");
  await paying.look(first);
  await paying.settle(sender);
  assert.deepEqual([...devnet.pool.keys()], [second.txid]);
});

test("what was signed again is paid once, by whichever of its transfers a block takes", async () => {
  const { devnet, paying, store } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const first = await paying.follow(await paying.sign(LINK, signer));
  devnet.now += 1;
  const second = await paying.sign({ ...LINK, fee: 20_000n }, signer, { again: first.txid });
  assert.deepEqual([second.transfer.nonce, second.earlier], ["0", [{ txid: first.txid, transfer: first.transfer }]]);
  assert.equal((await paying.follow(second)).state, "refused");
  devnet.between = () => null;
  devnet.pool.set(first.txid, first.transfer);
  devnet.mine();
  await paying.settle(sender);
  const paid = store.kept.get(LINK.id);
  assert.deepEqual([paid.state, paid.txid, paid.earlier[0].txid], ["confirming", first.txid, second.txid]);
  assert.equal((await paying.sign(LINK, signer, { again: first.txid })).txid, first.txid);
  devnet.mine(2);
  assert.equal((await paying.follow(await paying.sign(LINK, signer))).state, "confirmed");
});

test("what was signed first is sent if the node takes that instead", async () => {
  const { devnet, paying } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const first = await paying.follow(await paying.sign({ ...LINK, fee: 20_000n }, signer));
  devnet.now += 1;
  const second = await paying.sign({ ...LINK, fee: 21_000n }, signer, { again: first.txid });
  devnet.between = () => null;
  devnet.pool.set(first.txid, first.transfer);
  const followed = await paying.follow(second);
  assert.deepEqual([followed.state, followed.txid, devnet.pool.size], ["pending", first.txid, 1]);
});

test("following what was signed again meanwhile follows the new one", async () => {
  const { devnet, paying, store } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const first = await paying.follow(await paying.sign(LINK, signer));
  devnet.now += 1;
  const second = await paying.sign(LINK, signer, { again: first.txid });
  assert.equal((await paying.follow(first)).txid, second.txid);
  assert.equal(store.kept.get(LINK.id).txid, second.txid);
});

test("two clicks on signing again sign once", async () => {
  const { devnet, paying, tab } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const { txid } = await paying.follow(await paying.sign(LINK, signer));
  devnet.now += 1;
  const clicks = [paying, tab()].map((each) => each.sign(LINK, signer, { again: txid }));
  const [one, other] = await Promise.all(clicks);
  assert.deepEqual([one.txid === other.txid, one.txid === txid, other.earlier.length], [true, false, 1]);
});

test("a payment from here keeps its nonce, whatever the node says is the next one", async () => {
  const { devnet, paying } = opened();
  const first = await paying.follow(await paying.sign(sent("a"), signer));
  const lie = { balance: "900000000", pendingBalance: "900000000", nonce: "0", pendingNonce: "0" };
  devnet.between = (path) =>
    path.startsWith("/rpc/balance/") ? new Response(JSON.stringify({ account: { ...about(path), ...lie } })) : null;
  assert.deepEqual([first.transfer.nonce, (await paying.sign(sent("b"), signer)).transfer.nonce], ["0", "1"]);
});

test("the nonce that was shown is the one that is signed", async () => {
  const { paying, store } = opened();
  const { nonce } = await paying.review(LINK, sender);
  await paying.sign(sent("a"), signer);
  assert.equal(await codeOf(paying.sign({ ...LINK, nonce }, signer)), "review-changed");
  assert.equal(store.kept.has(LINK.id), false);
  assert.equal((await paying.sign({ ...LINK, nonce: 1n }, signer)).transfer.nonce, "1");
});

test("what was refused and may still be paid is told when the same is typed again", async () => {
  const { devnet, paying } = opened();
  const warned = async (intent) => (await paying.review(intent, sender)).warnings.map(({ code }) => code);
  await paying.follow(await paying.sign(sent("send a"), signer));
  assert.deepEqual(await warned(sent("send b")), ["already-signed"], "a reload may have hidden it");
  devnet.mine();
  await paying.settle(sender);
  assert.deepEqual(await warned(sent("send b")), [], "two gifts are two gifts");
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  await paying.follow(await paying.sign(sent("send c", 2n * COIN), signer));
  assert.deepEqual(await warned(sent("send d", 2n * COIN)), ["already-signed"]);
  assert.deepEqual(await warned(sent("send d", 3n * COIN)), []);
});

test("an order that was signed as another intent is not signed from its link", async () => {
  const { devnet, paying } = opened();
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"full"}', { status: 400 }) : null);
  const typed = { ...ORDER, id: "send a", fromLink: false };
  await paying.follow(await paying.sign(typed, signer));
  assert.equal(await codeOf(paying.sign(LINK, signer)), "already-signed");
  const { blocked, warnings } = await paying.review({ ...typed, id: "send b" }, sender);
  assert.deepEqual([blocked, warnings.map(({ code }) => code)], [null, ["already-signed"]]);
  devnet.now += DAY + 1;
  assert.equal((await paying.review(LINK, sender)).blocked, null);
});

test("any other refusal is told with its reason, and can be tried again", async () => {
  const { devnet, paying } = opened();
  const payment = await paying.sign(LINK, signer);
  devnet.balances.set(sender, 0n);
  const refused = await paying.follow(payment);
  assert.deepEqual([refused.state, refused.problem.code], ["refused", "rejected"]);
  assert.match(refused.problem.sentence, /the balance is short/);
  devnet.balances.set(sender, 100n * COIN);
  assert.equal((await paying.follow(refused)).state, "pending");
});

test("a transfer that has waited for a day is void", async () => {
  const { devnet, paying } = opened();
  const payment = await paying.sign(LINK, signer);
  devnet.now += 86_400_001;
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"expired"}', { status: 400 }) : null);
  assert.equal((await paying.follow(payment)).problem.code, "expired");
  devnet.between = () => null;
  const anew = await paying.sign(LINK, signer, { again: payment.txid });
  assert.deepEqual([anew.transfer.nonce, anew.transfer.timestamp], ["0", String(devnet.now)]);
});

/** The chain forgets its blocks, and what was in them is dropped. */
function reorganise(devnet) {
  devnet.chain.clear();
  devnet.nonces.clear();
  devnet.balances.set(sender, 100n * COIN);
}

test("a reorganisation takes a confirmed payment back: it is handed in again, and that is told", async () => {
  const { devnet, paying, tab } = opened();
  const payment = await paying.sign(LINK, signer);
  await paying.follow(payment);
  devnet.mine(2);
  const paid = await paying.follow(payment);
  assert.deepEqual([paid.state, hasFallen(paid)], ["confirmed", false]);
  reorganise(devnet);
  await tab().settle(sender);
  assert.equal(devnet.pool.size, 1, "nobody looked at what was confirmed");
  const [fallen] = await paying.of(sender);
  assert.deepEqual([fallen.state, fallen.txid, hasFallen(fallen)], ["pending", paid.txid, true]);
  assert.ok(paid.blockTime, "a block had it");
  assert.equal(fallen.blockTime, undefined, "no block has it now");
  devnet.mine(2);
  const again = await paying.follow(fallen);
  assert.deepEqual([again.state, hasFallen(again)], ["confirmed", false]);
});

test("a payment that was taken back and is void is refused, and can be signed anew under its nonce", async () => {
  const { devnet, paying } = opened();
  const payment = await paying.sign(LINK, signer);
  await paying.follow(payment);
  devnet.mine(2);
  await paying.follow(payment);
  reorganise(devnet);
  devnet.now += 86_400_001;
  devnet.between = (path) => (path === "/rpc/broadcast" ? new Response('{"error":"expired"}', { status: 400 }) : null);
  const [paid] = await paying.of(sender);
  const refused = await paying.follow(paid);
  assert.deepEqual([refused.state, refused.problem.code, hasFallen(refused)], ["refused", "expired", true]);
  devnet.between = () => null;
  assert.equal((await paying.sign(LINK, signer, { again: refused.txid })).transfer.nonce, "0");
});

test("what is confirmed is asked for once for each tip, and what is deep no more", async () => {
  const { devnet, paying } = opened();
  await paying.follow(await paying.sign(LINK, signer));
  devnet.mine(2);
  const looks = async (tip) => {
    devnet.asked.length = 0;
    await paying.settle(sender, null, tip);
    return devnet.asked.length;
  };
  assert.deepEqual([await looks("aa"), await looks("aa"), await looks("bb"), await looks(null)], [1, 0, 1, 1]);
  devnet.mine(100);
  assert.deepEqual([await looks("cc"), await looks("dd")], [1, 0]);
});
