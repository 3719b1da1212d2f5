// Chain proofs: some hundred headers, drawn by work, that stand for a chain of any length (docs/protocol.md 13).
//
// The check reads the chain from the genesis to the tip, as headers and as nodes of the history tree for the blocks in
// between. Without the participation work of the headers (`checkWork`), which comes last, a proof proves nothing.

import { hexOf, joined, taggedHash, utf8 } from "./bytes.mjs";
import {
  blockWork,
  effectiveTarget,
  issuedAfter,
  lesser,
  LIMIT,
  nextTarget,
  producersAt,
  targetAt,
} from "./chain-rules.mjs";
import { keyOf } from "./key-hash.mjs";
import { slotTime } from "./networks.mjs";
import { decimal, elements, exactFields, hex, must, whole } from "./strict-json.mjs";
import { InvalidProof } from "./errors.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { ChainRules, Network } from "./networks.mjs" */
/** @typedef {{ digest: string, work: bigint, slot: bigint, clock: bigint }} HistoryNode whose digest is 64 hex. */
/**
 * @typedef {object} Header as far as proofs have it; the other fields follow from the chain before it.
 * @property {bigint} height
 * @property {bigint} slot
 * @property {string} parentHash
 * @property {string} producerPublicKey
 * @property {number} multiplier
 * @property {string} transactionsRoot
 * @property {number} transactionCount
 * @property {string} stateRoot
 * @property {string} workNonce
 */
/** @typedef {Header & { hash: string, coreHash: Bytes, target: bigint, before: bigint, after: bigint }} ShownHeader
 * with the effective target of its work, and the cumulative work of the chain before the block and with it. */
/**
 * @typedef {object} Head the last block that was read, and all that its child is checked against.
 * @property {string} hash "" if the proof does not show it
 * @property {bigint} height
 * @property {bigint} slot
 * @property {bigint} clock the difficulty clock
 * @property {bigint} work cumulative
 * @property {HistoryNode[]} mountains of the tree over all blocks up to this one, the largest first
 */
/** @typedef {{ tip: string, headers: Header[], nodes: HistoryNode[] }} ChainProof of which only the form is checked. */
/** @typedef {{ head: Head, headers: ShownHeader[] }} ReadChain whose headers are by height. */
/** @typedef {{ minimumWork?: bigint, recent?: number, samples?: number }} Demands whose last two are for vectors. */
/** @typedef {(options: { password: Uint8Array, salt: Uint8Array, iterations: number, parallelism: number,
 *   memorySize: number, hashLength: number, outputType: "binary" }) => Promise<Uint8Array>} Argon2id of hash-wasm. */
/** @typedef {(password: Bytes, memoryKiB: number) => Promise<Uint8Array>} Evaluate Argon2id with the salt and the costs
 * of section 1: its 32 bytes. */

/** How far the newest block may be in the future of the own clock, in milliseconds. */
const AHEAD = 300_000n;
/** The newest blocks, of which every header is in a proof. */
const RECENT = 100;
/** Draws in each halving of the work toward the tip. */
const SAMPLES = 32;
/** How many headers more a proof may show than are asked for: each costs the checker an attempt of work. */
const MAX_MORE = 8;
/** The greatest size of a proof. */
export const MAX_PROOF_BYTES = 4 * 1024 * 1024;
/** The salt of participation work. */
const WORK_SALT = utf8("svc/work/v4/salt");

/** The names of the fields of a header in a chain proof. */
export const HEADER_FIELDS = /** @type {const} */ ([
  "height",
  "slot",
  "parentHash",
  "producerPublicKey",
  "multiplier",
  "transactionsRoot",
  "transactionCount",
  "stateRoot",
  "workNonce",
]);
const NO_TRANSACTIONS = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/** Milliseconds of work after which others get their turn. */
const TURN = 50;

// Parsing

/** The chain proof in the member `proof` of an answer; throws InvalidProof.
 * @type {(value: unknown, network: Network) => ChainProof} */
export function parseChainProof(value, network) {
  const fields = exactFields(value, ["chainId", "genesisHash", "tip", "headers", "nodes"], "proof");
  checkNetwork(fields, network);
  return parseChain(fields);
}

/** Throw InvalidProof unless a proof is of a network.
 * @type {(fields: Record<string, unknown>, network: Network) => void} */
export function checkNetwork({ chainId, genesisHash }, network) {
  must(chainId === network.chainId, `the proof is for another network; it must be for ${network.chainId}`);
  const same = hex(genesisHash, 32, "genesisHash") === network.genesisHash;
  must(same, `the proof is for another network that calls itself ${network.chainId}: its genesis differs`);
}

/** @type {(fields: Record<string, unknown>) => ChainProof} */
function parseChain({ tip, headers, nodes }) {
  return {
    tip: hex(tip, 32, "tip"),
    headers: elements(headers, "headers").map((each, at) => parseHeader(each, `headers[${at}]`)),
    nodes: elements(nodes, "nodes").map((each, at) => parseNode(each, `nodes[${at}]`)),
  };
}

/** The header in a JSON object with exactly the members of a proof; throws InvalidProof.
 * @type {(value: unknown, what: string) => Header} */
export function parseHeader(value, what) {
  const fields = exactFields(value, HEADER_FIELDS, what);
  return {
    height: decimal(fields.height, `height of ${what}`),
    slot: decimal(fields.slot, `slot of ${what}`),
    parentHash: hex(fields.parentHash, 32, `parentHash of ${what}`),
    producerPublicKey: hex(fields.producerPublicKey, 32, `producerPublicKey of ${what}`),
    multiplier: whole(fields.multiplier, `multiplier of ${what}`),
    transactionsRoot: hex(fields.transactionsRoot, 32, `transactionsRoot of ${what}`),
    transactionCount: whole(fields.transactionCount, `transactionCount of ${what}`),
    stateRoot: hex(fields.stateRoot, 32, `stateRoot of ${what}`),
    workNonce: hex(fields.workNonce, 8, `workNonce of ${what}`),
  };
}

/** @type {(value: unknown, what: string) => HistoryNode} */
function parseNode(value, what) {
  const parts = elements(value, what);
  must(parts.length === 4, `${what} must have digest, work, slot and clock`);
  const [digest, work, slot, clock] = parts;
  const right = typeof work === "string" && /^(?:0|[1-9a-f][0-9a-f]{0,63})$/.test(work);
  must(right, `the work of ${what} must be at most 64 hex characters without a leading 0`);
  return {
    digest: hex(digest, 32, `the digest of ${what}`),
    work: BigInt(`0x${work}`),
    slot: decimal(slot, `the slot of ${what}`),
    clock: decimal(clock, `the clock of ${what}`),
  };
}

// Bytes

/** The bytes of hex that was checked.
 * @type {(text: string) => Bytes} */
export const bytesOfHex = (text) =>
  Uint8Array.from({ length: text.length / 2 }, (_, at) => Number.parseInt(text.slice(2 * at, 2 * at + 2), 16));

/** A number as so many bytes, the most significant first.
 * @type {(number: bigint, size: number) => Bytes} */
export const bytesOfNumber = (number, size) => bytesOfHex(number.toString(16).padStart(2 * size, "0"));

/** The number in bytes, the most significant first.
 * @type {(bytes: Uint8Array) => bigint} */
const numberOf = (bytes) => BigInt(`0x${hexOf(bytes)}`);

// The history tree (section 9)

/** @type {(node: HistoryNode) => Bytes} */
const packed = ({ digest, work, slot, clock }) =>
  joined(bytesOfHex(digest), bytesOfNumber(work, 32), bytesOfNumber(slot, 8), bytesOfNumber(clock, 8));

/** The inner node over two neighbours.
 * @type {(left: HistoryNode, right: HistoryNode) => Promise<HistoryNode>} */
async function inner(left, right) {
  const digest = hexOf(await taggedHash("svc/history-node/v1", packed(left), packed(right)));
  return { digest, work: left.work + right.work, slot: right.slot, clock: right.clock };
}

/** The mountains over `blocks` blocks with the 2^level blocks of `node` on the right.
 * @type {(mountains: HistoryNode[], blocks: bigint, node: HistoryNode, level: bigint) => Promise<HistoryNode[]>} */
async function appended(mountains, blocks, node, level) {
  const kept = [...mountains];
  let last = node;
  for (let at = level; (blocks >> at) & 1n; at += 1n) last = await inner(/** @type {HistoryNode} */ (kept.pop()), last);
  return [...kept, last];
}

/** @type {(mountains: HistoryNode[]) => Promise<Bytes>} */
async function historyRoot(mountains) {
  let root = /** @type {HistoryNode} */ (mountains.at(-1));
  for (const mountain of mountains.slice(0, -1).reverse()) root = await inner(mountain, root);
  return taggedHash("svc/history-root/v1", packed(root));
}

/** The level of the first of the fewest perfect subtrees over the blocks from height `first` to `end` − 1.
 * @type {(first: bigint, end: bigint) => bigint} */
function firstLevel(first, end) {
  let level = 0n;
  while (!((first >> level) & 1n) && first + (2n << level) <= end) level += 1n;
  return level;
}

// Reading

/** The chain as far as it has been read, from left to right. */
export class ChainReader {
  #network;
  #rules;
  #nodes;
  /** The key hashes of the producers of the headers that were read, by height.
   * @type {Map<bigint, bigint>} */
  #producers = new Map();
  /** The key hashes in the addresses of producers.
   * @type {Map<string, bigint | null>} */
  #keys = new Map();
  /** The headers that were read, by height.
   * @type {ShownHeader[]} */
  headers = [];
  /** The last block that was read. */
  head;

  /** Begins at the genesis, or above `head`, a block that was proven before.
   * @param {Network} network
   * @param {HistoryNode[]} nodes over the blocks between the headers
   * @param {Head} [head] */
  constructor(network, nodes, head) {
    const genesis = { digest: network.genesisHash, work: 0n, slot: 0n, clock: 0n };
    this.#network = network;
    this.#rules = network.rules;
    this.#nodes = [...nodes];
    this.head = head ?? { hash: network.genesisHash, height: 0n, slot: 0n, clock: 0n, work: 0n, mountains: [genesis] };
  }

  /** Read a header, and before it the nodes up to it; throws InvalidProof.
   * @type {(header: Header) => Promise<void>} */
  async read(header) {
    must(header.height > this.head.height, "the heights of the headers must ascend from 1");
    while (this.head.height + 1n < header.height) await this.#skip(firstLevel(this.head.height + 1n, header.height));
    await this.#show(header);
  }

  /** Throw InvalidProof if nodes are left over, or if the last block is not `tip`.
   * @type {(tip: string) => void} */
  finish(tip) {
    const left = this.#nodes.length;
    must(left === 0, `${left} nodes of the proof belong to no gap between its headers`);
    must(this.head.hash === tip, `the last block of the proof is ${this.head.hash}, and not its tip ${tip}`);
  }

  /** @type {(level: bigint) => Promise<void>} */
  async #skip(level) {
    const { height, work, mountains } = this.head;
    const node = this.#nodes.shift();
    const [first, blocks] = [height + 1n, 1n << level];
    must(node, `the nodes over the blocks from height ${first} on are missing`);
    const sentence = `${blocks} blocks from height ${first} on cannot have slot, clock and work of their node`;
    must(isPossible(this.#rules, this.head, node, blocks), sentence);
    this.head = {
      // The digest of a leaf is the hash of its block.
      hash: level === 0n ? node.digest : "",
      height: height + blocks,
      slot: node.slot,
      clock: node.clock,
      work: sum(work, node.work),
      mountains: await appended(mountains, first, node, level),
    };
  }

  /** @type {(header: Header) => Promise<void>} */
  async #show(header) {
    const { height, slot, multiplier, transactionCount, transactionsRoot } = header;
    const [before, rules] = [this.head, this.#rules];
    must(slot > before.slot, `the slot at height ${height} must be greater than ${before.slot}, not ${slot}`);
    const builds = before.hash === "" || header.parentHash === before.hash;
    must(builds, `the header at height ${height} does not build on the block before it`);
    await this.#checkProducer(header);
    must(rules.multipliers.includes(multiplier), `multiplier ${multiplier} is not in the schedule`);
    const most = rules.maxBlockTransactions;
    must(transactionCount <= most, `a block has at most ${most} transactions, not ${transactionCount}`);
    const fits = (transactionCount === 0) === (transactionsRoot === NO_TRANSACTIONS);
    must(fits, "transactionsRoot is not that of so many transactions");
    const baseTarget = nextTarget(rules, height, before.clock);
    const work = sum(before.work, blockWork(baseTarget));
    const clock = height === 1n ? 0n : before.clock + lesser(slot - before.slot, rules.gapCapSlots);
    const consensusRoot = await this.#consensusRoot({ height, slot, clock, work });
    const coreHash = await this.#coreHash(header, baseTarget, hexOf(consensusRoot));
    const hash = hexOf(await taggedHash("svc/block-id/v4", coreHash, bytesOfHex(header.workNonce)));
    const target = effectiveTarget(baseTarget, multiplier);
    this.headers.push({ ...header, hash, coreHash, target, before: before.work, after: work });
    const leaf = { digest: hash, work: work - before.work, slot, clock };
    this.head = { hash, height, slot, clock, work, mountains: await appended(before.mountains, height, leaf, 0n) };
  }

  /** Throw InvalidProof if the list in force does not let the producer make the block (section 8a). Of the producers
   * before it, those count that the proof shows.
   * @type {(header: Header) => Promise<void>} */
  async #checkProducer({ height, producerPublicKey }) {
    const listed = producersAt(this.#rules, height);
    if (listed.length === 0) return;
    const own = numberOf((await taggedHash("svc/address/v1", bytesOfHex(producerPublicKey))).subarray(0, 20));
    const isListed = listed.some((address) => this.#keyIn(address) === own);
    must(isListed, `the producer of the block at height ${height} is not one of the ${listed.length} that may make it`);
    const between = BigInt(Math.floor(listed.length / 2));
    const sentence = `the producer of the block at height ${height} made one of the ${between} blocks before it`;
    for (let at = height - between; at < height; at += 1n) must(this.#producers.get(at) !== own, sentence);
    this.#producers.set(height, own);
  }

  /** @type {(address: string) => bigint | null | undefined} */
  #keyIn(address) {
    if (!this.#keys.has(address)) this.#keys.set(address, keyOf(address, this.#network.prefix));
    return this.#keys.get(address);
  }

  /** @type {(point: { height: bigint, slot: bigint, clock: bigint, work: bigint }) => Promise<Bytes>} */
  async #consensusRoot({ height, slot, clock, work }) {
    const rules = this.#rules;
    return taggedHash(
      "svc/consensus/v1",
      bytesOfHex(rules.rulesHash),
      bytesOfHex(this.#network.genesisHash),
      ...[height, slot, clock].map((number) => bytesOfNumber(number, 8)),
      bytesOfNumber(work, 32),
      bytesOfNumber(nextTarget(rules, height + 1n, clock), 32),
      bytesOfNumber(issuedAfter(rules, height), 8),
      await historyRoot(this.head.mountains),
    );
  }

  /** @type {(header: Header, baseTarget: bigint, consensusRoot: string) => Promise<Bytes>} */
  #coreHash(header, baseTarget, consensusRoot) {
    // The members in the order of canonical JSON.
    const core = {
      baseTarget: baseTarget.toString(16).padStart(64, "0"),
      consensusRoot,
      height: `${header.height}`,
      multiplier: header.multiplier,
      networkId: this.#network.networkId,
      parentHash: header.parentHash,
      producerPublicKey: header.producerPublicKey,
      slot: `${header.slot}`,
      stateRoot: header.stateRoot,
      transactionCount: header.transactionCount,
      transactionsRoot: header.transactionsRoot,
      version: 4,
    };
    return taggedHash("svc/block/v4", utf8(JSON.stringify(core)));
  }
}

/** @type {(work: bigint, more: bigint) => bigint} */
function sum(work, more) {
  must(work + more < LIMIT, "the work of all blocks together must be below 2^256");
  return work + more;
}

/** Whether so many blocks after `before` can have slot, clock and work of `node`: otherwise thousands of easy blocks
 * that were never made could raise the difficulty until one lucky block outweighs the real chain.
 * @type {(rules: ChainRules, before: Head, node: HistoryNode, blocks: bigint) => boolean} */
function isPossible(rules, before, { slot, clock, work }, blocks) {
  const first = before.height + 1n;
  if (first === 1n) return clock === 0n && slot > 0n && work === blockWork(rules.initialTarget);
  const passed = clock - before.clock;
  if (passed < blocks || passed > lesser(slot - before.slot, rules.gapCapSlots * blocks)) return false;
  const step = rules.slotsPerBlock > 1n ? rules.slotsPerBlock - 1n : 1n;
  const halves = rules.halfLifeSlots / step;
  const counted = lesser(blocks, halves > 1n ? halves : 1n);
  const lag = clock - rules.slotsPerBlock * (first + blocks - 2n) + step * counted;
  return work >= counted * blockWork(targetAt(rules, lag));
}

/** All that a proof shows, but the work of its headers; throws InvalidProof.
 * @type {(proof: ChainProof, network: Network, demands?: Demands) => Promise<ReadChain>} */
export async function checkChain(proof, network, { minimumWork = 0n, recent = RECENT, samples = SAMPLES } = {}) {
  const reader = new ChainReader(network, proof.nodes);
  for (const header of proof.headers) await reader.read(header);
  reader.finish(proof.tip);
  const { head, headers } = reader;
  const newest = Math.min(recent, Number(head.height));
  const lowest = head.height - BigInt(newest) + 1n;
  const shown = new Set(headers.map(({ height }) => height));
  for (let height = lowest; height <= head.height; height += 1n)
    must(shown.has(height), `the header at height ${height} is missing; the newest ${recent} must be there`);
  const asked = new Set();
  if (head.height > newest) {
    const total = /** @type {ShownHeader} */ (headers.at(-1)).before;
    const below = /** @type {ShownHeader} */ (headers.at(-newest)).before;
    for (const drawn of await draws(head.hash, { total, below, samples })) {
      const hit = headers.findLast(({ before }) => before <= drawn);
      const falls = hit !== undefined && drawn < hit.after;
      must(falls, `the header on which the draw at the work ${drawn.toString(16)} falls is missing`);
      asked.add(hit);
    }
  }
  const more = headers.filter((each) => each.height < lowest && !asked.has(each)).length;
  must(more <= MAX_MORE, `${more} headers are there that nothing asks for; at most ${MAX_MORE} may be`);
  const least = minimumWork.toString(16);
  must(head.work >= minimumWork, `the chain has the work ${head.work.toString(16)}, less than the required ${least}`);
  return { head, headers };
}

/** The amounts of cumulative work whose blocks a proof must show: `total` is that of the tip's parent, `below` that of
 * the last block before the recent ones.
 * @type {(tip: string, work: { total: bigint, below: bigint, samples: number }) => Promise<bigint[]>} */
async function draws(tip, { total, below, samples }) {
  const drawn = [];
  for (let halving = 0n; total >> halving > total - below; halving += 1n) {
    const [low, high] = [total - (total >> halving), total - (total >> (halving + 1n))];
    for (let number = 0; number < samples; number += 1) {
      const place = [bytesOfHex(tip), bytesOfNumber(halving, 8), bytesOfNumber(BigInt(number), 8)];
      drawn.push(low + (numberOf(await taggedHash("svc/sample/v1", ...place)) % (high - low)));
    }
  }
  return drawn;
}

/** When the slot of the newest block began, in Unix milliseconds; throws InvalidProof if that is more than five minutes
 * after `now`.
 * @type {(network: Network, slot: bigint, now: number) => bigint} */
export function tipTime(network, slot, now) {
  const time = slotTime(network.rules, slot);
  const ahead = "the newest block is more than five minutes in the future of this computer's clock";
  must(time <= BigInt(now) + AHEAD, ahead);
  return time;
}

/** What evaluates participation work (section 1) with the function `argon2id` of hash-wasm.
 * @type {(argon2id: Argon2id) => Evaluate} */
export const evaluating = (argon2id) => {
  const fixed = /** @type {const} */ ({ iterations: 1, parallelism: 1, hashLength: 32, outputType: "binary" });
  return (password, memorySize) => argon2id({ ...fixed, salt: WORK_SALT, password, memorySize });
};

/** Check the participation work of headers, the last one first; throws InvalidProof.
 *
 * `checked` has the hashes of the headers whose work was found to be right before, and gets those of these. `signal`
 * ends the check between two headers with its reason.
 * @type {(headers: ShownHeader[], network: Network, options: { evaluate: Evaluate, checked?: Set<string>,
 *   progress?: (done: number, total: number) => void, signal?: AbortSignal }) => Promise<void>} */
export async function checkWork(headers, network, { evaluate, checked = new Set(), progress = () => {}, signal }) {
  const { memoryKiB } = network.rules;
  const left = headers.filter(({ hash }) => !checked.has(hash)).reverse();
  let began = performance.now();
  for (const [done, { hash, coreHash, workNonce, target }] of left.entries()) {
    signal?.throwIfAborted();
    progress(done, left.length);
    const value = numberOf(await evaluate(joined(coreHash, bytesOfHex(workNonce)), memoryKiB));
    if (value >= target) throw new InvalidProof(`the work of block ${hash} does not reach its target`);
    checked.add(hash);
    if (performance.now() - began < TURN) continue;
    await new Promise((resolve) => setTimeout(resolve));
    began = performance.now();
  }
  progress(left.length, left.length);
}
