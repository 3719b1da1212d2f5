// Checks payment proofs without a node, against one block hash that the merchant trusts (docs/payment-proof.md).
//
// With a trusted tip the chain of hashes is the whole proof: every header commits to its parent, and the block of the
// payment to the transfer with its signature. What only matters without one (difficulty, consensus roots,
// participation work, which is Argon2id and not in WebCrypto) is not checked; `svc verify --proof` checks it too.

import { addressOf, checkOrder, must as checkInput, networkFor, txidOf } from "./chain.js";
import { verifySignature } from "./ed25519.js";
import { bytesOfSize, canonical } from "./encodings.js";
import { InvalidAnswer, InvalidProof } from "./errors.js";
import { hexOf, joined, sha256, taggedHash, utf8 } from "./light/bytes.mjs";
import { members, parseJson } from "./members.js";

const MAX_PATH = 64;

function must(truth, sentence) {
  if (!truth) throw new InvalidProof(sentence);
}

/** The hashes of headers of which each is the parent of the next one. */
async function hashesOf(headers) {
  const hashes = [];
  for (const [place, header] of headers.entries()) {
    members(header, "a header", { height: "number", parentHash: "text" });
    const linked = place === 0 || header.parentHash === hashes.at(-1);
    must(linked, `the header at height ${header.height} does not build on the one before it`);
    const follows = BigInt(header.height) === BigInt(headers[0].height) + BigInt(place);
    must(follows, "the heights of the headers do not follow each other");
    const { workNonce, signature: _, ...core } = header;
    const nonce = bytesOfSize(workNonce, 8);
    must(nonce, "workNonce must be 8 bytes in hex");
    const coreHash = await taggedHash("svc/block/v4", utf8(canonical(core)));
    hashes.push(hexOf(await taggedHash("svc/block-id/v4", coreHash, nonce)));
  }
  return hashes;
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
  const signed = await verifySignature(publicKey, txid, signature);
  must(signed, "the signature of the transfer is not its sender's");
  const steps = path.map((step) => bytesOfSize(step, 32));
  must(steps.length <= MAX_PATH && !steps.includes(null), `path must be an array of at most ${MAX_PATH} hashes`);
  const root = await rootOf(joined(txid, signature), index, header.transactionCount, steps);
  const leads = root !== null && hexOf(root) === header.transactionsRoot;
  must(leads, "the path does not lead from the transfer to the transactionsRoot of its block");
  return { txid: hexOf(txid), sender };
}

async function check(answers, order, { tip, network }) {
  const forms = { chainId: "text", genesisHash: "text", transaction: "object", index: "count", path: "texts" };
  const proofs = answers.map((answer) => {
    const { proof } = members(parseJson(answer, "the answer"), "the answer", { proof: "object" });
    return members(proof, "proof", { ...forms, header: "object", headers: "objects" });
  });
  must(proofs.length > 0, "there is no answer to check");
  const [first] = proofs;
  const same = first.chainId === network.chainId && first.genesisHash === network.genesisHash;
  must(same, `the proof is not of ${network.name}, to which the order's recipient belongs`);
  const rest = ({ headers: _, ...others }) => canonical(others);
  const different = "the answers belong to different proofs; the chain may have changed, so fetch them again";
  must(
    proofs.every((other) => rest(other) === rest(first)),
    different,
  );
  const { payload } = members(first.transaction, "transaction", { payload: "object" });
  const pays =
    payload.paymentReference === order.reference &&
    payload.recipient === order.recipient &&
    payload.amount === order.amount;
  must(pays, "the transfer does not have the reference, the recipient and the amount of the order");
  const headers = [first.header, ...proofs.flatMap((proof) => proof.headers)];
  const hashes = await hashesOf(headers);
  const since = order.sinceHeight === null || BigInt(first.header.height) >= BigInt(order.sinceHeight);
  must(since, `the payment is in a block below ${order.sinceHeight}, where payments do not count`);
  const deep = headers.length >= order.confirmations;
  must(deep, `the proof shows ${headers.length} confirmations, and the order requires more`);
  must(hashes.at(-1) === tip, `the proof ends in block ${hashes.at(-1)}, not in the trusted one`);
  const { txid, sender } = await checkTransfer(first, network);
  const [blockHash] = hashes;
  return { txid, sender, blockHash, blockHeight: first.header.height, confirmations: headers.length };
}

/** The payment of `order` that the answers of a node prove; rejects with InvalidProof.
 *
 * `answers` are the texts of the first answer and its continuations. `tip` is the hash of the last block in the proof,
 * from a node other than the one that made the proof. `network` is that of the recipient, and must be given unless it
 * is mainnet or devnet.
 */
export async function checkProof(answers, order, { tip, network } = {}) {
  const asked = checkOrder(order, network);
  checkInput(Array.isArray(answers), "give the answers of the node as an array, even a single one");
  checkInput(typeof tip === "string", "give the hash of a block that you trust as tip");
  try {
    return await check(answers, asked, { tip: tip.toLowerCase(), network: networkFor(asked.recipient, network) });
  } catch (error) {
    // A RangeError is of objects that are nested too deep.
    if (!(error instanceof InvalidAnswer || error instanceof RangeError)) throw error;
    throw new InvalidProof(`this is not a proof: ${error.message}`);
  }
}
