import assert from "node:assert/strict";
import { test } from "node:test";

import { checkAddress } from "../../../svcd/pages/static/address.mjs";
import { idOf } from "../../../svcd/pages/static/built-in.mjs";
import { bytesOf } from "../../../svcd/pages/static/bytes.mjs";
import { pairOf } from "../../../svcd/pages/static/ed25519.mjs";
import { InvalidProof } from "../../../svcd/pages/static/errors.mjs";
import { checkGiven, genesisIn } from "../../../svcd/pages/static/genesis.mjs";
import { parse, render, reseal, seal, unseal } from "../../../svcd/pages/static/keyfile.mjs";
import { addressOf } from "../../../svcd/pages/static/key-hash.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { Node } from "../../../svcd/pages/static/node.mjs";
import { networkOfRules } from "../../../svcd/pages/static/network-rules.mjs";
import { ownNetwork } from "../../../svcd/pages/static/own-network.mjs";
import { judge, needsBalance } from "../../../svcd/pages/static/review.mjs";
import { isUnsettled } from "../../../svcd/pages/static/signed.mjs";
import { MARGIN } from "../../../svcd/pages/static/transaction.mjs";
import { parseUri } from "../../../svcd/pages/static/uri.mjs";
import { Devnet } from "./devnet.mjs";
import { codeOf, problemOf, vectors } from "./vectors.mjs";

const SEED = bytesOf(vectors("svc_protocol").networks.devnet.keys[0].seed);
const GIVEN = "d2906e008b2228e0e85e001689dc87883078bc867ee7b07b0d26bfd42745c29a";
/** A network of which svcd/chain/params.py computes the genesis hash GIVEN. */
const RULES = {
  chainId: "FESTIVAL",
  networkId: 48213,
  addressPrefix: "fest",
  genesisTime: "1793491200000",
  slotSeconds: 5,
  slotsPerBlock: 6,
  halfLifeSlots: 720,
  gapCapSlots: 120,
  memoryKiB: 8192,
  initialTarget: "0004".padEnd(64, "0"),
  maxTarget: "001".padEnd(64, "0"),
  minTarget: "1".padEnd(41, "0").padStart(64, "0"),
  initialReward: "2000000000",
  halvingBlocks: 2_100_000,
  minimumFee: "20000",
  accountMinimum: "500000",
  holdingMinimum: "100000000000",
  multiplierSchedule: [[0, 10_000], [8_640, 10_200], [60_480, 10_400], [259_200, 10_700], [777_600, 11_000]],
  maxBlockTransactions: 2_000,
  maxBlockBytes: 1_310_720,
  transactionPastSeconds: 3_600,
  transactionFutureSeconds: 600,
  producers: ["fest1qqqqsyqcyq5rqwzqfpg9scrgwpugpzysnw4uj6y", "fest1qqypqxpq9qcrsszg2pvxq6rs0zqg3yyc5jppkdp"],
  allocations: [["fest1qqqqsyqcyq5rqwzqfpg9scrgwpugpzysnw4uj6y", "1000000000000"]],
};
/** Others of the texts among the rules. */
const OTHERS = {
  chainId: "FESTIVAL-2",
  addressPrefix: "fests",
  genesisTime: "1793491200001",
  initialTarget: "0005".padEnd(64, "0"),
  maxTarget: "002".padEnd(64, "0"),
  minTarget: "2".padEnd(41, "0").padStart(64, "0"),
  initialReward: "2000000001",
  minimumFee: "20001",
  accountMinimum: "500001",
  holdingMinimum: "100000000001",
};
const own = await ownNetwork({ rules: RULES, changes: [] });

/** A node of a network that is not built in, with these rules. */
function opened(rules = RULES, genesisHash = GIVEN) {
  const devnet = new Devnet();
  devnet.rules = rules;
  Object.assign(devnet.status, { chainId: "FESTIVAL", networkId: 48213, genesisHash });
  const { minimumFee, accountMinimum } = RULES;
  Object.assign(devnet.consensus, { chainId: "FESTIVAL", networkId: 48213, genesisHash, minimumFee, accountMinimum });
  return { devnet, node: new Node(devnet.fetch) };
}

test("the rules give the genesis hash, also those of the built-in networks", async () => {
  assert.equal(own.genesisHash, GIVEN);
  for (const [name, { rules }] of Object.entries(vectors("svc_protocol").networks)) {
    const known = NETWORKS[name];
    const listed = { ...known.rules, producers: [], changes: [] };
    assert.deepEqual(await networkOfRules(rules, []), { ...known, name: known.chainId, rules: listed });
  }
});

test("each changed rule is another network", async () => {
  for (const [name, value] of Object.entries(RULES)) {
    const changed = typeof value === "number" ? value + 1 : Array.isArray(value) ? value.slice(1) : OTHERS[name];
    const made = await ownNetwork({ rules: { ...RULES, [name]: changed }, changes: [] });
    // The addresses of the producers have another prefix then.
    assert.equal(made === null, name === "addressPrefix", name);
    assert.notEqual(made?.genesisHash, GIVEN, name);
  }
});

test("rules that are none make no network", async () => {
  const wrong = { chainId: "<b>", addressPrefix: "Fest", slotSeconds: "5", minimumFee: 20_000, genesisTime: "soon" };
  const lists = { producers: [...RULES.producers, RULES.producers[0]], allocations: [...RULES.allocations, RULES.allocations[0]] };
  for (const [name, value] of Object.entries({ ...wrong, ...lists, multiplierSchedule: [[0]], more: 1, maxTarget: undefined }))
    assert.equal(await ownNetwork({ rules: { ...RULES, [name]: value }, changes: [] }), null, name);
  for (const rules of [null, [], "rules"]) assert.equal(await ownNetwork({ rules, changes: [] }), null);
  const { node } = opened({ ...RULES, slotSeconds: "5" });
  assert.equal(await codeOf(node.network()), "node-unreachable");
});

test("changes of the producers are read and are in no genesis hash", async () => {
  const [one, other] = RULES.producers;
  const read = async (changes, rules = RULES) => (await networkOfRules(rules, changes)).rules.changes;
  assert.deepEqual(await read([{ height: "5", producers: [other] }, { height: "9", producers: [other, one] }]), [
    { height: 5n, producers: [other] },
    { height: 9n, producers: [other, one] },
  ]);
  const change = { height: "5", producers: [one] };
  assert.equal((await networkOfRules(RULES, [change])).genesisHash, GIVEN);
  const wrong = [null, {}, [{ height: "5" }], [change, change], [{ ...change, height: "0" }], [{ ...change, producers: [] }]];
  const foreign = [...wrong, [{ ...change, height: 5 }], [{ ...change, producers: [NETWORKS.devnet.prefix] }]];
  for (const changes of foreign) await assert.rejects(read(changes), InvalidProof);
  await assert.rejects(read([change], { ...RULES, producers: [] }), InvalidProof);
});

test("the node's network is that of its rules, and no other", async () => {
  const { node } = opened();
  assert.deepEqual(await node.network(), own);
  assert.equal((await node.view()).network.prefix, "fest");
  const lying = { ...RULES, minimumFee: "1" };
  assert.equal(await codeOf(opened(lying).node.network()), "wrong-network", "another fee under the same hash");
  assert.equal(await codeOf(opened({ ...RULES, chainId: "OTHER" }).node.network()), "wrong-network");
  assert.equal(await codeOf(opened(null).node.network()), "wrong-network", "a node that shows no rules");
});

test("a node that says it is on mainnet is not asked for rules", async () => {
  const { devnet, node } = opened({ ...RULES, chainId: "SVC-MAINNET" });
  devnet.status.chainId = "SVC-MAINNET";
  assert.equal(await codeOf(node.network()), "wrong-network");
  assert.equal(devnet.asked.includes("/rpc/rules"), false);
});

test("a node that moves to another genesis is refused", async () => {
  const { devnet, node } = opened();
  await node.network();
  devnet.rules = { ...RULES, networkId: 48214 };
  devnet.status.networkId = 48214;
  devnet.status.genesisHash = (await ownNetwork({ rules: devnet.rules, changes: [] })).genesisHash;
  assert.equal(await codeOf(node.view()), "wrong-network");
});

test("fees are bounded by the minimum of the network", async () => {
  const { devnet, node } = opened();
  await node.network();
  for (const [suggestedFee, code] of [["19999", "fee"], ["2000001", "fee"], ["20000", null], ["2000000", null]]) {
    devnet.fees = { suggestedFee };
    if (code) assert.equal(await codeOf(node.fee()), code);
    else assert.equal(await node.fee(), BigInt(suggestedFee));
  }
});

test("the genesis hash that was given is compared", async () => {
  checkGiven(GIVEN, own);
  for (const text of ["", "abc", GIVEN.toUpperCase(), `${GIVEN}0`])
    assert.equal(await codeOf(() => checkGiven(text, own)), "genesis-hash", text);
  const other = "00".repeat(32);
  const { code, sentence } = await problemOf(() => checkGiven(other, own));
  assert.equal(code, "wrong-network");
  assert.equal(
    sentence,
    `Do not use this node: it is on FESTIVAL with the genesis hash ${GIVEN}, and yours is ${other}.`,
  );
  assert.equal(await codeOf(() => checkGiven(GIVEN, NETWORKS.mainnet)), "wrong-network");
});

test("the fragment of a founder's link", () => {
  assert.deepEqual(genesisIn(`#network=${GIVEN}`), { given: GIVEN, rest: "" });
  assert.deepEqual(genesisIn(`#home&network=${GIVEN}&pay=a&until=5`), { given: GIVEN, rest: "home&pay=a&until=5" });
  assert.deepEqual(genesisIn("#network="), { given: "", rest: "" });
  assert.deepEqual(genesisIn("#home"), { given: null, rest: "home" });
});

test("addresses and payment links have the prefix of the network", async () => {
  const { publicKey } = await pairOf(SEED);
  const address = await addressOf(publicKey, own);
  assert.match(address, /^fest1q[a-z0-9]{38}$/);
  checkAddress(address, own);
  assert.equal(parseUri(`svc:${address}?amount=1&ref=a`, own).recipient, address);
  const mainnet = await addressOf(publicKey, NETWORKS.mainnet);
  assert.equal(await codeOf(() => checkAddress(mainnet, own)), "network");
  assert.equal(await codeOf(() => checkAddress(address, NETWORKS.mainnet)), "address");
});

test("a keyfile is of the genesis hash, and opens on its own network alone", async () => {
  const random = (size) => crypto.getRandomValues(new Uint8Array(size));
  const keyfile = await seal(SEED, "correct horse", own, random, 1_000_000);
  assert.equal(keyfile.network, GIVEN);
  assert.deepEqual(await parse(render(keyfile), own), keyfile);
  await unseal(keyfile, "correct horse");
  const anew = await reseal(keyfile, "correct horse", "another horse", random, () => Promise.resolve(1_000_000));
  assert.deepEqual([anew.network, anew.address], [GIVEN, keyfile.address]);
  const other = await ownNetwork({ rules: { ...RULES, networkId: 48214 }, changes: [] });
  for (const network of [other, NETWORKS.mainnet])
    assert.equal(await codeOf(parse(render(keyfile), network)), "keyfile-of-other-network");
  const { sentence } = await problemOf(parse(render(keyfile), other));
  assert.equal(sentence.includes(other.genesisHash) && sentence.includes(GIVEN), true);
  const ofMainnet = await seal(SEED, "correct horse", NETWORKS.mainnet, random, 1_000_000);
  assert.equal(await codeOf(parse(render(ofMainnet), own)), "keyfile-of-other-network");
  assert.equal(await codeOf(parse(render({ ...keyfile, network: "festival" }), own)), "damaged-keyfile");
  assert.equal(await codeOf(unseal({ ...keyfile, network: other.genesisHash }, "correct horse")), "wrong-password");
  assert.deepEqual([idOf(NETWORKS.mainnet), idOf(own)], ["mainnet", GIVEN]);
});

const COIN = 100_000_000n;
const INTENT = { id: "a", recipient: "bob", amount: COIN, reference: null, fromLink: false };
const KNOWN = {
  sender: "alice",
  view: { network: own, syncing: false, time: 1_000_000, tipTime: 1_000_000 },
  fee: 20_000n,
  available: COIN + 20_000n + 500_000n,
  received: null,
  paid: null,
  own: [],
  now: 1_000_000,
  nonce: 0n,
};

test("a payment is judged by fee, minimum and lifetime of the network", () => {
  assert.deepEqual(judge(INTENT, KNOWN).warnings, []);
  assert.equal(judge(INTENT, KNOWN).blocked, null);
  assert.equal(judge(INTENT, { ...KNOWN, available: KNOWN.available - 1n }).blocked.code, "insufficient");
  assert.equal(judge(INTENT, { ...KNOWN, fee: 20_001n }).warnings[0].code, "fee-raised");
  assert.deepEqual([499_999n, 500_000n].map((amount) => needsBalance({ ...INTENT, amount }, "alice", own)), [true, false]);
  const refused = { state: "refused", txid: "a", transfer: { timestamp: "0" } };
  const last = 3_600_000 + Number(MARGIN);
  assert.deepEqual([last, last + 1].map((now) => isUnsettled(refused, now, own)), [true, false]);
});

test("a tip is old after three hours, or after the time of twenty blocks", () => {
  const hour = 3_600_000;
  const old = (network, age) => judge(INTENT, { ...KNOWN, view: { ...KNOWN.view, network, time: age, tipTime: 0 }, now: age }).blocked?.code;
  assert.deepEqual([3 * hour, 3 * hour + 1].map((age) => old(own, age)), [undefined, "tip-old"]);
  const slow = { ...own, rules: { ...own.rules, slotSeconds: 600n } };
  assert.deepEqual([20 * hour, 20 * hour + 1].map((age) => old(slow, age)), [undefined, "tip-old"]);
});
