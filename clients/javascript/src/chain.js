// Networks, addresses, amounts and references (docs/protocol.md 1 to 4).

import { bytesOfSize, canonical } from "./encodings.js";
import { InvalidInput } from "./errors.js";
import { checksum, KEY_SYMBOLS, SYMBOLS } from "./light/bech32.mjs";
import { hexOf, sha256, taggedHash, utf8 } from "./light/bytes.mjs";
import { keyOf } from "./light/key-hash.mjs";

/** Base units of one coin. */
export const COIN = 100_000_000n;
/** The smallest fee of a transfer, in base units. */
export const MINIMUM_FEE = 10_000n;
/** How many confirmations an order requires that does not say. */
export const DEFAULT_CONFIRMATIONS = 12;
/** How old a transfer can be at the time of its block: transactionPastSeconds of every network. */
export const TRANSFER_MILLISECONDS = 86_400_000n;
/** The greatest number on the wire, 2^53 − 1. */
export const GREATEST = 9_007_199_254_740_991n;

export const MAINNET = Object.freeze({
  name: "mainnet",
  networkId: 1,
  chainId: "SVC-MAINNET",
  prefix: "svc",
  genesisHash: "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227",
});
export const DEVNET = Object.freeze({
  name: "devnet",
  networkId: 2,
  chainId: "SVC-DEVNET",
  prefix: "svcd",
  genesisHash: "3259c9ccf88c6586b6cae763e14a0f96b6db181f372df00e01776e855de4e444",
});
export const NETWORKS = Object.freeze([MAINNET, DEVNET]);

export function must(truth, sentence) {
  if (!truth) throw new InvalidInput(sentence);
}

/** Refuses members with other names: a misspelt `reference` would make a payment without one. */
export function checkNames(given, ...names) {
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  must(unknown === undefined, `unknown member ${unknown}; use ${names.join(", ")}`);
}

// Numbers and amounts

/** The BigInt of a bigint or a decimal string in a range; a number is refused, because it may have been rounded. */
export function integer(value, name, least = 0n, greatest = GREATEST) {
  const decimal = typeof value === "string" && /^(0|[1-9][0-9]{0,15})$/.test(value);
  const given = typeof value === "bigint" || decimal ? BigInt(value) : null;
  const form = `${name} must be a bigint or a string of digits from ${least} to ${greatest}`;
  must(given !== null && given >= least && given <= greatest, form);
  return given;
}

/** The base units of a decimal number of coins such as "25" or "0.5". */
export function parseAmount(coins) {
  const match = typeof coins === "string" && coins.length <= 32 && /^(0|[1-9][0-9]*)(?:\.([0-9]{1,8}))?$/.exec(coins);
  must(match, "an amount of coins is a decimal such as 25 or 0.5, with at most 8 decimal places");
  return integer(BigInt(match[1]) * COIN + BigInt((match[2] ?? "").padEnd(8, "0")), "amount", 1n);
}

/** The shortest decimal number of coins of base units: "25", "0.5". */
export function formatAmount(units) {
  const given = BigInt(units);
  const size = given < 0n ? -given : given;
  const rest = (size % COIN).toString().padStart(8, "0").replace(/0+$/, "");
  return `${given < 0n ? "-" : ""}${size / COIN}${rest && "."}${rest}`;
}

// References and addresses

export function checkReference(reference) {
  const right =
    typeof reference === "string" && /^[A-Za-z0-9._:-]{1,64}$/.test(reference) && !/^\.\.?$/.test(reference);
  must(right, "a reference is 1 to 64 of the characters A-Z a-z 0-9 . _ : -, and not . or ..");
  return reference;
}

/** The reference that `svc wallet refund` gives the refund of a payment. */
export async function refundReference(reference, txid) {
  if (reference === null) return `refund:${txid.slice(0, 32)}`;
  if (reference.length <= 57) return `refund:${reference}`;
  return `refund:${reference.slice(0, 40)}.${hexOf(await sha256(utf8(reference))).slice(0, 16)}`;
}

/** The address of a 32-byte Ed25519 public key. */
export async function addressOf(publicKey, network) {
  const hash = BigInt(`0x${hexOf(await taggedHash("svc/address/v1", publicKey)).slice(0, 40)}`);
  const symbolAt = (place) => Number((hash >> BigInt(160 - 5 * place)) & 31n);
  const symbols = Array.from({ length: KEY_SYMBOLS + 1 }, (_, place) => symbolAt(place));
  const all = [...symbols, ...checksum(network.prefix, symbols)];
  return `${network.prefix}1${all.map((symbol) => SYMBOLS[symbol]).join("")}`;
}

/** The network of an address. */
export function networkOf(address) {
  must(typeof address === "string", "an address must be a string");
  for (const network of NETWORKS) {
    const form = new RegExp(`^${network.prefix}1q[${SYMBOLS}]{38}$`);
    if (!form.test(address)) continue;
    must(keyOf(address, network.prefix) !== null, `${address} is mistyped: its checksum is wrong`);
    return network;
  }
  throw new InvalidInput("an address begins with svc1q, or svcd1q on devnet, and 38 more lower-case characters follow");
}

/** `address` if it is one of `network`. */
export function checkAddress(address, network) {
  must(networkOf(address) === network, `${address} is not an address of ${network.name}`);
  return address;
}

/** An order with every value checked, as strings and numbers that JSON can store. */
export function checkOrder(order) {
  must(typeof order === "object" && order !== null, "an order is an object");
  const { reference, recipient, amount, confirmations = DEFAULT_CONFIRMATIONS, sinceHeight = null } = order;
  networkOf(recipient);
  const counts = Number.isInteger(confirmations) && confirmations >= 1 && confirmations <= 1000;
  must(counts, "confirmations must be an integer from 1 to 1000");
  return {
    reference: checkReference(reference),
    recipient,
    amount: integer(amount, "amount", 1n).toString(),
    confirmations,
    sinceHeight: sinceHeight === null ? null : integer(sinceHeight, "sinceHeight").toString(),
  };
}

/** The 32-byte txid of a transfer, signed or not: what its sender signs. */
export function txidOf(transaction, network) {
  const { signature: _, ...unsigned } = transaction;
  return taggedHash("svc/tx/v2", bytesOfSize(network.genesisHash, 32), utf8(canonical(unsigned)));
}

/** Whether the hostname of a URL is this computer. */
export const isLoopback = (hostname) => /^(?:localhost|127(?:\.[0-9]+){3}|\[::1\])$/.test(hostname);
