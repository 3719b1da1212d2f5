// Payment proofs (docs/protocol.md 13): what one proves, without any node.

import { hexOf, joined, sha256 } from "./bytes.mjs";
import { bytesOfHex, checkChain, parseChainProof } from "./chain-proof.mjs";
import { slotTime } from "./networks.mjs";
import { checkedTxid, transferIn } from "./signed-transfer.mjs";
import { decimal, elements, exactFields, hex, must, whole } from "./strict-json.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Demands, Head, ShownHeader } from "./chain-proof.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { Transfer } from "./transaction.mjs" */
/**
 * @typedef {object} ProvenTransfer
 * @property {string} txid
 * @property {string} sender
 * @property {string} recipient
 * @property {bigint} amount base units
 * @property {string | null} reference
 * @property {string} blockHash
 * @property {bigint} height
 * @property {bigint} confirmations blocks from that of the transfer to the tip, including both
 */

const MAX_PATH = 64;
const PROOF = ["chainId", "genesisHash", "transaction", "index", "path", "height", "chain"];

/** The transfer in the member `proof` of an answer, the tip, and the headers whose work is not checked yet; throws
 * InvalidProof, or NotSupportedError where the platform has no Ed25519.
 * @type {(value: unknown, network: Network, demands?: Demands) =>
 *   Promise<{ transfer: ProvenTransfer, head: Head, headers: ShownHeader[] }>} */
export async function provenTransfer(value, network, demands = {}) {
  const fields = exactFields(value, PROOF, "proof");
  const { chainId, genesisHash } = fields;
  const section = exactFields(fields.chain, ["tip", "headers", "nodes"], "chain");
  const [index, height] = [whole(fields.index, "index"), decimal(fields.height, "height")];
  const path = elements(fields.path, "path").map((step, at) => hex(step, 32, `path[${at}]`));
  must(path.length <= MAX_PATH, `path must be an array of at most ${MAX_PATH} hashes`);
  const chain = parseChainProof({ chainId, genesisHash, ...section }, network);
  const { head, headers } = await checkChain(chain, network, demands);
  const block = headers.find((each) => each.height === height);
  must(block !== undefined, `the chain section does not show the block at height ${height}`);
  const signed = transferAt(fields.transaction, network, block.slot);
  const txid = await checkedTxid(signed, network);
  const leaf = joined(txid, bytesOfHex(signed.signature));
  const root = await rootOf(leaf, index, block.transactionCount, path.map(bytesOfHex));
  const leads = root !== null && hexOf(root) === block.transactionsRoot;
  must(leads, "the path does not lead from the transfer to the transactionsRoot of its block");
  const { recipient, amount, paymentReference = null } = signed.payload;
  const transfer = {
    txid: hexOf(txid),
    sender: signed.senderAddress,
    recipient,
    amount: BigInt(amount),
    reference: paymentReference,
    blockHash: block.hash,
    height,
    confirmations: head.height - height + 1n,
  };
  return { transfer, head, headers };
}

/** A transfer that has the form of its network, and may be in a block of this slot; throws InvalidProof.
 * @type {(value: unknown, network: Network, slot: bigint) => Transfer} */
function transferAt(value, network, slot) {
  const transfer = transferIn(value, network);
  const { rules } = network;
  const time = slotTime(rules, slot);
  const [oldest, newest] = [time - 1000n * rules.transactionPastSeconds, time + 1000n * rules.transactionFutureSeconds];
  const signedAt = BigInt(transfer.timestamp);
  must(oldest <= signedAt && signedAt <= newest, `timestamp must be from ${oldest} to ${newest} in this block`);
  return transfer;
}

/** The root to which an audit path leads (RFC 6962 section 2.1.1); null if its length is wrong.
 * @type {(leaf: Bytes, index: number, size: number, path: Bytes[]) => Promise<Bytes | null>} */
async function rootOf(leaf, index, size, path) {
  if (index >= size) return null;
  const steps = [...path];
  let node = await sha256(joined(Uint8Array.of(0), leaf));
  let [at, last] = [index, size - 1];
  for (; last > 0; at = Math.floor(at / 2), last = Math.floor(last / 2)) {
    if (at % 2 === 0 && at >= last) continue;
    const sibling = steps.shift();
    if (sibling === undefined) return null;
    node = await sha256(joined(Uint8Array.of(1), ...(at % 2 === 0 ? [node, sibling] : [sibling, node])));
  }
  return steps.length === 0 ? node : null;
}
