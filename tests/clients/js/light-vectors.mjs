// Beside the installed client and hash-wasm: what the client says of the published proofs (argument: their file).
// The vectors ask for fewer draws than a node's proofs, so these checks are called inside the package.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { argon2id } from "hash-wasm";
import { DEVNET, InvalidProof, MAINNET, NETWORKS } from "svc-pay";
import { checkChainProof } from "svc-pay/light";

import { checkAccount, parseAccountProof } from "./node_modules/svc-pay/src/light/account-proof.mjs";
import { checkChain, checkWork, evaluating, HEADER_FIELDS, parseChainProof } from "./node_modules/svc-pay/src/light/chain-proof.mjs";
import { blockWork, effectiveTarget, issuedAfter, nextTarget } from "./node_modules/svc-pay/src/light/chain-rules.mjs";
import { paymentIn } from "./node_modules/svc-pay/src/light.js";
import { strictJson } from "./node_modules/svc-pay/src/light/strict-json.mjs";

const vectors = JSON.parse(readFileSync(process.env.SVC_VECTORS, "utf8"));
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const evaluate = evaluating(argon2id);
const checked = new Set();

async function proven({ proof, minimumWork, recent, samples }) {
  const demands = { minimumWork: BigInt(`0x${minimumWork}`), recent, samples };
  const read = await checkChain(parseChainProof(proof, DEVNET), DEVNET, demands);
  await checkWork(read.headers, DEVNET, { evaluate, checked });
  return read;
}

test("the rules are those of the vectors", () => {
  for (const { name, rules: told } of NETWORKS) {
    const { rules, rulesHash, genesisBlock } = vectors.networks[name];
    assert.equal(told.rulesHash, rulesHash);
    assert.equal(told.genesisStateRoot, genesisBlock.stateRoot);
    for (const name of ["initialTarget", "maxTarget", "minTarget"])
      assert.equal(told[name], BigInt(`0x${rules[name]}`), name);
    for (const name of ["genesisTime", "slotSeconds", "slotsPerBlock", "halfLifeSlots", "gapCapSlots", "initialReward"])
      assert.equal(told[name], BigInt(rules[name]), name);
    for (const name of ["halvingBlocks", "transactionPastSeconds", "transactionFutureSeconds"])
      assert.equal(told[name], BigInt(rules[name]), name);
    assert.equal(told.memoryKiB, rules.memoryKiB);
    assert.equal(told.maxBlockTransactions, rules.maxBlockTransactions);
    assert.deepEqual(told.multipliers, rules.multiplierSchedule.map(([, points]) => points));
    assert.equal(told.allocated, rules.allocations.reduce((sum, [, units]) => sum + BigInt(units), 0n));
    assert.deepEqual(rules.producers, []);
    assert.equal(issuedAfter(told, 0n), told.allocated);
  }
});

test("a reward that never halves ends before more than 2^53 - 1 base units would exist", () => {
  const coins = 10n ** 8n;
  const endless = { ...DEVNET.rules, halvingBlocks: 0n, allocated: (1n << 53n) - 1n - 60n * coins };
  const issued = [0n, 1n, 2n, 3n, 4n, 1n << 52n].map((height) => issuedAfter(endless, height) - endless.allocated);
  assert.deepEqual(issued, [0n, 20n, 40n, 60n, 60n, 60n].map((each) => each * coins));
  const fuller = { ...endless, allocated: endless.allocated + 1n };
  assert.equal(issuedAfter(fuller, 3n) - fuller.allocated, 40n * coins);
  assert.equal(issuedAfter({ ...endless, initialReward: 0n }, 3n), endless.allocated);
});

test("targets have no other value beyond the limits", () => {
  const { rules: mainnet } = MAINNET;
  assert.equal(nextTarget(mainnet, 2n, 10n ** 12n), mainnet.maxTarget);
  assert.equal(nextTarget(mainnet, 10n ** 12n, 0n), mainnet.minTarget);
  assert.equal(effectiveTarget((1n << 256n) - 1n, 11_000), (1n << 256n) - 1n);
  assert.equal(blockWork(mainnet.initialTarget), 1n << 14n);
});

for (const vector of vectors.chainProofs) {
  test(`chain: ${vector.why}`, async () => {
    if (vector.rule !== undefined) return assert.rejects(proven(vector), InvalidProof);
    const { head } = await proven(vector);
    const { height, slot, cumulativeWork } = vector.proves;
    assert.deepEqual([head.height, head.slot], [BigInt(height), BigInt(slot)]);
    assert.equal(head.work, BigInt(`0x${cumulativeWork}`));
    assert.equal(head.hash, vector.proof.tip);
  });
}

test("a proof with more than eight headers that nothing asks for is refused before any work is checked", async () => {
  const { blocks } = vectors.devnetChain;
  const headers = blocks.map(({ block }) => Object.fromEntries(HEADER_FIELDS.map((name) => [name, block[name]])));
  const { genesisHash, chainId } = DEVNET;
  const proof = { chainId, genesisHash, tip: blocks.at(-1).hash, headers, nodes: [] };
  const read = (recent) => checkChain(parseChainProof(proof, DEVNET), DEVNET, { recent, samples: 0 });
  assert.equal((await read(headers.length - 8)).headers.length, headers.length);
  await assert.rejects(read(headers.length - 9), /^InvalidProof: 9 headers are there that nothing asks for/);
});

// A network with a list of producers (section 8a), whose blocks are in the vectors.
const { rules: closedRules, rulesHash, genesisHash, story } = vectors.closedNetwork;
const closed = { name: "closed", networkId: 1001, chainId: "SVC-CLOSED", prefix: "fest", genesisHash };
const accepted = [...story.keys()].filter((at) => story[at].accepted);
const [first, second, third, fourth] = closedRules.producers;
const upTo = (at) => [...accepted.filter((step) => step < at), at];

async function closedChain(steps, changes = []) {
  const allocated = closedRules.allocations.reduce((sum, [, units]) => sum + BigInt(units), 0n);
  const { memoryKiB, producers } = closedRules;
  const network = { ...closed, rules: { ...DEVNET.rules, rulesHash, memoryKiB, allocated, producers, changes } };
  const headers = steps.map((at) => Object.fromEntries(HEADER_FIELDS.map((name) => [name, story[at].block[name]])));
  const proof = { chainId: closed.chainId, genesisHash, tip: story[steps.at(-1)].hash, headers, nodes: [] };
  const read = await checkChain(parseChainProof(proof, network), network);
  await checkWork(read.headers, network, { evaluate });
  return read.head.height;
}

test("the blocks of listed producers that take turns are a chain", async () => {
  assert.equal(await closedChain(accepted), 6n);
});

for (const [at, { why }] of story.entries())
  if (!accepted.includes(at))
    test(`producers: ${why}`, () => assert.rejects(closedChain(upTo(at)), /the producer of the block at height/));

test("a change of the list is in force from its height on", async () => {
  for (const [at, height, producers] of [
    [1, 2n, [first]],
    [7, 5n, [first, second, third]],
  ]) {
    assert.equal(await closedChain(upTo(at), [{ height, producers }]), height);
    await assert.rejects(closedChain(upTo(at), [{ height: height + 1n, producers }]), /the producer of the block/);
  }
  assert.equal(await closedChain(accepted, [{ height: 7n, producers: [first, second] }]), 6n);
  await assert.rejects(closedChain(accepted, [{ height: 6n, producers: [first, second] }]), /not one of the 2 that may/);
  const twice = [
    { height: 2n, producers: [second, third] },
    { height: 3n, producers: [third, fourth] },
  ];
  assert.equal(await closedChain(accepted.slice(0, 3), twice), 3n);
  await assert.rejects(closedChain(accepted.slice(0, 3), [twice[0], { height: 3n, producers: [fourth] }]), /not one of/);
});

for (const { why, network: name, proof, block, account, rule } of vectors.accountProofs) {
  const network = NETWORKS.find((each) => each.name === name);
  const shown = { ...block, height: BigInt(block.height) };
  const found = async (told = proof) => checkAccount(parseAccountProof(told, network), proof.address, network, shown);
  test(`account: ${why}`, async () => {
    if (rule !== undefined) return assert.rejects(found(), InvalidProof);
    await assert.rejects(found({ ...proof, height: `${shown.height + 1n}` }), /says that block .* is at height/);
    const told = await found();
    if (account === null) return assert.equal(told, null);
    assert.deepEqual([told.balance, told.nonce], [BigInt(account.balance), BigInt(account.nonce)]);
    assert.equal(told.heldSince, account.heldSince === null ? null : BigInt(account.heldSince));
  });
}

for (const { why, proof, confirmations, rule, recent, samples } of vectors.paymentProofs) {
  const { recipient, amount, paymentReference: reference = null } = proof.transaction.payload;
  const order = { recipient, amount, reference, confirmations: 1, sinceHeight: null };
  const found = (more = {}) => paymentIn(proof, { ...order, ...more }, DEVNET, { recent, samples });
  test(`payment: ${why}`, async () => {
    if (rule !== undefined) return assert.rejects(found(), InvalidProof);
    assert.equal((await found()).payment.confirmations, confirmations);
    await assert.rejects(found({ amount: "1" }), /amount of the order/);
    await assert.rejects(found({ confirmations: confirmations + 1 }), /order requires/);
    await assert.rejects(found({ sinceHeight: `${BigInt(proof.height) + 1n}` }), /do not count/);
  });
}

test("JSON has one form", () => {
  assert.deepEqual(strictJson('{"a":[1,{"a":"b"}],"b":{"a":-1}}', 100), { a: [1, { a: "b" }], b: { a: -1 } });
  for (const text of ['{"a":1,"a":1}', '{"a":1,"\\u0061":1}', "[1.0]", "[1e3]", "[-0]", "[", '{"b":{"c":1,"c":2}}'])
    assert.throws(() => strictJson(text, 100), InvalidProof, text);
  assert.throws(() => strictJson("[1,2,3]", 5), /more than 5/);
});

test("a chain ahead of the clock, and a chain with less work than before, prove nothing", async () => {
  const { proof, proves } = vectors.chainProofs.find(({ recent }) => recent === 100);
  const answer = JSON.stringify({ ok: true, proof });
  const { tip, work, evaluations, bytes: size } = await checkChainProof(answer, DEVNET);
  assert.deepEqual([tip.height, work, size], [proves.height, BigInt(`0x${proves.cumulativeWork}`), answer.length]);
  assert.equal(evaluations, proof.headers.length);
  await assert.rejects(checkChainProof(answer, DEVNET, { now: Number(tip.time) - 300_001 }), /in the future/);
  await assert.rejects(checkChainProof(answer, DEVNET, { minimumWork: work + 1n }), /less than the required/);
  await assert.rejects(checkChainProof(answer, DEVNET, { argon2id: async () => bytes("ff".repeat(32)) }), /its target/);
});

test("a signal ends the check of a proof between two attempts of work", async () => {
  const { proof } = vectors.chainProofs.find(({ recent }) => recent === 100);
  const stop = new AbortController();
  let attempts = 0;
  const stopping = async (given) => {
    if (++attempts === 3) setTimeout(() => stop.abort(new Error("no longer")));
    await new Promise((resolve) => setTimeout(resolve, 20));
    return argon2id(given);
  };
  const options = { argon2id: stopping, signal: stop.signal };
  await assert.rejects(checkChainProof(JSON.stringify({ ok: true, proof }), DEVNET, options), /no longer/);
  assert.ok(attempts < 10, `${attempts} attempts`);
});
