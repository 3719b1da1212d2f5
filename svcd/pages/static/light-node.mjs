// What a node proves of an account, from the genesis hash or from the newest block that was proven before.

import { checkAccount, parseAccountProof } from "./account-proof.mjs";
import { ChainReader, checkChain, checkWork, HEADER_FIELDS, MAX_PROOF_BYTES, parseChainProof, parseHeader, tipTime } from "./chain-proof.mjs";
import { genesisOf } from "./chain-rules.mjs";
import { elements, exactFields, must, strictJson } from "./strict-json.mjs";
import { InvalidProof } from "./errors.mjs";
import { NETWORKS } from "./networks.mjs";
import { networkOfRules } from "./network-rules.mjs";

/** @import { ProvenAccount } from "./account-proof.mjs" */
/** @import { Evaluate, Head, ReadChain } from "./chain-proof.mjs" */
/** @import { Network, NetworkName } from "./networks.mjs" */
/** @typedef {{ head: Head, stateRoot: string }} Known the newest block that was proven, to be stored. */
/**
 * @typedef {object} Questions to a node.
 * @property {(path: string) => Promise<string>} ask for the text of an answer; throws Unanswered
 * @property {Network} network
 * @property {Known | null} known
 * @property {Evaluate} evaluate
 * @property {(done: number, total: number) => void} progress
 * @property {() => number} clock Unix milliseconds
 */

/** So many blocks on top of the known one are read from headers; for more, a proof of the whole chain is smaller. */
const FEW = 400n;

/** The node gives no answer that says something of proofs. */
export class Unanswered extends Error {}

/** @type {(text: string) => unknown} */
function proofIn(text) {
  const { ok, proof } = exactFields(strictJson(text, MAX_PROOF_BYTES), ["ok", "proof"], "the answer");
  must(ok === true, "ok must be true");
  return proof;
}

/** The network that a keyfile calls `id`. A node is asked for the rules of one that is not built in, which must give the
 * genesis hash `id`, and believed for the changes of its producers; throws InvalidProof or Unanswered.
 * @type {(id: string, ask: Questions["ask"]) => Promise<Network>} */
export async function networkCalled(id, ask) {
  if (Object.hasOwn(NETWORKS, id)) return NETWORKS[/** @type {NetworkName} */ (id)];
  const answer = strictJson(await ask("/rpc/rules"), MAX_PROOF_BYTES);
  const { ok, rules, changes } = exactFields(answer, ["ok", "rules", "changes"], "the answer");
  must(ok === true, "ok must be true");
  const network = await networkOfRules(rules, changes);
  must(network.genesisHash === id, `the node shows the rules of ${network.genesisHash}, another network`);
  return network;
}

/** The account of an address after the newest block of a node, and that block; throws InvalidProof or Unanswered.
 * @type {(address: string, questions: Questions) => Promise<{ account: ProvenAccount | null, known: Known }>} */
export async function provenAccount(address, questions) {
  const { network, ask } = questions;
  const proof = parseAccountProof(proofIn(await ask(`/rpc/proof/account/${address}`)), network);
  const known = await provenBlock(proof.block, proof.height, questions);
  const { hash, height } = known.head;
  return { account: await checkAccount(proof, address, network, { hash, height, stateRoot: known.stateRoot }), known };
}

/** @type {(hash: string, height: bigint, questions: Questions) => Promise<Known>} */
async function provenBlock(hash, height, questions) {
  const { known, network } = questions;
  if (known?.head.hash === hash) return known;
  const gap = known === null ? 0n : height - known.head.height;
  if (known !== null && gap > 0n && gap <= FEW) {
    try {
      return await checked(await extended(known, gap, hash, questions), questions);
    } catch (problem) {
      // The whole chain decides: it may have been reorganised, or the node may serve no headers here.
      if (!(problem instanceof InvalidProof || problem instanceof Unanswered)) throw problem;
    }
  }
  const proof = parseChainProof(proofIn(await questions.ask(`/rpc/proof/chain?tip=${hash}`)), network);
  must(proof.tip === hash, "the node proves another chain than the one that was asked for");
  // A devnet is begun anew at will, and its blocks cost nothing.
  const minimumWork = network.name === "devnet" ? 0n : (known?.head.work ?? 0n);
  return checked(await checkChain(proof, network, { minimumWork }), questions);
}

/** @type {(known: Known, gap: bigint, hash: string, questions: Questions) => Promise<ReadChain>} */
async function extended({ head }, gap, hash, { ask, network }) {
  const text = await ask(`/p2p/headers?from=${head.height + 1n}&limit=${gap}`);
  const fields = exactFields(strictJson(text, MAX_PROOF_BYTES), ["ok", "headers", "from", "height"], "the answer");
  const reader = new ChainReader(network, [], head);
  const headers = elements(fields.headers, "headers");
  must(headers.length <= gap, `the node gives ${headers.length} headers, more than the ${gap} that were asked for`);
  for (const [at, each] of headers.entries()) {
    const given = Object.entries(Object(each)).filter(([name]) => HEADER_FIELDS.some((field) => field === name));
    await reader.read(parseHeader(Object.fromEntries(given), `headers[${at}]`));
  }
  reader.finish(hash);
  return reader;
}

/** @type {(read: ReadChain, questions: Questions) => Promise<Known>} */
async function checked({ head, headers }, { network, evaluate, progress, clock }) {
  tipTime(network, head.slot, clock());
  await checkWork(headers, network, { evaluate, progress });
  const { stateRoot } = headers.at(-1) ?? genesisOf(network);
  return { head, stateRoot };
}
