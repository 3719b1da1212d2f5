// The networks of docs/protocol.md 1. The values are frozen, so a node that says otherwise is on another network.

/** @import { NetworkName } from "./chain-rules.mjs" */
/**
 * @typedef {object} Network
 * @property {NetworkName} name
 * @property {number} networkId
 * @property {string} chainId
 * @property {string} prefix of addresses
 * @property {number} blockSeconds the time between blocks, on average
 * @property {number} slotSeconds the length of a slot
 * @property {number} futureSeconds how much later than a block the timestamps of its transfers may be
 * @property {string} genesisHash
 */

/** One coin in base units. */
export const COIN = 100_000_000n;

/** The greatest number on the wire, 2^53 − 1. */
export const GREATEST = 9_007_199_254_740_991n;

/** The least fee of a transfer in base units, on both networks. */
export const MINIMUM_FEE = 10_000n;

/** The greatest fee that is paid because a node suggests it. */
export const MAXIMUM_FEE = 100n * MINIMUM_FEE;

/** What sender and recipient must each have after a transfer, in base units, on both networks. */
export const ACCOUNT_MINIMUM = 1_000_000n;

/** From this number of confirmations on, nobody expects a reorganisation to take a payment back. */
export const DEEP = 100;

/** When slot 0 begins on both networks, in Unix milliseconds. */
export const GENESIS_TIME = 1_793_491_200_000;

/** For how long after its timestamp a transfer can enter a block, in milliseconds. */
export const LIFETIME = 86_400_000;

/** @type {Readonly<Record<NetworkName, Network>>} */
export const NETWORKS = Object.freeze({
  mainnet: Object.freeze({
    name: "mainnet",
    networkId: 1,
    chainId: "SVC-MAINNET",
    prefix: "svc",
    blockSeconds: 60,
    slotSeconds: 10,
    futureSeconds: 600,
    genesisHash: "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227",
  }),
  devnet: Object.freeze({
    name: "devnet",
    networkId: 2,
    chainId: "SVC-DEVNET",
    prefix: "svcd",
    blockSeconds: 2,
    slotSeconds: 1,
    futureSeconds: 315_360_000,
    genesisHash: "3259c9ccf88c6586b6cae763e14a0f96b6db181f372df00e01776e855de4e444",
  }),
});
