// The file of a payment proof: an answer of a node (docs/payment-proof.md), checked without any node.

import { checkWork, MAX_PROOF_BYTES, tipTime } from "./chain-proof.mjs";
import { builtIn } from "./built-in.mjs";
import { producersAt } from "./chain-rules.mjs";
import { provenTransfer } from "./payment-proof.mjs";
import { exactFields, must, strictJson } from "./strict-json.mjs";

/** @import { Evaluate, Head } from "./chain-proof.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { ProvenTransfer } from "./payment-proof.mjs" */
/**
 * @typedef {ProvenTransfer & { chainId: string, ownGenesis: string | null, head: Head, time: number,
 *   producers: number }} ProvenPayment `ownGenesis` is the genesis hash, to be compared with another source, unless the
 * network is built in. `head` is the tip, whose slot began at `time`, in Unix milliseconds; so many `producers` may make
 * the block after it, 0 for everybody.
 */
/** @typedef {{ evaluate: Evaluate, progress: (done: number, total: number) => void, clock: () => number,
 *   own?: Network }} Tools with Argon2id, the time in Unix milliseconds, and a network that is not built in. */

const FILE = "the file";

/** The payment that the text of an answer proves, on a built-in network or on `own`; throws InvalidProof.
 * @type {(text: string, tools: Tools) => Promise<ProvenPayment>} */
export async function provenPayment(text, { evaluate, progress, clock, own }) {
  const { ok, proof, next } = exactFields(strictJson(text, MAX_PROOF_BYTES, FILE), ["ok", "proof", "next"], FILE);
  must(ok === true && next === null, "ok must be true, and next null");
  const { chainId } = /** @type {{ chainId?: unknown }} */ (Object(proof));
  const known = builtIn(chainId);
  const network = known ?? (chainId === own?.chainId ? own : undefined);
  must(network !== undefined, "the proof is for an unknown network");
  const { transfer, head, headers } = await provenTransfer(proof, network);
  const time = Number(tipTime(network, head.slot, clock()));
  await checkWork(headers, network, { evaluate, progress });
  const ownGenesis = known ? null : network.genesisHash;
  const producers = producersAt(network.rules, head.height + 1n).length;
  return { ...transfer, chainId: network.chainId, ownGenesis, head, time, producers };
}
