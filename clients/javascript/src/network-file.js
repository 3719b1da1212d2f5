// A network of your own: what `svc network show --json` prints of its file (docs/own-network.md).
//
// The genesis hash follows from the rules (docs/protocol.md 5), and a text whose rules give another one than it says is
// refused: so everything that is computed from the rules belongs to the network whose hash a user was given.

import { GREATEST, keyIn, must, NETWORKS } from "./chain.js";
import { canonical } from "./encodings.js";
import { InvalidInput } from "./errors.js";
import { leafHash, pairHash } from "./light/account-proof.mjs";
import { hexOf, taggedHash, utf8 } from "./light/bytes.mjs";

const MAX_CHARACTERS = 4 * 1024 * 1024;
const KEY_BITS = 160;
const HASH = /^[0-9a-f]{64}$/;
const MOST = { producers: 1_000, allocations: 10_000, changes: 1_000, multiplierSchedule: 16 };
const INTEGERS = {
  networkId: [1000, 2 ** 31 - 1],
  slotSeconds: [1, 600],
  slotsPerBlock: [2, 1_000],
  halfLifeSlots: [20, 1_000_000],
  gapCapSlots: [6, 1_000_000],
  memoryKiB: [64, 65_536],
  halvingBlocks: [0, 10 ** 9],
  maxBlockTransactions: [1, 2_000],
  maxBlockBytes: [16_384, 1_310_720],
  transactionPastSeconds: [600, 604_800],
  transactionFutureSeconds: [60, 315_360_000],
};
/** The least base units. */
const AMOUNTS = { initialReward: 0n, minimumFee: 1n, accountMinimum: 1n, holdingMinimum: 1n };
const TARGETS = ["minTarget", "initialTarget", "maxTarget"];
const OTHERS = ["chainId", "addressPrefix", "genesisTime", "multiplierSchedule", "producers", "allocations"];
const RULES = [...OTHERS, ...Object.keys(INTEGERS), ...Object.keys(AMOUNTS), ...TARGETS];

// Values of one form

function table(value, what, names) {
  const is = typeof value === "object" && value !== null && !Array.isArray(value);
  must(is, `${what} must be an object: this is not the file of a network`);
  const missing = names.find((name) => !Object.hasOwn(value, name));
  must(missing === undefined, `${what} lacks ${missing}`);
  return value;
}

function list(value, what) {
  must(Array.isArray(value) && value.length <= MOST[what], `${what} must be an array of at most ${MOST[what]}`);
  return value;
}

function matched(form, value, sentence) {
  must(typeof value === "string" && form.test(value), sentence);
  return value;
}

function whole(value, what, [least, greatest]) {
  const right = Number.isInteger(value) && value >= least && value <= greatest;
  must(right, `${what} must be an integer from ${least} to ${greatest}`);
  return value;
}

function decimal(value, what, least = 1n) {
  const right = typeof value === "string" && /^(?:0|[1-9][0-9]{0,15})$/.test(value);
  const sentence = `${what} must be a string of digits from ${least} to ${GREATEST}`;
  must(right && BigInt(value) >= least && BigInt(value) <= GREATEST, sentence);
  return BigInt(value);
}

const pairOf = (value) => (Array.isArray(value) && value.length === 2 ? value : [null, null]);
const keyOf = (value, prefix) => keyIn(value, prefix, "the network");

/** Whether each number is greater than the one before it. */
const ascending = (numbers) => numbers.every((number, at) => at === 0 || numbers[at - 1] < number);

// The rules

/** The network that `svc network show --json` has printed; rejects with InvalidInput.
 *
 * Compare its genesis hash once with what the founder of the network says by another way. The result never changes.
 */
export async function parseNetwork(text) {
  must(typeof text === "string", "give the text that svc network show --json has printed");
  must(text.length <= MAX_CHARACTERS, `a network has at most ${MAX_CHARACTERS} characters of JSON`);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidInput("this is not JSON: give the output of svc network show --json");
  }
  const { name, rules, changes, genesisHash } = table(value, "the file", ["name", "rules", "changes", "genesisHash"]);
  const later = list(changes, "changes").map((each) => {
    const { height, producers } = table(each, "each of changes", ["height", "producers"]);
    return { height: decimal(height, "the height of a change"), producers };
  });
  table(rules, "rules", RULES);
  const unknown = Object.keys(rules).find((rule) => !RULES.includes(rule));
  const old = "this version of svc-pay may be too old for it";
  must(unknown === undefined, `rules has the unknown rule '${unknown?.slice(0, 64)}': ${old}`);
  const rulesHash = await checkedHash(rules, genesisHash);
  for (const known of NETWORKS) {
    if (known.genesisHash === genesisHash) return known;
    const taken = known.name === name || known.chainId === rules.chainId || known.prefix === rules.addressPrefix;
    must(!taken, `name, chainId and addressPrefix must not be those of ${known.name}`);
  }
  const hyphens = "digits and hyphens inside";
  matched(/^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/, name, `name must be 1 to 32 lower-case letters, ${hyphens}`);
  const { chainId, networkId, addressPrefix: prefix } = rules;
  matched(/^[A-Z0-9](?:[A-Z0-9-]{0,30}[A-Z0-9])?$/, chainId, `chainId must be 1 to 32 capitals, ${hyphens}`);
  matched(/^[a-z]{2,8}$/, prefix, "addressPrefix must be 2 to 8 lower-case letters");
  whole(networkId, "networkId", INTEGERS.networkId);
  const read = await rulesIn(rules, { rulesHash, prefix, later });
  return Object.freeze({ name, networkId, chainId, prefix, genesisHash, rules: read });
}

/** The hash of rules in hex; throws InvalidInput unless they give this genesis hash. */
async function checkedHash(rules, genesisHash) {
  matched(HASH, genesisHash, "the genesis hash must be 64 lower-case hex characters");
  const rulesHash = await taggedHash("svc/rules/v1", utf8(textOf(rules)));
  const header = await taggedHash("svc/genesis/v1", rulesHash);
  const given = hexOf(await taggedHash("svc/block-id/v4", header, new Uint8Array(8)));
  const advice = "get the file of the network again from those who founded it";
  const says = `the file says that the genesis hash is ${genesisHash}, and its rules give ${given}`;
  must(given === genesisHash, `${says}: ${advice}`);
  return hexOf(rulesHash);
}

function textOf(rules) {
  try {
    return canonical(rules);
  } catch {
    // A RangeError is of arrays that are nested too deep.
    throw new InvalidInput("a rule has a value that no rule can have");
  }
}

async function rulesIn(rules, { rulesHash, prefix, later }) {
  for (const [rule, bounds] of Object.entries(INTEGERS)) whole(rules[rule], rule, bounds);
  for (const [rule, least] of Object.entries(AMOUNTS)) decimal(rules[rule], rule, least);
  const targets = TARGETS.map((rule) => {
    const hex = matched(HASH, rules[rule], `${rule} must be 64 lower-case hex characters`);
    return BigInt(`0x${hex}`);
  });
  const [minTarget, initialTarget, maxTarget] = targets;
  const inOrder = 1n << 128n <= minTarget && minTarget <= initialTarget && initialTarget <= maxTarget;
  must(inOrder, "minTarget, initialTarget and maxTarget must ascend, from 2^128 on");
  const accounts = accountsIn(rules.allocations, prefix);
  const allocated = [...accounts.values()].reduce((sum, units) => sum + units, 0n);
  must(allocated <= GREATEST, `allocations must be ${GREATEST} base units at most together`);
  const producers = producersIn(rules.producers, prefix);
  const changes = later.map((each) =>
    Object.freeze({ height: each.height, producers: producersIn(each.producers, prefix) }),
  );
  const replace = "changes may only replace a list of producers by another one that is not empty";
  must(changes.length === 0 || [{ producers }, ...changes].every((each) => each.producers.length > 0), replace);
  must(ascending(changes.map(({ height }) => height)), "the heights of changes must ascend");
  const number = (rule) => BigInt(rules[rule]);
  return Object.freeze({
    rulesHash,
    genesisStateRoot: hexOf(await stateRoot([...accounts].map(([key, balance]) => ({ key, balance })))),
    genesisTime: decimal(rules.genesisTime, "genesisTime", 0n),
    slotSeconds: number("slotSeconds"),
    slotsPerBlock: number("slotsPerBlock"),
    halfLifeSlots: number("halfLifeSlots"),
    gapCapSlots: number("gapCapSlots"),
    memoryKiB: rules.memoryKiB,
    initialTarget,
    maxTarget,
    minTarget,
    initialReward: number("initialReward"),
    halvingBlocks: number("halvingBlocks"),
    allocated,
    minimumFee: number("minimumFee"),
    multipliers: multipliersIn(rules.multiplierSchedule),
    maxBlockTransactions: rules.maxBlockTransactions,
    transactionPastSeconds: number("transactionPastSeconds"),
    transactionFutureSeconds: number("transactionFutureSeconds"),
    producers,
    changes: Object.freeze(changes),
  });
}

/** The base units of allocations by key hash. */
function accountsIn(value, prefix) {
  const accounts = new Map();
  for (const [address, units] of list(value, "allocations").map(pairOf)) {
    const key = keyOf(address, prefix);
    must(!accounts.has(key), `allocations must name ${address} once`);
    accounts.set(key, decimal(units, "each amount of allocations"));
  }
  return accounts;
}

function producersIn(value, prefix) {
  const listed = list(value, "producers");
  const keys = new Set(listed.map((each) => keyOf(each, prefix)));
  must(keys.size === listed.length, "a list of producers must name each once");
  return Object.freeze([...listed]);
}

function multipliersIn(value) {
  const what = "each number of multiplierSchedule";
  const steps = list(value, "multiplierSchedule").map((pair) => {
    const [held, points] = pairOf(pair);
    return [whole(held, what, [0, Number(GREATEST)]), whole(points, what, [10_000, 11_000])];
  });
  const rising = steps.every(([, points], at) => at === 0 || steps[at - 1][1] <= points);
  const right = steps.length > 0 && rising && ascending(steps.map(([held]) => held));
  must(right, "multiplierSchedule must have steps that ascend");
  return Object.freeze(steps.map(([, points]) => points));
}

/** The root of the tree of these accounts, each with its key hash and its balance (docs/protocol.md 9). */
export async function stateRoot(accounts) {
  return subtree(
    [...accounts].sort((one, other) => (one.key < other.key ? -1 : 1)),
    0,
  );
}

/** The root of the accounts, by ascending key, whose first `depth` bits are the same. */
async function subtree(accounts, depth) {
  if (accounts.length === 0) return new Uint8Array(32);
  const [{ key, balance }] = accounts;
  if (accounts.length === 1) return leafHash(key, { balance, nonce: 0n, heldSince: null });
  const isRight = ({ key }) => ((key >> BigInt(KEY_BITS - 1 - depth)) & 1n) === 1n;
  const first = accounts.findIndex(isRight);
  const middle = first === -1 ? accounts.length : first;
  const halves = [accounts.slice(0, middle), accounts.slice(middle)];
  const [left, right] = await Promise.all(halves.map((half) => subtree(half, depth + 1)));
  return pairHash(left, right);
}
