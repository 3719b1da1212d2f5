// The transfer of a payment proof: its signature, and its path into its block (docs/payment-proof.md).

import { bytesOfSize } from "./encodings.js";
import { InvalidProof } from "./errors.js";
import { hexOf, joined, sha256 } from "./light/bytes.mjs";
import { verify } from "./light/ed25519.mjs";
import { addressOf } from "./light/key-hash.mjs";
import { txidOf } from "./light/transaction.mjs";
import { members } from "./members.js";

const MAX_PATH = 64;

function must(truth, sentence) {
  if (!truth) throw new InvalidProof(sentence);
}

/** The root to which an audit path leads (RFC 6962 section 2.1.1); null if its length is wrong. */
async function rootOf(leaf, index, size, path) {
  if (index >= size) return null;
  const steps = [...path];
  let node = await sha256(joined(Uint8Array.of(0), leaf));
  for (let last = size - 1; last > 0; index = Math.floor(index / 2), last = Math.floor(last / 2)) {
    if (index % 2 === 0 && index >= last) continue;
    const sibling = steps.shift();
    if (sibling === undefined) return null;
    node = await sha256(joined(Uint8Array.of(1), ...(index % 2 ? [sibling, node] : [node, sibling])));
  }
  return steps.length === 0 ? node : null;
}

/** The txid and the sender of a transfer that its sender has signed and that is in a block with this header. */
export async function checkTransfer(proof, network) {
  const { transaction, header, index, path } = proof;
  members(header, "header", { transactionCount: "count", transactionsRoot: "text" });
  const publicKey = bytesOfSize(transaction.senderPublicKey, 32);
  const signature = bytesOfSize(transaction.signature, 64);
  must(publicKey && signature, "senderPublicKey and signature must be 32 and 64 bytes in hex");
  const sender = await addressOf(publicKey, network);
  must(transaction.senderAddress === sender, "senderAddress is not the address of senderPublicKey");
  const txid = await txidOf(transaction, network);
  const signed = await verify(publicKey, txid, signature);
  must(signed, "the signature of the transfer is not its sender's");
  const steps = path.map((step) => bytesOfSize(step, 32));
  must(steps.length <= MAX_PATH && !steps.includes(null), `path must be an array of at most ${MAX_PATH} hashes`);
  const root = await rootOf(joined(txid, signature), index, header.transactionCount, steps);
  const leads = root !== null && hexOf(root) === header.transactionsRoot;
  must(leads, "the path does not lead from the transfer to the transactionsRoot of its block");
  return { txid: hexOf(txid), sender };
}
