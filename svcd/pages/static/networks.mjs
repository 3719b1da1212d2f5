// The networks of docs/protocol.md 1. The values are frozen, so a node that says otherwise is on another network.
// A network of somebody's own has the same members, made of its rules (own-network.mjs).

/** @import { NetworkName } from "./chain-rules.mjs" */
/**
 * @typedef {object} Network
 * @property {string} name
 * @property {number} networkId
 * @property {string} chainId
 * @property {string} prefix of addresses
 * @property {number} blockSeconds the time between blocks, on average
 * @property {number} slotSeconds the length of a slot
 * @property {number} futureSeconds how much later than a block the timestamps of its transfers may be
 * @property {number} lifetime for how long after its timestamp a transfer can enter a block, in milliseconds
 * @property {number} genesisTime when slot 0 begins, in Unix milliseconds
 * @property {bigint} minimumFee of a transfer, in base units
 * @property {bigint} accountMinimum what sender and recipient must each have after a transfer, in base units
 * @property {string} genesisHash
 */
/** @typedef {Network & { name: NetworkName }} BuiltIn */

/** The greatest fee that is paid because a node suggests it, in minimum fees. */
export const FEE_LIMIT = 100n;

/** From this number of confirmations on, nobody expects a reorganisation to take a payment back. */
export const DEEP = 100;

const COMMON = { lifetime: 86_400_000, genesisTime: 1_793_491_200_000, minimumFee: 10_000n, accountMinimum: 1_000_000n };

/** @type {Readonly<Record<NetworkName, BuiltIn>>} */
export const NETWORKS = Object.freeze({
  mainnet: Object.freeze({
    ...COMMON,
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
    ...COMMON,
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

/** The built-in network with this chainId; undefined for another.
 * @type {(chainId: unknown) => BuiltIn | undefined} */
export const builtIn = (chainId) => Object.values(NETWORKS).find((network) => network.chainId === chainId);

/** What a keyfile calls a network: names other than the built-in ones say nothing elsewhere.
 * @type {(network: Network) => string} */
export const idOf = ({ name, chainId, genesisHash }) => (builtIn(chainId) ? name : genesisHash);
