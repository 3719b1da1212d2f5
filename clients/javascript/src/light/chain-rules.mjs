// What the rules of a network say about headers (docs/protocol.md 1 and 5 to 9), for clients that check proofs.

import { GREATEST } from "./units.mjs";

/** @import { ChainRules, Network } from "./networks.mjs" */

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
 * @type {(network: Network) => { hash: string, height: bigint, stateRoot: string }} */
export const genesisOf = (network) => ({
  hash: network.genesisHash,
  height: 0n,
  stateRoot: network.rules.genesisStateRoot,
});
