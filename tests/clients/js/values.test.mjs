// The JavaScript client gives what the vectors say, without a node: keys, transfers, proofs, signatures of callbacks.

import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as pay from "../../../clients/javascript/src/index.js";
import { checkPaymentProof } from "../../../clients/javascript/src/light.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));

const { networks } = vectors("svc_protocol");
const wallet = vectors("wallet");
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";

test("the networks are those of the vectors", () => {
  for (const network of pay.NETWORKS) {
    const { rules, genesisHash } = networks[network.name];
    assert.deepEqual([network.networkId, network.prefix], [rules.networkId, rules.addressPrefix]);
    assert.equal(network.genesisHash, genesisHash);
    assert.equal(pay.MINIMUM_FEE.toString(), rules.minimumFee);
  }
});

test("transfers and addresses are those of the vectors", async () => {
  for (const network of pay.NETWORKS) {
    const { keys, transactions } = networks[network.name];
    for (const key of keys) {
      const made = await pay.Key.fromSeed(bytes(key.seed));
      assert.equal(await made.address(network), key.address);
      assert.equal(pay.networkOf(key.address), network);
    }
    for (const { transaction, txid } of transactions) {
      const { seed } = keys.find((key) => key.publicKey === transaction.senderPublicKey);
      const { nonce, fee, timestamp, payload } = transaction;
      const { recipient, amount, paymentReference: reference } = payload;
      const draft = { recipient, amount, nonce, fee, timestamp, reference };
      const made = await pay.signTransfer(await pay.Key.fromSeed(bytes(seed)), network, draft);
      assert.deepEqual(made, { txid, transaction });
    }
  }
});

test("words give the keys of the vectors", async () => {
  for (const { words, address } of wallet.wallets) {
    const key = await pay.Key.fromWords(words);
    for (const network of pay.NETWORKS) assert.equal(await key.address(network), address[network.name]);
  }
  const wanted = (await pay.Key.fromWords(wallet.wallets[1].words)).publicKey;
  for (const { typed } of wallet.sameWords) assert.deepEqual((await pay.Key.fromWords(typed)).publicKey, wanted);
  for (const { words } of wallet.invalidWords) await assert.rejects(pay.Key.fromWords(words), pay.InvalidInput);
});

test("an amount of coins is at least one base unit, and at most what a number of the wire can be", () => {
  assert.equal(pay.parseAmount("90071992.54740991"), 9007199254740991n);
  assert.equal(pay.formatAmount("9007199254740991"), "90071992.54740991");
  for (const coins of ["0", "1,5", "90071992.54740992", 5]) assert.throws(() => pay.parseAmount(coins), pay.InvalidInput);
});

test("the reference of a refund", async () => {
  assert.equal(await pay.refundReference("order-7", "ab".repeat(32)), "refund:order-7");
  assert.equal(await pay.refundReference(null, "ab".repeat(32)), `refund:${"ab".repeat(16)}`);
  const hash = createHash("sha256").update("x".repeat(64)).digest("hex");
  assert.equal(await pay.refundReference("x".repeat(64), ""), `refund:${"x".repeat(40)}.${hash.slice(0, 16)}`);
});

// Payment proofs

const proof = vectors("payment_proof");
// The work of headers is not what these changes are about.
const argon2id = async () => new Uint8Array(32);
const prove = ({ answer, order, tip }) => checkPaymentProof(JSON.stringify(answer), order, { argon2id, tip });

test("the proof of the vectors is good", async () => {
  const { txid, sender, blockHeight, confirmations } = await prove(proof);
  assert.deepEqual({ txid, sender, blockHeight, confirmations }, proof.proven);
});

for (const { what, of, at, to } of proof.refused) {
  test(`a changed proof is refused: ${what}`, async () => {
    const changed = structuredClone({ order: proof.order, tip: proof.tip, proof: proof.answer.proof });
    const path = [of, ...at];
    const last = path.pop();
    path.reduce((inner, step) => inner[step], changed)[last] = to;
    const { order, tip } = changed;
    await assert.rejects(prove({ answer: { ...proof.answer, proof: changed.proof }, order, tip }), pay.InvalidProof);
  });
}

test("where WebCrypto has no Ed25519 a proof is neither good nor bad", async (context) => {
  const missing = () => Promise.reject(new DOMException("no", "NotSupportedError"));
  context.mock.method(crypto.subtle, "importKey", missing);
  await assert.rejects(prove(proof), { name: "InvalidInput", message: /no Ed25519 in WebCrypto/ });
});

test("what is no proof is refused", async () => {
  for (const text of ["", "[]", "[".repeat(1e5), '{"proof":{}}', '{"proof":{"chainId":"\\ud800"}}'])
    await assert.rejects(checkPaymentProof(text, proof.order, { argon2id }), pay.InvalidProof);
  for (const tip of ["ab", "z".repeat(64), 7])
    await assert.rejects(checkPaymentProof("{}", proof.order, { argon2id, tip }), pay.InvalidInput);
});

// Callbacks

const { events: shown, signed } = vectors("webhook_events");
const SECRET = signed.secret;
const OLD = "the-secret-before-it-of-thirty-two-characters";
const NOW = Number(signed["webhook-timestamp"]);
const body = Buffer.from(signed.body);
const digest = (secret, signed, raw) => createHmac("sha256", secret).update(signed).update(raw).digest("base64");

function headersOf(raw, secrets, at = NOW) {
  const { id } = JSON.parse(raw);
  const signature = secrets.map((secret) => `v1,${digest(secret, `${id}.${at}.`, raw)}`).join(" ");
  return { "webhook-id": id, "webhook-timestamp": String(at), "webhook-signature": signature };
}

const verify = (secrets, raw = body, headers = headersOf(body, [SECRET]), now = NOW) =>
  new pay.Webhook(secrets).verify(raw, headers, { now });

test("the callback of the vectors", async () => {
  assert.equal(headersOf(body, [SECRET])["webhook-signature"], signed["webhook-signature"]);
  const event = await verify(SECRET);
  assert.equal(event.event, "payment.confirmed");
  assert.ok(pay.isWatchEvent(event));
  const standard = `whsec_${Buffer.from(SECRET).toString("base64")}`;
  assert.deepEqual(await verify(standard, body, new Headers(headersOf(body, [SECRET]))), event);
  const exact = body.buffer.slice(body.byteOffset, body.byteOffset + body.length);
  assert.deepEqual(await verify(SECRET, exact), event);
});

test("signatures are those of the vectors", async () => {
  for (const each of vectors("webhook_signature").cases) {
    const { eventId, timestamp, webhookSignature, secret, previousSecret } = each;
    const headers = {
      "Webhook-Id": eventId,
      "Webhook-Timestamp": String(timestamp),
      "Webhook-Signature": webhookSignature,
    };
    const raw = Buffer.from(each.body);
    // Their bodies are no events, so what is asked is whether the signature passed.
    for (const known of [secret, previousSecret].filter(Boolean))
      await assert.rejects(verify(known, raw, headers, timestamp), pay.InvalidAnswer);
    await assert.rejects(verify(`${secret}x`, raw, headers, timestamp), pay.InvalidSignature);
  }
});

test("secrets that are rotated", async () => {
  for (const [signed, known, good] of [
    [[SECRET], [OLD, SECRET], true],
    [[SECRET, OLD], [OLD], true],
    [[SECRET, OLD], [SECRET], true],
    [[SECRET], [OLD], false],
  ]) {
    const outcome = verify(known, body, headersOf(body, signed));
    if (good) await outcome;
    else await assert.rejects(outcome, pay.InvalidSignature);
  }
});

test("whitespace around a secret does not count, and an empty secret is refused", async () => {
  const standard = `whsec_${Buffer.from(SECRET).toString("base64")}`;
  for (const secret of [`${SECRET}\n`, ` ${SECRET}\r\n`, `${standard}\n`]) await verify(secret);
  for (const secret of ["", "\n", "whsec_", "whsec_\n", "whsec_====", "whsec_a", "whsec_é"])
    assert.throws(() => new pay.Webhook([SECRET, secret]), pay.InvalidInput);
});

for (const { name, text, secret } of vectors("secret_lines").cases)
  test(`the text of a secret's file: ${name}`, async () => {
    if (secret === null) assert.throws(() => new pay.Webhook(text), pay.InvalidInput);
    else await verify(text, body, headersOf(body, [secret]));
  });

test("an old callback, a changed header and a changed body are refused", async () => {
  for (const away of [-300, 0, 300]) await verify(SECRET, body, headersOf(body, [SECRET]), NOW + away);
  for (const away of [-301, 301, 1e9])
    await assert.rejects(verify(SECRET, body, headersOf(body, [SECRET]), NOW + away), /within 300 s/);
  for (const name of ["id", "timestamp", "signature"])
    for (const value of ["", "x", "v1,", "1795170437", "v1,é", undefined, ["v1,a"]]) {
      const headers = { ...headersOf(body, [SECRET]), [`webhook-${name}`]: value };
      await assert.rejects(verify(SECRET, body, headers), pay.InvalidSignature);
    }
  for (let place = 0; place < body.length; place += 97) {
    const changed = Uint8Array.from(body);
    changed[place] ^= 1;
    await assert.rejects(verify(SECRET, changed), pay.InvalidSignature);
  }
  await assert.rejects(verify(SECRET, body.toString()), /raw body as bytes/);
});

test("a signed body that is no UTF-8, or begins with a byte order mark, is refused", async () => {
  const { id, createdAt, networkId, chainId, genesisHash } = shown[0];
  const text = JSON.stringify({ id, createdAt, networkId, chainId, genesisHash, event: "webhook.test", more: "-" });
  const refused = (raw) => {
    const signature = `v1,${digest(SECRET, `${id}.${NOW}.`, raw)}`;
    const headers = { "webhook-id": id, "webhook-timestamp": String(NOW), "webhook-signature": signature };
    return assert.rejects(verify(SECRET, raw, headers), { name: "InvalidAnswer" });
  };
  await refused(Buffer.from(`\ufeff${text}`));
  await refused(Buffer.from(text.replace('"-"', '"\xff"'), "latin1"));
});

test("an address that is refused is shown without what a terminal would act on", () => {
  const message = /^'svc\\u\{1b\}\[2J\\u\{202e\}' is not an address of devnet/;
  assert.throws(() => pay.checkAddress("svc\u001b[2J\u202e", pay.DEVNET), { name: "InvalidInput", message });
});

test("a confirmed payment is as deep as its watch requires, but for events that do not change its state", async () => {
  const confirmed = shown.find(({ event }) => event === "payment.confirmed");
  for (const change of [{ canonical: false }, { confirmations: 2 }]) {
    const event = { ...confirmed, payment: { ...confirmed.payment, ...change } };
    const raw = Buffer.from(JSON.stringify(event));
    await assert.rejects(verify(SECRET, raw, headersOf(raw, [SECRET])), { name: "InvalidAnswer", message: /a confirmed payment has/ });
    const alarm = Buffer.from(JSON.stringify({ ...event, event: "node.alarm", alarm: { kind: "outage", sentence: "…" } }));
    assert.equal((await verify(SECRET, alarm, headersOf(alarm, [SECRET]))).event, "node.alarm");
  }
});

test("every event of the vectors is read, and those of no watch", async () => {
  const events = [...shown];
  assert.ok(events.length >= 5);
  const txid = "ab".repeat(32);
  const mismatch = { kind: "too-little", txid, sender: SHOP, amount: "1", amountSvc: "0.00000001" };
  events.push({ ...events[0], event: "payment.mismatched", mismatch });
  const dropped = { reason: "replaced", txid, replacedBy: "cd".repeat(32) };
  events.push({ ...events[0], event: "payment.dropped", dropped });
  events.push({ ...events[0], event: "node.alarm", alarm: { kind: "outage", sentence: "…" } });
  for (const each of events) {
    const raw = Buffer.from(JSON.stringify(each));
    assert.deepEqual(await verify(SECRET, raw, headersOf(raw, [SECRET])), each);
    const order = { reference: "order-17", recipient: SHOP, amount: 2_500_000_000n, confirmations: 3 };
    assert.equal(pay.concerns(each, order), each.payment.reference === "order-17");
    assert.equal(pay.settles(each, order), each.event === "payment.confirmed");
    for (const change of [{ confirmations: 4 }, { amount: "2500000001" }, { reference: "order-18" }])
      assert.equal(pay.settles(each, { ...order, ...change }), false);
    assert.equal(pay.concerns({ ...each, genesisHash: pay.MAINNET.genesisHash }, order), false);
    const notices = {
      "payment.mismatched": `too-little: 0.00000001 SVC from ${SHOP}; svc wallet refund ${txid}`,
      "node.alarm": "…",
    };
    assert.equal(pay.noticeOf(each), notices[each.event] ?? null);
  }
  const late = pay.noticeOf({ ...events[0], mismatch: { ...mismatch, kind: "late" } });
  assert.equal(late, `late: 0.00000001 SVC from ${SHOP}; unless you accept it, svc wallet refund ${txid}`);
  assert.deepEqual(new Set(events.map(({ event }) => event)), new Set(pay.EVENT_NAMES));
  const { id, createdAt, networkId, chainId, genesisHash } = events[0];
  for (const event of ["webhook.test", "payment.invented-later"]) {
    const raw = Buffer.from(JSON.stringify({ id, createdAt, networkId, chainId, genesisHash, event }));
    assert.equal(pay.isWatchEvent(await verify(SECRET, raw, headersOf(raw, [SECRET]))), false);
  }
  const lies = [
    ...[null, { ...mismatch, txid: "$(id)" }, { ...mismatch, sender: "svcd1q" }, { ...mismatch, amountSvc: "1" }],
    ...[{ ...mismatch, kind: "other" }, { ...mismatch, sender: `${SHOP.slice(0, -1)}q` }],
  ];
  const broken = [{}, { ...events[0], payment: {} }, { ...events[6], dropped: { ...dropped, replacedBy: "cd" } }];
  for (const each of [...broken, ...lies.map((lie) => ({ ...events[5], mismatch: lie }))]) {
    const raw = Buffer.from(JSON.stringify(each));
    const headers = { ...headersOf(Buffer.from('{"id":""}'), [SECRET]), "webhook-id": each.id ?? "" };
    headers["webhook-signature"] = `v1,${digest(SECRET, `${each.id ?? ""}.${NOW}.`, raw)}`;
    await assert.rejects(verify(SECRET, raw, headers), pay.InvalidAnswer);
  }
});
