// What a client can check that knows only the genesis hash of a network, and trusts no node (docs/protocol.md 13).
//
// Argon2id, which WebCrypto does not have, comes from hash-wasm, or from the program that uses this package.

import { checkNames, checkNetwork, checkOrder, must as checkInput, networkFor } from "./chain.js";
import { Client, questionsOf } from "./client.js";
import { ApiError, InvalidInput, InvalidProof, SvcPayError } from "./errors.js";
import { checkAccount, parseAccountProof } from "./light/account-proof.mjs";
import { PRUNED } from "./light/answers.mjs";
import { checkChain, checkWork, evaluating, MAX_PROOF_BYTES, parseChainProof, tipTime } from "./light/chain-proof.mjs";
import { genesisOf } from "./light/chain-rules.mjs";
import { provenTransfer } from "./light/payment-proof.mjs";
import { exactFields, must, strictJson } from "./light/strict-json.mjs";

// Argon2id

async function hashWasm() {
  try {
    return (await import("hash-wasm")).argon2id;
  } catch {
    throw new InvalidInput("checking a chain needs Argon2id: npm install hash-wasm, or give its function as argon2id");
  }
}

/** What checks work: Argon2id with the costs of participation work, and the headers that were checked before. */
async function workOf({ argon2id, progress, signal }) {
  const hash = argon2id ?? (await hashWasm());
  checkInput(typeof hash === "function", "argon2id must be the function of that name of hash-wasm");
  return { evaluate: evaluating(hash), progress, signal, checked: new Set() };
}

// The checks of texts

/** The member `proof` of an answer. */
function proofIn(answer, rest = []) {
  checkInput(typeof answer === "string", "give the answer of the node as a string");
  const value = strictJson(answer, MAX_PROOF_BYTES);
  // What the node says of the work proves nothing; the headers do.
  if (rest.length > 0 && typeof value === "object" && value !== null) delete value.work;
  const { ok, proof } = exactFields(value, ["ok", "proof", ...rest], "the answer");
  must(ok === true, "ok must be true");
  return proof;
}

async function workChecked(read, network, { work, now }) {
  const { head, headers } = read;
  const time = tipTime(network, head.slot, now);
  const before = work.checked.size;
  await checkWork(headers, network, work);
  const { hash, height, slot } = head;
  const tip = { hash, height: `${height}`, slot: `${slot}`, time: `${time}` };
  return { tip, work: head.work, evaluations: work.checked.size - before, headers };
}

const demandsOf = ({ minimumWork = 0n }) => ({ minimumWork: BigInt(minimumWork) });

async function chainOf(answer, network, context) {
  const read = await checkChain(parseChainProof(proofIn(answer), network), network, demandsOf(context));
  return { ...(await workChecked(read, network, context)), bytes: answer.length };
}

/** The chain that the answer of `GET /rpc/proof/chain` proves; rejects with InvalidProof. */
export async function checkChainProof(answer, network, options = {}) {
  const { headers: _, ...chain } = await chainOf(answer, checkNetwork(network), await contextOf(options));
  return chain;
}

async function accountOf(answer, address, { headers, network }) {
  const proof = parseAccountProof(proofIn(answer), network);
  const account = await checkAccount(proof, address, network, headers.at(-1) ?? genesisOf(network));
  const { balance = 0n, nonce = 0n, heldSince = null } = account ?? {};
  return {
    address,
    exists: account !== null,
    balance: `${balance}`,
    nonce: `${nonce}`,
    heldSince: heldSince === null ? null : `${heldSince}`,
  };
}

/** The account that the answer of `GET /rpc/proof/account/{address}` proves; rejects with InvalidProof.
 *
 * `chainAnswer` is that of `GET /rpc/proof/chain` for the same tip. `network` is that of the address, and must be given
 * unless it is mainnet or devnet.
 */
export async function checkAccountProof(answer, address, chainAnswer, { network: given, ...options } = {}) {
  const network = networkFor(address, given);
  const { headers, ...chain } = await chainOf(chainAnswer, network, await contextOf(options));
  return { ...(await accountOf(answer, address, { headers, network })), ...chain, bytes: answer.length + chain.bytes };
}

/** The transfer in the member `proof` of an answer; rejects with InvalidInput where the platform cannot check it. */
async function transferIn(proof, network, demands) {
  try {
    return await provenTransfer(proof, network, demands);
  } catch (error) {
    if (error.name !== "NotSupportedError") throw error;
    throw new InvalidInput("this platform has no Ed25519 in WebCrypto; use Node.js 20 or a newer browser");
  }
}

/** The payment of `order` in the member `proof` of an answer; `demands` are those of a check of a chain. */
export async function paymentIn(proof, order, network, demands) {
  const { transfer, ...read } = await transferIn(proof, network, demands);
  const { txid, sender, recipient, amount, reference, blockHash, height } = transfer;
  const pays = reference === order.reference && recipient === order.recipient && amount === BigInt(order.amount);
  must(pays, "the transfer does not have the reference, the recipient and the amount of the order");
  const since = order.sinceHeight === null || height >= BigInt(order.sinceHeight);
  must(since, `the payment is in a block below ${order.sinceHeight}, where payments do not count`);
  const confirmations = Number(transfer.confirmations);
  const deep = confirmations >= order.confirmations;
  must(deep, `the proof shows ${confirmations} confirmations, and the order requires ${order.confirmations}`);
  return { read, payment: { txid, sender, blockHash, blockHeight: `${height}`, confirmations } };
}

async function paymentOf(answer, order, network, { tip, ...context }) {
  const { read, payment } = await paymentIn(proofIn(answer, ["next"]), order, network, demandsOf(context));
  const last = read.head.hash;
  must(tip === undefined || last === tip.toLowerCase(), `the proof ends in block ${last}, not in ${tip}`);
  return { ...payment, ...(await workChecked(read, network, context)), bytes: answer.length };
}

/** The payment of `order` that a proof proves, to which `proof` of a client resolves; rejects with InvalidProof.
 *
 * With `tip`, the hash of a block that you trust, the proof must end in that block. `network` is that of the recipient,
 * and must be given unless it is mainnet or devnet.
 */
export async function checkPaymentProof(answer, order, { network, tip, ...options } = {}) {
  const asked = checkOrder(order, network);
  const of = networkFor(asked.recipient, network);
  const isHash = tip === undefined || (typeof tip === "string" && /^[0-9a-fA-F]{64}$/.test(tip));
  checkInput(isHash, "tip must be the hash of a block, 64 hex digits");
  const { headers: _, ...payment } = await paymentOf(answer, asked, of, { tip, ...(await contextOf(options)) });
  return payment;
}

// The same with nodes

async function contextOf(options) {
  checkNames(options, "argon2id", "minimumWork", "now", "progress", "signal");
  const { minimumWork = 0n, now = Date.now(), signal } = options;
  return { minimumWork, now, signal, work: await workOf(options) };
}

function clientsIn(nodes) {
  const all = Array.isArray(nodes) ? nodes : [nodes];
  checkInput(all.length > 0 && all.every((node) => node instanceof Client), "give a Client, or an array of them");
  return all;
}

/** The network of an address: the one that was given, to this call or to the nodes, or else mainnet or devnet. */
const networkWith = (address, nodes, network) => networkFor(address, network ?? clientsIn(nodes)[0].network);

/** What holds on the chain with the most work that the nodes prove, and the nodes that do not count.
 *
 * `prove` asks a node for its chain with `headers`, and `absent`, an error, if the node shows nothing on it. Rejects
 * with the error of the node with the most work, or else of the first.
 */
async function best(nodes, network, prove) {
  const all = clientsIn(nodes);
  const [proven, refused] = [[], []];
  // One after the other: they share what was computed, and a check takes a whole core.
  for (const node of all) {
    try {
      proven.push({ ...(await prove(questionsOf(node))), node });
    } catch (error) {
      if (!(error instanceof SvcPayError) || error instanceof InvalidInput) throw error;
      refused.push({ node, error });
    }
  }
  proven.sort((one, other) => (one.work === other.work ? 0 : one.work > other.work ? -1 : 1));
  const onChain = new Set([network.genesisHash, ...(proven[0]?.headers ?? []).map(({ hash }) => hash)]);
  const objections = proven.map(({ node, tip, absent }) => {
    const other = `the chain of this node ends at height ${tip.height}, and another node proves one with more work`;
    return { node, error: onChain.has(tip.hash) ? absent : new InvalidProof(other) };
  });
  const found = proven.find((_, at) => objections[at].error === undefined);
  refused.unshift(...objections.filter(({ error }) => error !== undefined));
  if (found === undefined) throw refused[0].error;
  const { headers: _, absent: __, ...result } = found;
  return { ...result, bytes: proven.reduce((sum, { bytes }) => sum + bytes, 0), refused };
}

/** The chain with the most work that a node, or any of several, proves. */
export async function verifyChain(nodes, network, options = {}) {
  checkNetwork(network);
  const context = await contextOf(options);
  return best(nodes, network, async ({ text }) => chainOf(await text("/rpc/proof/chain", context), network, context));
}

/** The account of an address after the newest block of the chain with the most work that a node, or any of several,
 * proves. `network` is by default that of the nodes. */
export async function provenBalance(nodes, address, { network: given, ...options } = {}) {
  const network = networkWith(address, nodes, given);
  const context = await contextOf(options);
  return best(nodes, network, async ({ text }) => {
    const answer = await text(`/rpc/proof/account/${address}`, context);
    const { block } = parseAccountProof(proofIn(answer), network);
    const chainAnswer = await text("/rpc/proof/chain", { ...context, parameters: { tip: block } });
    const chain = await chainOf(chainAnswer, network, context);
    must(chain.tip.hash === block, "the node proves another chain than the one that was asked for");
    const account = await accountOf(answer, address, { ...chain, network });
    return { ...account, ...chain, bytes: answer.length + chain.bytes };
  });
}

/** The payment of `order` on the chain with the most work that a node, or any of several, proves. `network` is by
 * default that of the nodes. */
export async function provenPayment(nodes, order, { network: given, ...options } = {}) {
  const network = networkWith(order?.recipient, nodes, given);
  const asked = checkOrder(order, network);
  const context = await contextOf(options);
  const { reference, recipient, amount, sinceHeight } = asked;
  const terms = { recipient, amountBaseUnits: amount, chain: "1" };
  const parameters = sinceHeight === null ? terms : { ...terms, sinceHeight };
  const path = `/rpc/commerce/payment/${reference}/proof`;
  return best(nodes, network, async ({ text }) => {
    let answer;
    try {
      answer = await text(path, { ...context, parameters });
    } catch (absent) {
      if (!(absent instanceof ApiError) || ![404, PRUNED].includes(absent.status)) throw absent;
      // Its chain may have more work than one with the payment.
      return { ...(await chainOf(await text("/rpc/proof/chain", context), network, context)), absent };
    }
    return paymentOf(answer, asked, network, context);
  });
}
