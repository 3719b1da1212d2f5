// A network of your own: what `svc network show --json` prints of its file (docs/own-network.md).
//
// The genesis hash follows from the rules (docs/protocol.md 5), and a text whose rules give another one than it says is
// refused: so everything that is computed from the rules belongs to the network whose hash a user was given.

import { DEFAULT_UNIT, keyIn, must, NETWORKS } from "./chain.js";
import { InvalidInput, InvalidProof } from "./errors.js";
import { networkOfRules, RULES } from "./light/network-rules.mjs";
import { GREATEST, wireNumber } from "./light/units.mjs";

const MAX_CHARACTERS = 4 * 1024 * 1024;
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
  const number = wireNumber(value);
  must(number !== null && number >= least, `${what} must be a string of digits from ${least} to ${GREATEST}`);
  return number;
}

const pairOf = (value) => (Array.isArray(value) && value.length === 2 ? value : [null, null]);
const keyOf = (value, prefix) => keyIn(value, prefix, "the network");

/** Whether each number is greater than the one before it. */
const ascending = (numbers) => numbers.every((number, at) => at === 0 || numbers[at - 1] < number);

/** The network that `svc network show --json` has printed; rejects with InvalidInput.
 *
 * Compare its genesis hash once with what the founder of the network says by another way. The result never changes.
 */
export async function parseNetwork(text) {
  must(typeof text === "string", "give the text that svc network show --json has printed");
  must(text.length <= MAX_CHARACTERS, `a network has at most ${MAX_CHARACTERS} characters of JSON`);
  let value;
  try {
    value = JSON.parse(text.replace(/^\ufeff/, ""));
  } catch {
    throw new InvalidInput("this is not JSON: give the output of svc network show --json");
  }
  const file = table(value, "the file", ["name", "rules", "changes", "genesisHash"]);
  const { name, unit = DEFAULT_UNIT, rules, changes, genesisHash } = file;
  table(rules, "rules", RULES);
  const unknown = Object.keys(rules).find((rule) => !RULES.includes(rule));
  const old = "this version of svc-pay may be too old for it";
  must(unknown === undefined, `rules has the unknown rule '${unknown?.slice(0, 64)}': ${old}`);
  matched(HASH, genesisHash, "the genesis hash must be 64 lower-case hex characters");
  const known = NETWORKS.find((network) => network.genesisHash === genesisHash) ?? null;
  if (known === null) checkBounds({ name, unit }, rules, list(changes, "changes"));
  const read = await networkOf(rules, known === null ? changes : []);
  const advice = "get the file of the network again from those who founded it";
  const says = `the file says that the genesis hash is ${genesisHash}, and its rules give ${read.genesisHash}`;
  must(read.genesisHash === genesisHash, `${says}: ${advice}`);
  return known ?? frozen({ ...read, name, unit });
}

async function networkOf(rules, changes) {
  try {
    return await networkOfRules(rules, changes);
  } catch (error) {
    if (error instanceof InvalidProof) throw new InvalidInput(error.message);
    // Of arrays that are nested too deep.
    if (error instanceof RangeError) throw new InvalidInput("a rule has a value that no rule can have");
    throw error;
  }
}

/** A value of which nothing can be changed. */
function frozen(value) {
  if (typeof value === "object") Object.values(value).forEach(frozen);
  return Object.freeze(value);
}

// What a network that is not built in can have

function checkBounds({ name, unit }, rules, changes) {
  const { chainId, addressPrefix: prefix } = rules;
  for (const known of NETWORKS) {
    const taken = known.name === name || known.chainId === chainId || known.prefix === prefix;
    must(!taken, `name, chainId and addressPrefix must not be those of ${known.name}`);
  }
  const hyphens = "digits and hyphens inside";
  matched(/^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/, name, `name must be 1 to 32 lower-case letters, ${hyphens}`);
  matched(/^[A-Za-z]{1,12}$/, unit, "unit must be 1 to 12 letters from A to Z");
  matched(/^[A-Z0-9](?:[A-Z0-9-]{0,30}[A-Z0-9])?$/, chainId, `chainId must be 1 to 32 capitals, ${hyphens}`);
  matched(/^[a-z]{2,8}$/, prefix, "addressPrefix must be 2 to 8 lower-case letters");
  for (const [rule, bounds] of Object.entries(INTEGERS)) whole(rules[rule], rule, bounds);
  for (const [rule, least] of Object.entries(AMOUNTS)) decimal(rules[rule], rule, least);
  decimal(rules.genesisTime, "genesisTime", 0n);
  const [minTarget, initialTarget, maxTarget] = TARGETS.map((rule) =>
    BigInt(`0x${matched(HASH, rules[rule], `${rule} must be 64 lower-case hex characters`)}`),
  );
  const inOrder = 1n << 128n <= minTarget && minTarget <= initialTarget && initialTarget <= maxTarget;
  must(inOrder, "minTarget, initialTarget and maxTarget must ascend, from 2^128 on");
  checkAllocations(rules.allocations, prefix);
  checkChanges(rules.producers, changes, prefix);
  checkMultipliers(rules.multiplierSchedule);
}

function checkAllocations(value, prefix) {
  const keys = new Set();
  let allocated = 0n;
  for (const [address, units] of list(value, "allocations").map(pairOf)) {
    const key = keyOf(address, prefix);
    must(!keys.has(key), `allocations must name ${address} once`);
    keys.add(key);
    allocated += decimal(units, "each amount of allocations");
  }
  must(allocated <= GREATEST, `allocations must be ${GREATEST} base units at most together`);
}

function checkChanges(producers, changes, prefix) {
  checkProducers(producers, prefix);
  for (const each of changes) {
    const change = table(each, "each of changes", ["height", "producers"]);
    checkProducers(change.producers, prefix);
    decimal(change.height, "the height of a change");
  }
}

function checkProducers(value, prefix) {
  const keys = list(value, "producers").map((each) => keyOf(each, prefix));
  must(new Set(keys).size === keys.length, "a list of producers must name each once");
}

function checkMultipliers(value) {
  const what = "each number of multiplierSchedule";
  const steps = list(value, "multiplierSchedule").map((pair) => {
    const [held, points] = pairOf(pair);
    return [whole(held, what, [0, Number(GREATEST)]), whole(points, what, [10_000, 11_000])];
  });
  const rising = steps.every(([, points], at) => at === 0 || steps[at - 1][1] <= points);
  const right = steps.length > 0 && rising && ascending(steps.map(([held]) => held));
  must(right, "multiplierSchedule must have steps that ascend");
}
