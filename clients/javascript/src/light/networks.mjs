// The networks that are built in, and the rules that make a network (docs/protocol.md 1). The values are frozen, so a
// node that says otherwise is on another network. The rules of any other network come from network-rules.mjs.

/** @typedef {"mainnet" | "devnet"} NetworkName */
/**
 * @typedef {object} Network
 * @property {string} name what this program calls it
 * @property {number} networkId
 * @property {string} chainId
 * @property {string} prefix of addresses
 * @property {string} genesisHash
 * @property {ChainRules} rules
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
 * @property {bigint} accountMinimum what sender and recipient must each have after a transfer, in base units
 * @property {readonly number[]} multipliers of the schedule, in basis points
 * @property {number} maxBlockTransactions
 * @property {bigint} transactionPastSeconds
 * @property {bigint} transactionFutureSeconds
 * @property {readonly string[]} [producers] the addresses that may make blocks; everybody may where there are none
 * @property {readonly ProducerChange[]} [changes] of the producers, by ascending height
 */

/** The greatest fee that is paid because a node suggests it, in minimum fees. */
export const FEE_LIMIT = 100n;

const COMMON = {
  genesisTime: 1_793_491_200_000n,
  minTarget: 1n << 160n,
  initialReward: 2_000_000_000n,
  minimumFee: 10_000n,
  accountMinimum: 1_000_000n,
  multipliers: Object.freeze([10_000, 10_200, 10_400, 10_700, 11_000]),
  maxBlockTransactions: 2_000,
  transactionPastSeconds: 86_400n,
};

/** Their producers are not listed: everybody may make blocks.
 * @type {Readonly<Record<NetworkName, Network & { name: NetworkName }>>} */
export const NETWORKS = Object.freeze({
  mainnet: Object.freeze({
    name: "mainnet",
    networkId: 1,
    chainId: "SVC-MAINNET",
    prefix: "svc",
    genesisHash: "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227",
    rules: Object.freeze({
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
  }),
  devnet: Object.freeze({
    name: "devnet",
    networkId: 2,
    chainId: "SVC-DEVNET",
    prefix: "svcd",
    genesisHash: "3259c9ccf88c6586b6cae763e14a0f96b6db181f372df00e01776e855de4e444",
    rules: Object.freeze({
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
  }),
});

/** The Unix time in milliseconds at which a slot begins.
 * @type {(rules: ChainRules, slot: bigint) => bigint} */
export const slotTime = ({ genesisTime, slotSeconds }, slot) => genesisTime + slot * slotSeconds * 1000n;
