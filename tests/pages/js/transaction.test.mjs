import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { canonical } from "../../../svcd/pages/static/canonical-json.mjs";
import { pairOf, sign } from "../../../svcd/pages/static/ed25519.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { contentOf, signedTransfer, txidOf } from "../../../svcd/pages/static/transaction.mjs";
import { vectors } from "./vectors.mjs";

const draftOf = ({ payload, fee, nonce, timestamp }) => ({
  recipient: payload.recipient,
  reference: payload.paymentReference ?? null,
  amount: BigInt(payload.amount),
  fee: BigInt(fee),
  nonce: BigInt(nonce),
  timestamp: BigInt(timestamp),
});

for (const [name, { keys, transactions }] of Object.entries(vectors("svc_protocol").networks)) {
  const network = NETWORKS[name];
  for (const vector of transactions) {
    const { senderPublicKey, signature } = vector.transaction;
    const { seed } = keys.find(({ publicKey }) => publicKey === senderPublicKey);
    const what = `${name} ${vector.txid.slice(0, 8)}`;

    test(`${what}: the canonical text`, async () => {
      assert.equal(
        canonical(await contentOf(draftOf(vector.transaction), bytesOf(senderPublicKey), network)),
        vector.canonical,
      );
    });

    test(`${what}: txid and signature`, async () => {
      const { privateKey, publicKey } = await pairOf(bytesOf(seed));
      const signing = (message) => sign(privateKey, message);
      const signed = await signedTransfer(draftOf(vector.transaction), publicKey, signing, network);
      assert.deepEqual(signed, { txid: vector.txid, transaction: vector.transaction });
    });

    test(`${what}: the txid does not cover the signature`, async () => {
      const other = { ...vector.transaction, signature: signature.replace(/./g, "0") };
      assert.equal(hexOf(await txidOf(other, network)), vector.txid);
    });
  }
}

test("the private key cannot be read out again", async () => {
  const { privateKey } = await pairOf(new Uint8Array(32));
  assert.equal(privateKey.extractable, false);
});

for (const { seed, publicKey } of vectors("svc_protocol").networks.devnet.keys) {
  test(`the public key of seed ${seed.slice(0, 8)}`, async () => {
    assert.equal(hexOf((await pairOf(bytesOf(seed))).publicKey), publicKey);
  });
}
