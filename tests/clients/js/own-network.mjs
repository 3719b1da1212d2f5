// Beside the installed client and hash-wasm: the client on a network of somebody's own, whose nodes are in the test.
// Arguments: the texts of the network and of another one, the URLs of their nodes, the shop, the buyer's seed, the time.
// Each request is a line on standard output, and each answer one on standard input; the last line is what was found.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";

import * as pay from "svc-pay";
import * as light from "svc-pay/light";

const [text, otherText, url, elsewhere, shop, seed, millis] = process.argv.slice(2);
const now = Number(millis);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function fetch(target, { method = "GET", body = null }) {
  console.log(JSON.stringify({ method, url: target, body }));
  const { value } = await lines.next();
  const { status, body: told } = JSON.parse(value);
  return new Response(told, { status });
}

class Journal {
  entries = [];
  async read(after) {
    return this.entries.slice(after);
  }
  async append(number, entry) {
    if (number !== this.entries.length + 1) return false;
    this.entries.push(entry);
    return true;
  }
}

const network = await pay.parseNetwork(text);
const node = new pay.Client(url, { network, fetch });
const order = { reference: "order-1", recipient: shop, amount: 5_000_000n, confirmations: 3 };
const found = {};

const request = await node.paymentRequest({ recipient: shop, amount: 500_000_000n, reference: "order-2", confirmations: 2 });
found.uri = request.paymentUri;
assert.equal(JSON.parse(JSON.stringify(request.order)).recipient, shop);
const paid = await node.payment(order);
found.payment = [paid.state, paid.confirmations];
found.references = (await node.payments(shop)).map(({ reference }) => reference);
found.balance = (await node.account(shop)).balance;

// Without trust, by the network of the client or by the one that is given.
const chain = await light.verifyChain(node, network, { now });
found.chain = [chain.tip.height, chain.tip.time, chain.evaluations];
const account = await light.provenBalance(node, shop, { now, minimumWork: chain.work });
found.account = [account.exists, account.balance];
const proven = await light.provenPayment(node, order, { now });
found.proven = [proven.blockHeight, proven.confirmations];
const stranger = new pay.Client(url, { fetch });
assert.equal((await light.provenBalance(stranger, shop, { now, network })).balance, account.balance);
await assert.rejects(light.provenBalance(stranger, shop, { now }), /give the network, too/);
await assert.rejects(light.provenPayment(stranger, order, { now }), /give the network, too/);
const ask = async (path) => (await fetch(`${url}${path}`, {})).text();
const accountAnswer = await ask(`/rpc/proof/account/${shop}`);
const chainAnswer = await ask(`/rpc/proof/chain?tip=${chain.tip.hash}`);
assert.equal((await light.checkChainProof(chainAnswer, network, { now })).work, chain.work);
const checked = await light.checkAccountProof(accountAnswer, shop, chainAnswer, { network, now });
assert.equal(checked.balance, account.balance);
const paymentAnswer = await node.proof(order);
const { tip } = chain;
assert.equal((await light.checkPaymentProof(paymentAnswer, order, { network, now, tip: tip.hash })).txid, proven.txid);
await assert.rejects(light.checkPaymentProof(paymentAnswer, order, { now }), /give the network, too/);

// Its changes are in no hash, and decide who may have made the blocks; so do its other rules.
const unchanged = await pay.parseNetwork(JSON.stringify({ ...JSON.parse(text), changes: [] }));
await assert.rejects(light.checkChainProof(chainAnswer, unchanged, { now }), {
  name: "InvalidProof",
  message: /the producer of the block at height 11 /,
});
const strict = { ...network, rules: { ...network.rules, transactionPastSeconds: 0n, transactionFutureSeconds: 0n } };
await assert.rejects(light.checkPaymentProof(paymentAnswer, order, { network: strict, now }), /timestamp must be from/);
const dear = { ...network, rules: { ...network.rules, minimumFee: 20_001n } };
await assert.rejects(light.checkPaymentProof(paymentAnswer, order, { network: dear, now }), /fee must be at least 20001/);

// Another network.
const other = new pay.Client(elsewhere, { network, fetch });
const refused = await light.provenPayment([other, node], order, { now });
assert.equal(refused.txid, proven.txid);
found.elsewhere = refused.refused.map(({ error }) => `${error.name}: ${error.message}`);
const unasked = new pay.Client(elsewhere, { fetch });
await assert.rejects(light.verifyChain(unasked, network, { now }), /calls itself FESTIVAL: its genesis differs/);

// A payout, whose transfers live for the hour of this network.
const key = await pay.Key.fromSeed(new Uint8Array(Buffer.from(seed, "hex")));
const journal = new Journal();
const payouts = new pay.Payouts(node, journal, key, network, { now: () => now });
const wanted = { recipient: shop, amount: 100_000_000n };
const payout = await payouts.pay("refund-1", wanted);
found.payout = [payout.state, payout.problem, payout.txid];
assert.equal((await payouts.pay("refund-1", wanted)).txid, payout.txid);
const [later] = await new pay.Payouts(node, journal, key, network, { now: () => now + 3_600_000 }).advance();
found.signed = later.transfers.length;

// A chain that has nothing but its genesis, whose accounts are in the rules.
const open = new pay.Client(elsewhere, { network: await pay.parseNetwork(otherText), fetch });
const buyer = await light.provenBalance(open, await key.address(open.network), { now });
found.genesis = [buyer.tip.height, buyer.balance];
assert.equal((await light.provenBalance(open, shop, { now })).exists, false);

console.log(JSON.stringify(found));
process.exit(0);
