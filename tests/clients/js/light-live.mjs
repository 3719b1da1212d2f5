// Beside the installed client: what it proves of an honest devnet, and of one with a liar in between.
// Arguments: the URL of the node, and that of the same node behind the liar.

import assert from "node:assert/strict";

import { Client, DEVNET, InvalidProof, Key } from "svc-pay";
import { checkAccountProof, checkPaymentProof, provenBalance, provenPayment, verifyChain } from "svc-pay/light";

const [url, forged, recipient, amount, reference] = process.argv.slice(2);
const [node, liar] = [new Client(url), new Client(forged)];
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
const query = `recipient=${recipient}&amountBaseUnits=${amount}&chain=1`;
const proof = await get(`/rpc/commerce/payment/${reference}/proof?${query}`);
assert.equal((await checkPaymentProof(proof, order)).txid, payment.txid);

// The liar alone is not believed, and one honest node beside it is enough
await assert.rejects(verifyChain(liar, DEVNET), (error) => error instanceof InvalidProof);
await assert.rejects(provenBalance(liar, recipient), (error) => error instanceof InvalidProof);
await assert.rejects(provenPayment(liar, order), (error) => error instanceof InvalidProof);
const both = await provenBalance([liar, node], recipient);
assert.equal(both.node, node);
assert.deepEqual(both.refused.map(({ node: each, error }) => [each, error instanceof InvalidProof]), [[liar, true]]);
console.log("proven", account.balance);
