// A transfer counts as its sender has signed it, whatever else a record says of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidProof } from "../../../svcd/pages/static/errors.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { signedIn } from "../../../svcd/pages/static/signed-transfer.mjs";
import { hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { txidOf } from "../../../svcd/pages/static/transaction.mjs";
import { vectors } from "./vectors.mjs";

const { devnet } = NETWORKS;
const [{ proof }] = vectors("svc_protocol").paymentProofs;
const transfer = proof.transaction;
const txid = hexOf(await txidOf(transfer, devnet));
const party = transfer.payload.recipient;

test("a record of a node shows its transfer, to both sides", async () => {
  const record = { ...transfer, txid, confirmations: 3, amountSvc: "900" };
  for (const side of [party, transfer.senderAddress])
    assert.deepEqual(await signedIn(record, { txid, party: side }, devnet), transfer);
});

const changes = {
  "another sender": { senderAddress: party },
  "another recipient": { payload: { ...transfer.payload, recipient: transfer.senderAddress } },
  "another amount": { payload: { ...transfer.payload, amount: "1" } },
  "another time": { timestamp: "1" },
  "a signature of nobody": { signature: "00".repeat(64) },
  "no signature": { signature: undefined },
};
for (const [what, change] of Object.entries(changes))
  test(`a record with ${what} shows nothing`, async () => {
    await assert.rejects(signedIn({ ...transfer, ...change }, { txid, party }, devnet), InvalidProof);
  });

test("nor does a record of another transfer, or of others", async () => {
  await assert.rejects(signedIn(transfer, { txid: "ab".repeat(32), party }, devnet), /another txid/);
  await assert.rejects(signedIn(transfer, { txid, party: "svcd1other" }, devnet), /one of others/);
});
