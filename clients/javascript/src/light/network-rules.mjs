// The rules of a network that is not built in, made of what `svc network show` and GET /rpc/rules say of it. All of
// them give its genesis hash (docs/protocol.md 5), which a client was given; the changes of producers are in no hash
// there, so a client that has them from a node believes the node for these.

import { bytesOf, hexOf, joined, sha256, taggedHash, utf8 } from "./bytes.mjs";
import { canonical } from "./canonical-json.mjs";
import { keyOf } from "./key-hash.mjs";
import { decimal, elements, exactFields, hex, must, whole } from "./strict-json.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Network, ProducerChange } from "./networks.mjs" */
/** @typedef {{ key: bigint, balance: bigint }} Allocation an account of the genesis, by its key hash. */

/** The names of all rules. */
export const RULES = [
  "chainId",
  "networkId",
  "addressPrefix",
  "genesisTime",
  "slotSeconds",
  "slotsPerBlock",
  "halfLifeSlots",
  "gapCapSlots",
  "memoryKiB",
  "initialTarget",
  "maxTarget",
  "minTarget",
  "initialReward",
  "halvingBlocks",
  "minimumFee",
  "accountMinimum",
  "holdingMinimum",
  "multiplierSchedule",
  "maxBlockTransactions",
  "maxBlockBytes",
  "transactionPastSeconds",
  "transactionFutureSeconds",
  "producers",
  "allocations",
];
const KEY_BITS = 160n;

/** The network with these rules, which is called by its chainId, and its changes of producers; throws InvalidProof.
 *
 * The caller compares its genesis hash, which is computed from the rules alone. Bounds of the rules are not checked:
 * a network file with rules out of bounds is refused by svcd.
 * @type {(rules: unknown, changes: unknown) => Promise<Network>} */
export async function networkOfRules(rules, changes) {
  const fields = exactFields(rules, RULES, "rules");
  const rulesHash = await taggedHash("svc/rules/v1", utf8(canonical(fields)));
  const inner = await taggedHash("svc/genesis/v1", rulesHash);
  const [chainId, prefix] = [fields.chainId, fields.addressPrefix];
  must(typeof chainId === "string" && /^[A-Z0-9-]{1,32}$/.test(chainId), "chainId must be 1 to 32 capitals and digits");
  must(typeof prefix === "string" && /^[a-z]{2,8}$/.test(prefix), "addressPrefix must be 2 to 8 lower-case letters");
  const allocations = elements(fields.allocations, "allocations").map((each) => allocationIn(each, prefix));
  const producers = producersIn(fields.producers, prefix);
  const count = (/** @type {string} */ name) => BigInt(whole(fields[name], name));
  const amount = (/** @type {string} */ name) => decimal(fields[name], name);
  const target = (/** @type {string} */ name) => BigInt(`0x${hex(fields[name], 32, name)}`);
  return {
    name: chainId,
    networkId: whole(fields.networkId, "networkId"),
    chainId,
    prefix,
    genesisHash: hexOf(await taggedHash("svc/block-id/v4", inner, new Uint8Array(8))),
    rules: {
      rulesHash: hexOf(rulesHash),
      genesisStateRoot: hexOf(await stateRoot(allocations, KEY_BITS - 1n)),
      genesisTime: amount("genesisTime"),
      slotSeconds: count("slotSeconds"),
      slotsPerBlock: count("slotsPerBlock"),
      halfLifeSlots: count("halfLifeSlots"),
      gapCapSlots: count("gapCapSlots"),
      memoryKiB: whole(fields.memoryKiB, "memoryKiB"),
      initialTarget: target("initialTarget"),
      maxTarget: target("maxTarget"),
      minTarget: target("minTarget"),
      initialReward: amount("initialReward"),
      halvingBlocks: count("halvingBlocks"),
      allocated: allocations.reduce((sum, { balance }) => sum + balance, 0n),
      minimumFee: amount("minimumFee"),
      accountMinimum: amount("accountMinimum"),
      multipliers: elements(fields.multiplierSchedule, "multiplierSchedule").map(multiplierIn),
      maxBlockTransactions: whole(fields.maxBlockTransactions, "maxBlockTransactions"),
      transactionPastSeconds: count("transactionPastSeconds"),
      transactionFutureSeconds: count("transactionFutureSeconds"),
      producers,
      changes: changesIn(changes, producers, prefix),
    },
  };
}

/** @type {(value: unknown) => unknown[]} */
function pair(value) {
  must(Array.isArray(value) && value.length === 2, "multiplierSchedule and allocations must have pairs");
  return value;
}

/** @type {(step: unknown) => number} */
const multiplierIn = (step) => whole(pair(step)[1], "a multiplier");

/** @type {(value: unknown, prefix: string) => Allocation} */
function allocationIn(value, prefix) {
  const [address, balance] = pair(value);
  const key = typeof address === "string" ? keyOf(address, prefix) : null;
  must(key !== null, "allocations must have addresses of the network");
  return { key, balance: decimal(balance, "the amount of an allocation") };
}

/** @type {(value: unknown, prefix: string) => string[]} */
function producersIn(value, prefix) {
  const isAddress = (/** @type {unknown} */ each) => typeof each === "string" && keyOf(each, prefix) !== null;
  const listed = elements(value, "producers");
  const different = listed.every(isAddress) && new Set(listed).size === listed.length;
  must(different, "producers must be different addresses of the network");
  return /** @type {string[]} */ (listed);
}

/** @type {(value: unknown, producers: string[], prefix: string) => ProducerChange[]} */
function changesIn(value, producers, prefix) {
  const changes = elements(value, "changes").map((each) => {
    const fields = exactFields(each, ["height", "producers"], "a change");
    return { height: decimal(fields.height, "height"), producers: producersIn(fields.producers, prefix) };
  });
  const listed = [producers, ...changes.map((change) => change.producers)].every(({ length }) => length > 0);
  const replace = "changes may only replace a list of producers by another one that is not empty";
  must(listed || changes.length === 0, replace);
  const ascend = changes.every(({ height }, at) => height > (changes[at - 1]?.height ?? 0n));
  must(ascend, "the heights of changes must ascend from 1 on");
  return changes;
}

/** The root of the accounts, which differ in their bits from this one on (section 9).
 * @type {(accounts: Allocation[], bit: bigint) => Promise<Bytes>} */
async function stateRoot(accounts, bit) {
  if (accounts.length === 0) return new Uint8Array(32);
  if (accounts.length === 1) {
    const [{ key, balance }] = accounts;
    const numbers = `${key.toString(16).padStart(40, "0")}${balance.toString(16).padStart(16, "0")}`;
    // The nonce is 0, and heldSince never.
    return sha256(joined(new Uint8Array(1), bytesOf(`${numbers}${"00".repeat(8)}${"ff".repeat(8)}`)));
  }
  must(bit >= 0n, "allocations must name each address once");
  const sides = [0n, 1n].map((side) => accounts.filter(({ key }) => ((key >> bit) & 1n) === side));
  const [left, right] = await Promise.all(sides.map((side) => stateRoot(side, bit - 1n)));
  return sha256(joined(Uint8Array.of(1), left, right));
}
