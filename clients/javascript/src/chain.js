// Networks, addresses, amounts and references (docs/protocol.md 1 to 4).

import { InvalidInput } from "./errors.js";
import { SYMBOLS } from "./light/bech32.mjs";
import { hexOf, sha256, utf8 } from "./light/bytes.mjs";
import { keyOf } from "./light/key-hash.mjs";
import { NETWORKS as BUILT_IN } from "./light/networks.mjs";
import { DEFAULT_CONFIRMATIONS, isDepth, isReference } from "./light/orders.mjs";
import { formatAmount, GREATEST, unitsOf, wireNumber } from "./light/units.mjs";
import { shown } from "./members.js";

/** The smallest fee of a transfer on mainnet and devnet, in base units. */
export const MINIMUM_FEE = BUILT_IN.mainnet.rules.minimumFee;

/** What coins are called on a network that does not say it. */
export const DEFAULT_UNIT = "SVC";
export const MAINNET = Object.freeze({ ...BUILT_IN.mainnet, unit: DEFAULT_UNIT });
export const DEVNET = Object.freeze({ ...BUILT_IN.devnet, unit: DEFAULT_UNIT });
/** The networks that are built in. */
export const NETWORKS = Object.freeze([MAINNET, DEVNET]);

export function must(truth, sentence) {
  if (!truth) throw new InvalidInput(sentence);
}

/** Refuses members with other names: a misspelt `reference` would make a payment without one. */
export function checkNames(given, ...names) {
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  must(unknown === undefined, `unknown member ${unknown}; use ${names.join(", ")}`);
}

/** `network` if it is one: not its name, and not a promise of one. */
export function checkNetwork(network) {
  const is = typeof network === "object" && network !== null && typeof network.rules === "object";
  must(is, "network must be MAINNET, DEVNET or a network that parseNetwork has returned");
  return network;
}

// Numbers and amounts

/** The BigInt of a bigint or a decimal string in a range; a number is refused, because it may have been rounded. */
export function integer(value, name, least = 0n, greatest = GREATEST) {
  const given = typeof value === "bigint" ? value : wireNumber(value);
  const form = `${name} must be a bigint or a string of digits from ${least} to ${greatest}`;
  must(given !== null && given >= least && given <= greatest, form);
  return given;
}

/** The base units of a decimal number of coins such as "25" or "0.5". */
export function parseAmount(coins) {
  const units = unitsOf(coins);
  must(units !== null, "an amount of coins is a decimal such as 25 or 0.5, with at most 8 decimal places");
  return integer(units, "amount", 1n);
}

/** The coins of base units with the `unit` of their network: "12.5 SVC". */
export const formatCoins = (units, unit) => `${formatAmount(units)} ${unit}`;

// References and addresses

export function checkReference(reference) {
  must(isReference(reference), "a reference is 1 to 64 of the characters A-Z a-z 0-9 . _ : -, and not . or ..");
  return reference;
}

/** The reference that `svc wallet refund` gives the refund of a payment. */
export async function refundReference(reference, txid) {
  if (reference === null) return `refund:${txid.slice(0, 32)}`;
  if (reference.length <= 57) return `refund:${reference}`;
  return `refund:${reference.slice(0, 40)}.${hexOf(await sha256(utf8(reference))).slice(0, 16)}`;
}

/** Whether a text has the form of an address with a prefix, whose checksum may be wrong. */
const hasForm = (text, prefix) => new RegExp(`^${prefix}1q[${SYMBOLS}]{38}$`).test(text);

/** The network of an address of mainnet or devnet. */
export function networkOf(address) {
  must(typeof address === "string", "an address must be a string");
  const network = NETWORKS.find(({ prefix }) => hasForm(address, prefix));
  const form = "an address begins with svc1q, or svcd1q on devnet, and 38 more lower-case characters follow";
  must(network !== undefined, `${form}; of a network of your own, give the network, too`);
  checkAddress(address, network);
  return network;
}

/** The network of an address: `network`, if it is given, or else mainnet or devnet. */
export function networkFor(address, network) {
  if ((network ?? null) === null) return networkOf(address);
  checkAddress(address, checkNetwork(network));
  return network;
}

/** `address` if it is one of `network`. */
export function checkAddress(address, network) {
  keyIn(address, network.prefix, network.name);
  return address;
}

/** The key hash in an address with a prefix, that of the network `name`, as a number. */
export function keyIn(address, prefix, name) {
  must(typeof address === "string", "an address must be a string");
  const form = `those have ${prefix}1q and 38 more lower-case characters`;
  must(hasForm(address, prefix), `'${shown(address.slice(0, 90))}' is not an address of ${name}: ${form}`);
  const key = keyOf(address, prefix);
  must(key !== null, `${address} is mistyped: its checksum is wrong`);
  return key;
}

export function checkConfirmations(count) {
  must(isDepth(count), "confirmations must be an integer from 1 to 1000");
  return count;
}

/** An order with every value checked, as strings and numbers that JSON can store.
 *
 * `network` is that of the recipient, and must be given unless it is mainnet or devnet.
 */
export function checkOrder(order, network) {
  must(typeof order === "object" && order !== null, "an order is an object");
  const { reference, recipient, amount, confirmations = DEFAULT_CONFIRMATIONS, sinceHeight = null } = order;
  networkFor(recipient, network);
  return {
    reference: checkReference(reference),
    recipient,
    amount: integer(amount, "amount", 1n).toString(),
    confirmations: checkConfirmations(confirmations),
    sinceHeight: sinceHeight === null ? null : integer(sinceHeight, "sinceHeight").toString(),
  };
}

/** Whether the hostname of a URL is this computer. */
export const isLoopback = (hostname) => /^(?:localhost|127(?:\.[0-9]+){3}|\[::1\])$/.test(hostname);

/** A payment reference that nobody has used: pay_ and 130 random bits in base32, as a node makes one. */
export function newReference() {
  const random = crypto.getRandomValues(new Uint8Array(26));
  return `pay_${Array.from(random, (byte) => "abcdefghijklmnopqrstuvwxyz234567"[byte & 31]).join("")}`;
}
