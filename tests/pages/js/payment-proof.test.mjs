// The page of payment proofs says of the published proofs what they show, and of changed ones that they prove nothing.

import assert from "node:assert/strict";
import { test } from "node:test";

import { argon2id } from "../../../svcd/pages/static/argon2.mjs";
import { checkWork, evaluating } from "../../../svcd/pages/static/chain-proof.mjs";
import { InvalidProof } from "../../../svcd/pages/static/errors.mjs";
import { networkOfRules } from "../../../svcd/pages/static/network-rules.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { provenTransfer } from "../../../svcd/pages/static/payment-proof.mjs";
import { provenPayment } from "../../../svcd/pages/static/proof-file.mjs";
import { vectors } from "./vectors.mjs";

const { paymentProofs } = vectors("svc_protocol");
const { devnet } = NETWORKS;
const evaluate = evaluating(argon2id);

for (const { why, proof, confirmations, rule, recent, samples } of paymentProofs)
  test(`payment: ${why}`, async () => {
    const found = () => provenTransfer(proof, devnet, { recent, samples });
    if (rule !== undefined) return assert.rejects(found(), InvalidProof);
    const { transfer, head, headers } = await found();
    await checkWork(headers, devnet, { evaluate });
    const { recipient, amount, paymentReference = null } = proof.transaction.payload;
    assert.equal(transfer.confirmations, BigInt(confirmations));
    assert.deepEqual([transfer.recipient, transfer.amount, transfer.reference], [recipient, BigInt(amount), paymentReference]);
    assert.deepEqual([transfer.sender, transfer.height], [proof.transaction.senderAddress, BigInt(proof.height)]);
    assert.equal(head.hash, proof.chain.tip);
  });

const [whole] = paymentProofs;
const changes = [
  ["another network", (proof) => (proof.chainId = "SVC-MAINNET"), /must be for SVC-DEVNET/],
  ["an unknown member", (proof) => (proof.note = 1), /unknown member/],
  ["a fee below the least", (proof) => (proof.transaction.fee = "9999"), /fee must be/],
  ["a timestamp of another time", (proof) => (proof.transaction.timestamp = "1"), /timestamp must be/],
  ["no payload", (proof) => (proof.transaction.payload = null), /payload must be/],
  ["a recipient of another network", (proof) => (proof.transaction.payload.recipient = "svc1q"), /not an address/],
  ["a reference with a line break", (proof) => (proof.transaction.payload.paymentReference = "a\nb"), /characters/],
  ["a reference that is an object", (proof) => (proof.transaction.payload.paymentReference = {}), /characters/],
  ["another sender", (proof) => (proof.transaction.senderAddress = proof.transaction.payload.recipient), /senderAddress/],
  ["another nonce", (proof) => (proof.transaction.nonce = "77"), /not its sender's/],
  ["a key that is none", (proof) => (proof.transaction.senderPublicKey = "ff".repeat(32)), /senderAddress/],
  ["a longer path", (proof) => proof.path.push("00".repeat(32)), /path does not lead/],
  ["a path too long", (proof) => (proof.path = Array(65).fill("00".repeat(32))), /at most 64/],
];
for (const [what, change, sentence] of changes)
  test(`refused: ${what}`, async () => {
    const proof = structuredClone(whole.proof);
    change(proof);
    const found = provenTransfer(proof, devnet, { recent: whole.recent, samples: whole.samples });
    await assert.rejects(found, (problem) => problem instanceof InvalidProof && sentence.test(problem.message));
  });

test("a file is an answer of a node", async () => {
  const tools = { evaluate, progress: () => {}, clock: Date.now };
  const texts = ["", "{}", "[]", '{"ok":true}', JSON.stringify({ ok: false, error: "no" })];
  texts.push(JSON.stringify({ ok: true, proof: whole.proof, next: "7" }), JSON.stringify(whole.proof));
  for (const text of texts) await assert.rejects(provenPayment(text, tools), InvalidProof, text);
});

test("a proof of a built-in network needs no genesis hash", async () => {
  const text = JSON.stringify(vectors("payment_proof").answer);
  const tools = { evaluate, progress: () => {}, clock: Date.now };
  const { chainId, ownGenesis, txid, producers } = await provenPayment(text, tools);
  assert.equal(producers, 0);
  assert.deepEqual([chainId, ownGenesis, txid], ["SVC-DEVNET", null, vectors("payment_proof").proven.txid]);
});

const festival = vectors("own_network");
const answer = JSON.stringify(festival.paymentProof);
const networkOf = (rules = {}) => networkOfRules({ ...festival.network.rules, ...rules }, festival.network.changes);
const now = Number(festival.network.rules.genesisTime) + 86_400_000;
const toolsWith = (own) => ({ evaluate, progress: () => {}, clock: () => now, own });

test("a payment on the network of the node, by its rules", async () => {
  const payment = await provenPayment(answer, toolsWith(await networkOf()));
  assert.deepEqual([payment.chainId, payment.ownGenesis], ["FESTIVAL", festival.network.genesisHash]);
  assert.deepEqual([payment.reference, payment.amount, payment.height], ["order-1", 5_000_000n, 3n]);
  assert.deepEqual([payment.confirmations, payment.head.hash], [10n, festival.paymentProof.proof.chain.tip]);
  // The list that follows the tip at height 12, not that of three producers from the first block on.
  assert.equal(payment.producers, 2);
});

test("a payment on another network than that of the node", async () => {
  const refused = (own, sentence, text = answer) =>
    assert.rejects(provenPayment(text, toolsWith(own)), (problem) => problem instanceof InvalidProof && sentence.test(problem.message));
  await refused(undefined, /unknown network/);
  await refused(await networkOf({ chainId: "OTHER" }), /unknown network/);
  await refused(await networkOf({ slotSeconds: 6 }), /calls itself FESTIVAL: its genesis differs/);
  // The right name and genesis hash, and the blocks of another chain, or by others than its producers
  const { proof, ...rest } = festival.paymentProof;
  const other = await networkOf({ minimumFee: "20001" });
  const forged = JSON.stringify({ ...rest, proof: { ...proof, genesisHash: other.genesisHash } });
  await refused(other, /the header at height 1 does not build on the block before it/, forged);
  const unchanged = await networkOfRules(festival.network.rules, []);
  await refused(unchanged, /the producer of the block at height 11 /);
});

test("fees and times of transfers are those of the network", async () => {
  const own = await networkOf();
  const refused = (rules, sentence) =>
    assert.rejects(provenPayment(answer, toolsWith({ ...own, rules: { ...own.rules, ...rules } })), sentence);
  const { fee } = festival.paymentProof.proof.transaction;
  await refused({ minimumFee: BigInt(fee) + 1n }, /fee must be at least/);
  await refused({ transactionPastSeconds: 0n, transactionFutureSeconds: 0n }, /timestamp must be from/);
});
