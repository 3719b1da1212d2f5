// What the JavaScript client makes of the rules of a network of somebody's own: those of the vectors, and wrong ones.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as pay from "../../../clients/javascript/src/index.js";
import { canonical } from "../../../clients/javascript/src/light/canonical-json.mjs";
import { issuedAfter, producersAt } from "../../../clients/javascript/src/light/chain-rules.mjs";

const [AB, CD] = ["ab".repeat(32), "cd".repeat(32)];
const vectors = (name) => JSON.parse(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));

const { networks } = vectors("svc_protocol");
const own = vectors("own_network");
const festival = await pay.parseNetwork(JSON.stringify(own.network));
const { recipient: SHOP } = own.transfer.transaction.payload;
const DEVNET_SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));

test("the network of the vectors", () => {
  const { name, unit, genesisHash, rules } = own.network;
  const told = { name, unit, networkId: rules.networkId, chainId: rules.chainId, prefix: rules.addressPrefix, genesisHash };
  const { rules: read, ...rest } = festival;
  assert.deepEqual(rest, told);
  assert.deepEqual([read.rulesHash, read.genesisStateRoot], [own.rulesHash, own.genesisStateRoot]);
  for (const [height, units] of own.issued) assert.equal(issuedAfter(read, BigInt(height)), BigInt(units));
  for (const [height, listed] of own.producers) assert.deepEqual(producersAt(read, BigInt(height)), listed);
  for (const rule of ["slotSeconds", "slotsPerBlock", "halfLifeSlots", "gapCapSlots", "halvingBlocks"])
    assert.equal(read[rule], BigInt(rules[rule]), rule);
  for (const rule of ["accountMinimum", "genesisTime", "initialReward", "minimumFee", "transactionPastSeconds", "transactionFutureSeconds"])
    assert.equal(read[rule], BigInt(rules[rule]), rule);
  for (const rule of ["initialTarget", "maxTarget", "minTarget"]) assert.equal(read[rule], BigInt(`0x${rules[rule]}`), rule);
  for (const rule of ["memoryKiB", "maxBlockTransactions"]) assert.equal(read[rule], rules[rule], rule);
  assert.deepEqual(read.multipliers, rules.multiplierSchedule.map(([, points]) => points));
  for (const part of [festival, read, read.producers, read.changes, read.changes[0].producers])
    assert.ok(Object.isFrozen(part));
});

test("coins have the name that the file gives them", async () => {
  assert.equal(pay.formatCoins("1250000000", festival.unit), "12.5 Token");
  const { unit: _, ...without } = own.network;
  assert.equal((await pay.parseNetwork(JSON.stringify(without))).unit, "SVC");
  assert.equal(pay.formatCoins(1_250_000_000n, pay.MAINNET.unit), "12.5 SVC");
});

test("a network that is built in is the one that is known", async () => {
  for (const network of pay.NETWORKS) {
    const { rules, genesisHash } = networks[network.name];
    const given = { name: "other", rules, changes: [], genesisHash };
    assert.equal(await pay.parseNetwork(JSON.stringify(given)), network);
  }
});

function resealed({ at, ...vector }) {
  const given = structuredClone(own.network);
  const inner = at.slice(0, -1).reduce((value, step) => value[step], given);
  if ("to" in vector) inner[at.at(-1)] = vector.to;
  else delete inner[at.at(-1)];
  const hash = (tag, data) => createHash("sha256").update(`${tag}\0`).update(data).digest();
  if (at[0] === "rules" && !Array.isArray(given.rules)) {
    const genesis = hash("svc/genesis/v1", hash("svc/rules/v1", canonical(given.rules)));
    given.genesisHash = hash("svc/block-id/v4", Buffer.concat([genesis, Buffer.alloc(8)])).toString("hex");
  }
  return JSON.stringify(given);
}

for (const [number, vector] of own.refused.entries())
  test(`refused ${number}: ${vector.sentence.slice(0, 60)}`, async () => {
    await assert.rejects(pay.parseNetwork(resealed(vector)), (error) => {
      assert.ok(error instanceof pay.InvalidInput, `${error}`);
      assert.ok(error.message.includes(vector.sentence), error.message);
      return true;
    });
  });

test("what is no network is refused", async () => {
  const devnet = (change) => {
    const { rules, genesisHash } = networks.devnet;
    const names = Object.keys(change);
    const text = JSON.stringify({ name: "devnet", rules, changes: [], genesisHash });
    return names.reduce((told, name) => told.replace(new RegExp(`"${name}":[^,]*`), `"${name}":${change[name]}`), text);
  };
  const deep = JSON.stringify(own.network).replace(/"producers":\[[^\]]*\]/, `"producers":${"[".repeat(1e5)}${"]".repeat(1e5)}`);
  for (const [text, sentence] of [
    ["[", /this is not JSON: give the output of svc network show --json/],
    ["[]", /the file must be an object: this is not the file of a network/],
    [" ".repeat(2 ** 22 + 1), /at most 4194304 characters/],
    [deep, /an address must be a string/],
    [devnet({ slotSeconds: 2 }), /the file says that the genesis hash is 3259c9cc.*, and its rules give/],
    [devnet({ slotSeconds: "[]" }), /slotSeconds must be a whole number/],
    [devnet({ slotSeconds: "[".repeat(1e5) + "]".repeat(1e5) }), /a rule has a value that no rule can have/],
    [own.network, /give the text/],
  ])
    await assert.rejects(pay.parseNetwork(text), (error) => error instanceof pay.InvalidInput && sentence.test(error.message));
});

test("only a network is taken as one", async () => {
  const wrong = [pay.parseNetwork(JSON.stringify(own.network)), "festival", JSON.stringify(own.network), own.network.name];
  const sentence = /network must be MAINNET, DEVNET or a network that parseNetwork has returned$/;
  const refuses = (call) => assert.throws(call, (error) => error instanceof pay.InvalidInput && sentence.test(error.message));
  for (const network of wrong) {
    refuses(() => new pay.Client("http://node.example", { network }));
    refuses(() => new pay.Payouts(new pay.Client("http://node.example"), null, null, network));
    await assert.rejects(pay.signTransfer(null, network, {}), sentence);
  }
  assert.equal(new pay.Client("http://node.example").network, null);
  assert.equal(new pay.Client("http://node.example", { network: festival }).network, festival);
});

test("addresses of the network", async () => {
  const key = await pay.Key.fromSeed(bytes(own.transfer.seed));
  const address = await key.address(festival);
  assert.equal(address, own.transfer.transaction.senderAddress);
  assert.equal(pay.checkAddress(address, festival), address);
  for (const [wrong, sentence] of [
    [address.slice(0, -1) + (address.at(-1) === "q" ? "p" : "q"), /is mistyped: its checksum is wrong/],
    [DEVNET_SHOP, /is not an address of festival: those have fest1q and 38 more lower-case characters/],
    ["nobody", /'nobody' is not an address of festival/],
    [7, /must be a string/],
  ])
    assert.throws(() => pay.checkAddress(wrong, festival), (error) => error instanceof pay.InvalidInput && sentence.test(error.message));
  assert.throws(() => pay.checkAddress(address, pay.DEVNET), /is not an address of devnet: those have svcd1q/);
  assert.throws(() => pay.networkOf(address), /of a network of your own, give the network, too/);
});

test("a transfer is that of the vectors, and its fee at least that of the network", async () => {
  const { seed, txid, transaction } = own.transfer;
  const { nonce, timestamp, payload } = transaction;
  const { recipient, amount, paymentReference: reference } = payload;
  const key = await pay.Key.fromSeed(bytes(seed));
  const draft = { recipient, amount, nonce, timestamp, reference };
  assert.deepEqual(await pay.signTransfer(key, festival, draft), { txid, transaction });
  await assert.rejects(pay.signTransfer(key, festival, { ...draft, fee: 19_999n }), /fee must be .* from 20000 to/);
  const other = pay.signTransfer(key, festival, { ...draft, recipient: DEVNET_SHOP });
  await assert.rejects(other, /is not an address of festival/);
});

test("an event is of an order on the network that is given", () => {
  const event = vectors("webhook_events").events.find((each) => each.event === "payment.confirmed");
  const payment = { ...event.payment, recipient: SHOP };
  const order = { reference: payment.reference, recipient: SHOP, amount: payment.amount, confirmations: 3 };
  for (const genesisHash of [festival.genesisHash, event.genesisHash]) {
    const told = { ...event, payment, genesisHash };
    const own = genesisHash === festival.genesisHash;
    assert.deepEqual([pay.concerns(told, order, { network: festival }), pay.settles(told, order, { network: festival })], [own, own]);
  }
  assert.throws(() => pay.concerns({ ...event, payment }, order), /give the network, too/);
});

// A client with a network, without one

const answer = (content, status = 200, headers = {}) => new Response(JSON.stringify(content), { status, headers });
const consensus = (genesisHash) => () => answer({ ok: true, consensus: { genesisHash, accountMinimum: "500000" } });
const block = (hash, height) => () => answer({ ok: true, block: { hash, height } });
const LOST = () => {
  throw new TypeError("fetch failed");
};

function clientOf(network, ...answers) {
  const asked = [];
  const fetch = async (url, given) => {
    asked.push([new URL(url).pathname, given.headers.authorization ?? null, given.body ?? null]);
    return answers.shift()();
  };
  const options = { token: "t".repeat(32), network, fetch, sleep: async () => {} };
  return { client: new pay.Client("https://node.example", options), asked };
}

test("a client asks its node once for its network", async () => {
  const { client, asked } = clientOf(festival, consensus(festival.genesisHash), block(AB, "1"), block(CD, "2"));
  assert.deepEqual([await client.blockHash(1n), await client.blockHash(2n)], [AB, CD]);
  assert.deepEqual(asked.map(([path]) => path), ["/rpc/consensus", "/rpc/block/1", "/rpc/block/2"]);
  const none = clientOf(null, block(AB, "1"));
  assert.equal(await none.client.blockHash(1n), AB);
});

test("a node of another network learns nothing of a call, not even the token", async () => {
  const { client, asked } = clientOf(festival, ...Array.from({ length: 4 }, () => consensus(pay.DEVNET.genesisHash)));
  const message =
    `the node is not on festival: its genesis hash is '${pay.DEVNET.genesisHash}',` +
    ` and that of festival ${festival.genesisHash}`;
  const order = { reference: "order-1", recipient: SHOP, amount: 5n };
  for (const call of [
    () => client.payment(order),
    () => client.waitFor(order, { timeout: 9 }),
    () => client.register(order, "https://shop.example/paid"),
    () => client.testCallback("https://shop.example/paid"),
  ])
    await assert.rejects(call(), { name: "InvalidAnswer", message });
  assert.deepEqual(asked, Array.from({ length: 4 }, () => ["/rpc/consensus", null, null]));
});

test("a node that cannot say where it is is asked again, where the call may be repeated", async () => {
  const busy = () => answer({ ok: false, error: "wait" }, 503, { "retry-after": "0" });
  const { client } = clientOf(festival, LOST, busy, consensus(festival.genesisHash), block(AB, "1"), block(CD, "2"));
  assert.deepEqual([await client.blockHash(1n), await client.blockHash(2n)], [AB, CD]);
  for (const [trouble, name] of [
    [LOST, "NodeUnreachable"],
    [busy, "ApiError"],
  ]) {
    const { client, asked } = clientOf(festival, trouble, LOST);
    await assert.rejects(client.testCallback("https://shop.example/paid"), { name });
    assert.equal(asked.length, 1);
  }
  const odd = clientOf(festival, () => answer({ ok: true, consensus: {} }));
  await assert.rejects(odd.client.blockHash(1n), { name: "InvalidAnswer", message: /genesisHash/ });
});

test("addresses of other networks are refused before anything is asked", async () => {
  const { client, asked } = clientOf(festival);
  const order = { reference: "order-1", recipient: DEVNET_SHOP, amount: 5n };
  for (const call of [
    () => client.account(DEVNET_SHOP),
    () => client.payments(DEVNET_SHOP),
    () => client.payment(order),
    () => client.proof(order),
    () => client.register(order, "https://shop.example/paid"),
    () => client.paymentRequest({ recipient: DEVNET_SHOP, amount: 5n }),
  ])
    await assert.rejects(call(), /is not an address of festival: those have fest1q/);
  assert.deepEqual(asked, []);
});

test("the fee is at least that of the network, and by default at most a hundred times that", async () => {
  const key = await pay.Key.fromSeed(bytes(own.transfer.seed));
  const account = { address: await key.address(festival), balance: "1000000000", pendingBalance: "1000000000", nonce: "0", pendingNonce: "0" };
  const signing = (suggestedFee, wanted = {}) =>
    clientOf(
      null,
      consensus(festival.genesisHash),
      () => answer({ fees: { suggestedFee } }),
      () => answer({ account }),
    ).client.sign(key, festival, { recipient: SHOP, amount: 500_000n, ...wanted });
  assert.equal((await signing("19999")).transaction.fee, "20000");
  assert.equal((await signing("2000000")).transaction.fee, "2000000");
  await assert.rejects(signing("2000001"), /a fee of 2000001 base units, more than maximumFee 2000000/);
  await assert.rejects(signing("30000", { maximumFee: 29_999n }), /more than maximumFee 29999/);
});
