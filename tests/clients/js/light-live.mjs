// Beside the installed client: what it proves of an honest devnet, and of one with a liar in between.
// Arguments: the URL of the node, that of the same node behind the liar, and that of a devnet with less work, on which
// an order was paid that the node does not know.

import assert from "node:assert/strict";

import { Client, DEVNET, InvalidProof, Key } from "svc-pay";
import { checkAccountProof, checkPaymentProof, provenBalance, provenPayment, verifyChain } from "svc-pay/light";

const [url, forged, lighterUrl, recipient, amount, reference, lighterReference] = process.argv.slice(2);
const [node, liar, lighter] = [new Client(url), new Client(forged), new Client(lighterUrl)];
const order = { recipient, amount, reference, confirmations: 2 };

const seen = [];
const chain = await verifyChain(node, DEVNET, { progress: (done, total) => seen.push([done, total]) });
assert.equal(chain.tip.hash, await node.blockHash(chain.tip.height));
assert.deepEqual(seen.at(-1), [chain.evaluations, chain.evaluations]);
assert.ok(chain.work > 0n && chain.bytes > 0);

const account = await provenBalance(node, recipient, { minimumWork: chain.work });
assert.deepEqual([account.exists, account.balance], [true, (await node.account(recipient)).balance]);
const unused = await Key.fromSeed(crypto.getRandomValues(new Uint8Array(32)));
const nobody = await provenBalance(node, await unused.address(DEVNET));
assert.deepEqual([nobody.exists, nobody.balance], [false, "0"]);

const payment = await provenPayment(node, order);
assert.equal(payment.confirmations, (await node.payment(order)).confirmations);
await assert.rejects(provenPayment(node, { ...order, reference: "another" }), { status: 404 });

// The texts of answers, without a node
const get = async (path) => (await fetch(url + path)).text();
const answers = [await get(`/rpc/proof/account/${recipient}`), await get("/rpc/proof/chain")];
assert.equal((await checkAccountProof(answers[0], recipient, answers[1])).balance, account.balance);
const proof = await node.proof(order);
assert.equal((await checkPaymentProof(proof, order)).txid, payment.txid);

// The liar alone is not believed, and one honest node beside it is enough
await assert.rejects(verifyChain(liar, DEVNET), (error) => error instanceof InvalidProof);
await assert.rejects(provenBalance(liar, recipient), (error) => error instanceof InvalidProof);
await assert.rejects(provenPayment(liar, order), (error) => error instanceof InvalidProof);
const both = await provenBalance([liar, node], recipient);
assert.equal(both.node, node);
assert.deepEqual(both.refused.map(({ node: each, error }) => [each, error instanceof InvalidProof]), [[liar, true]]);

// A node without the payment proves its chain too, so that a payment on a chain with less work does not count
const elsewhere = { recipient, amount, reference: lighterReference, confirmations: 1 };
assert.equal((await provenPayment(lighter, elsewhere)).node, lighter);
await assert.rejects(provenPayment([lighter, node], elsewhere), { status: 404 });
const heaviest = await provenPayment([lighter, node], order);
assert.deepEqual([heaviest.node, heaviest.txid], [node, payment.txid]);
assert.match(heaviest.refused[0].error.message, /another node proves one with more work/);
assert.equal((await verifyChain([lighter, node], DEVNET)).tip.hash, heaviest.tip.hash);
console.log("proven", account.balance);
