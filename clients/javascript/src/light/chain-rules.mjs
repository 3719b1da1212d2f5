// What the rules of a network say about headers (docs/protocol.md 1 and 5 to 9), for clients that check proofs.

import { GREATEST } from "./units.mjs";

/** @typedef {"mainnet" | "devnet"} NetworkName */
/**
 * @typedef {object} NetworkParams as far as the checks need them.
 * @property {string} name in RULES, or another if it has its own rules
 * @property {number} networkId
 * @property {string} chainId
 * @property {string} prefix of addresses
 * @property {string} genesisHash
 * @property {ChainRules} [rules] of a network that is not in RULES
 */
/** @typedef {{ height: bigint, producers: readonly string[] }} ProducerChange another list from a height on. */
/**
 * @typedef {object} ChainRules of a network, in which slots, heights, amounts and targets are whole numbers.
 * @property {string} rulesHash 64 hex
 * @property {string} genesisStateRoot 64 hex
 * @property {bigint} genesisTime Unix milliseconds
 * @property {bigint} slotSeconds
 * @property {bigint} slotsPerBlock
 * @property {bigint} halfLifeSlots
 * @property {bigint} gapCapSlots
 * @property {number} memoryKiB of one Argon2id evaluation
 * @property {bigint} initialTarget
 * @property {bigint} maxTarget
 * @property {bigint} minTarget
 * @property {bigint} initialReward base units
 * @property {bigint} halvingBlocks 0 if the reward never halves; it ends before more than 2^53 − 1 would exist
 * @property {bigint} allocated base units that exist from the beginning
 * @property {bigint} minimumFee of a transfer, in base units
 * @property {readonly number[]} multipliers of the schedule, in basis points
 * @property {number} maxBlockTransactions
 * @property {bigint} transactionPastSeconds
 * @property {bigint} transactionFutureSeconds
 * @property {readonly string[]} [producers] the addresses that may make blocks; everybody may where there are none
 * @property {readonly ProducerChange[]} [changes] of the producers, by ascending height
 */

const COMMON = {
  genesisTime: 1_793_491_200_000n,
  minTarget: 1n << 160n,
  initialReward: 2_000_000_000n,
  minimumFee: 10_000n,
  multipliers: Object.freeze([10_000, 10_200, 10_400, 10_700, 11_000]),
  maxBlockTransactions: 2_000,
  transactionPastSeconds: 86_400n,
};

/** The rules of each network, whose producers are not listed: everybody may make blocks.
 * @type {Readonly<Record<NetworkName, ChainRules>>} */
export const RULES = Object.freeze({
  mainnet: Object.freeze({
    ...COMMON,
    rulesHash: "c0ab3a203897968413099c4fa07afaf3054e5b98dd622765be52d4d7cb7f51ba",
    genesisStateRoot: "0000000000000000000000000000000000000000000000000000000000000000",
    slotSeconds: 10n,
    slotsPerBlock: 6n,
    halfLifeSlots: 720n,
    gapCapSlots: 120n,
    memoryKiB: 8_192,
    initialTarget: 1n << 242n,
    maxTarget: 1n << 244n,
    halvingBlocks: 2_100_000n,
    allocated: 0n,
    transactionFutureSeconds: 600n,
  }),
  devnet: Object.freeze({
    ...COMMON,
    rulesHash: "6daf3cce2ccf26b409502e7ae6397add69b9828d4c2c8cfcc5495e9ea639c599",
    genesisStateRoot: "12a2b68ea36fb0777a06cce1443e55f845e1770aaffa9cdbdc0fa91c6e938e70",
    slotSeconds: 1n,
    slotsPerBlock: 2n,
    halfLifeSlots: 60n,
    gapCapSlots: 10n,
    memoryKiB: 1_024,
    initialTarget: 1n << 252n,
    maxTarget: 1n << 254n,
    halvingBlocks: 10_000n,
    allocated: 100_000_000_000_000n,
    transactionFutureSeconds: 315_360_000n,
  }),
});

/** The rules of a network.
 * @type {(network: NetworkParams) => ChainRules} */
export const rulesOf = ({ name, rules }) => rules ?? RULES[/** @type {NetworkName} */ (name)];

/** The addresses that may make the block at a height; none if everybody may (section 8a).
 * @type {(rules: ChainRules, height: bigint) => readonly string[]} */
export const producersAt = ({ producers = [], changes = [] }, height) =>
  changes.findLast((change) => change.height <= height)?.producers ?? producers;

/** 2^256, above every target and all work. */
export const LIMIT = 1n << 256n;

const RADIX = 65_536n;

/** The lesser of two.
 * @type {(one: bigint, other: bigint) => bigint} */
export const lesser = (one, other) => (one < other ? one : other);

/** The base target of a block whose parent is `lag` slots behind the schedule (section 7).
 * @type {(rules: ChainRules, lag: bigint) => bigint} */
export function targetAt(rules, lag) {
  const { initialTarget, halfLifeSlots, maxTarget, minTarget } = rules;
  // Division of BigInt truncates toward zero, as the rule does.
  const exponent = (lag * RADIX) / halfLifeSlots;
  if (exponent >= 256n * RADIX) return maxTarget;
  if (exponent <= -256n * RADIX) return minTarget;
  const part = BigInt.asUintN(16, exponent);
  const cubic = 195_766_423_245_049n * part + 971_821_376n * part ** 2n + 5_127n * part ** 3n + (1n << 47n);
  const shift = (exponent >> 16n) - 16n;
  const target = initialTarget * (RADIX + (cubic >> 48n));
  const shifted = shift >= 0n ? target << shift : target >> -shift;
  return shifted < minTarget ? minTarget : lesser(shifted, maxTarget);
}

/** The base target of the block at `height` ≥ 1, whose parent has the difficulty clock `clock`.
 * @type {(rules: ChainRules, height: bigint, clock: bigint) => bigint} */
export const nextTarget = (rules, height, clock) =>
  height === 1n ? rules.initialTarget : targetAt(rules, clock - rules.slotsPerBlock * (height - 2n));

/** The work that a block adds to its chain.
 * @type {(baseTarget: bigint) => bigint} */
export const blockWork = (baseTarget) => LIMIT / baseTarget;

/** The bound of work values of a header with this multiplier in basis points (section 6).
 * @type {(baseTarget: bigint, multiplier: number) => bigint} */
export const effectiveTarget = (baseTarget, multiplier) =>
  lesser((baseTarget * BigInt(multiplier)) / 10_000n, LIMIT - 1n);

/** The base units that exist after the block at a height.
 * @type {(rules: ChainRules, height: bigint) => bigint} */
export function issuedAfter({ allocated, initialReward, halvingBlocks }, height) {
  if (halvingBlocks === 0n) {
    const rewarded = initialReward > 0n ? (GREATEST - allocated) / initialReward : 0n;
    return allocated + initialReward * lesser(height, rewarded);
  }
  let issued = allocated;
  for (let reward = initialReward, left = height; left > 0n && reward > 0n; reward >>= 1n, left -= halvingBlocks)
    issued += reward * lesser(left, halvingBlocks);
  return issued;
}

/** What an account proof of the genesis is checked against, which no chain proof has a header of.
 * @type {(network: NetworkParams) => { hash: string, height: bigint, stateRoot: string }} */
export const genesisOf = (network) => ({
  hash: network.genesisHash,
  height: 0n,
  stateRoot: rulesOf(network).genesisStateRoot,
});

/** The Unix time in milliseconds at which a slot begins.
 * @type {(rules: ChainRules, slot: bigint) => bigint} */
export const slotTime = ({ genesisTime, slotSeconds }, slot) => genesisTime + slot * slotSeconds * 1000n;
