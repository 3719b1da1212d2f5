// The worker that checks for the wallet what its node says. It has no network: the page asks the node for it.

import { argon2id } from "./argon2.mjs";
import { evaluating } from "./chain-proof.mjs";
import { openDatabase, outcome } from "./database.mjs";
import { networkCalled, provenAccount, Unanswered } from "./light-node.mjs";
import { InvalidProof } from "./errors.mjs";
import { grouped } from "./digits.mjs";
import { formatAmount } from "./units.mjs";

/** @import { Known } from "./light-node.mjs" */
/** @import { Told } from "./wallet-checking.mjs" */
/** @typedef {{ network: string, address: string, balance: bigint, nonce: bigint, tip: string }} Claim of the node, with
 * the hash of the block after which it is so, or "". Its network is called as keyfiles call it. */
/** @typedef {{ kind: "check" } & Claim | { kind: "answer", text: string | null, sentence: string }} Order */

const BLOCKS = "blocks";
/** Milliseconds between checks of an account that is as it was proven, and after a check that failed. */
const EVERY = 10_000;
/** So many checks in a row may fail for a reason that passes, or find another account at another block. */
const PATIENCE = 3;

/** @type {(text: string | null, sentence: string) => void} */
let answered = () => {};
let running = false;
let misses = 0;
let failedAt = -Infinity;
/** @type {{ balance: bigint, nonce: bigint, at: number } | null} */
let last = null;

/** @type {(told: Told) => void} */
const tell = (told) => postMessage(told);

/** @type {(key: string, values: Record<string, string | number>) => void} */
const line = (key, values) => tell({ kind: "line", key, values });

/** @type {(seconds: number) => void} */
const right = (seconds) => tell({ kind: "checked", key: "wallet-script.checked", values: { count: seconds } });

/** Milliseconds since a time, or Infinity if the clock was set back since then.
 * @type {(time: number) => number} */
const since = (time) => (Date.now() < time ? Infinity : Date.now() - time);

/** @type {(path: string) => Promise<string>} */
const ask = (path) =>
  new Promise((resolve, reject) => {
    answered = (text, sentence) => (text === null ? reject(new Unanswered(sentence)) : resolve(text));
    tell({ kind: "ask", path });
  });

const evaluate = evaluating(argon2id);

/** @type {(one: { balance: bigint, nonce: bigint }, other: { balance: bigint, nonce: bigint }) => boolean} */
const isSame = (one, other) => one.balance === other.balance && one.nonce === other.nonce;

/** The account on the chain; throws InvalidProof, Unanswered or what the database throws.
 * @type {(claim: Claim, database: IDBDatabase) => Promise<{ proven: { balance: bigint, nonce: bigint }, tip: string }>} */
async function provenBy({ network, address }, database) {
  /** @type {Known | undefined} */
  const stored = await outcome(database.transaction(BLOCKS).objectStore(BLOCKS).get(network));
  const { account, known } = await provenAccount(address, {
    ask,
    network: await networkCalled(network, ask),
    known: stored ?? null,
    evaluate,
    progress: (done, total) => last ?? line("wallet-script.checking", { percent: Math.floor((100 * done) / total) }),
    clock: Date.now,
  });
  await outcome(database.transaction(BLOCKS, "readwrite").objectStore(BLOCKS).put(known, network));
  return { proven: account ?? { balance: 0n, nonce: 0n }, tip: known.head.hash };
}

/** @type {(claim: Claim) => Promise<void>} */
async function check(claim) {
  const database = await openDatabase("svc-chain", (database) => database.createObjectStore(BLOCKS));
  const { proven, tip } = await provenBy(claim, database).finally(() => database.close());
  if (isSame(proven, claim)) {
    last = { balance: proven.balance, nonce: proven.nonce, at: Date.now() };
    misses = 0;
    right(0);
  } else {
    misses += 1;
    const wrong = tip === claim.tip || misses >= PATIENCE;
    const [named, proved] = [claim.balance, proven.balance].map((units) => grouped(formatAmount(units)));
    if (wrong) tell({ kind: "problem", key: "wallet-script.balance-forged", values: { named, proven: proved } });
  }
}

/** @type {(problem: unknown) => void} */
function failed(problem) {
  misses += 1;
  failedAt = Date.now();
  const reason = problem instanceof Error ? problem.message : String(problem);
  const key = "wallet-script.unchecked";
  if (problem instanceof InvalidProof) tell({ kind: "problem", key: "wallet-script.unproved", values: { reason } });
  else tell({ kind: misses >= PATIENCE ? "problem" : "line", key, values: { reason } });
}

addEventListener("message", async ({ data }) => {
  const order = /** @type {Order} */ (data);
  if (order.kind === "answer") return answered(order.text, order.sentence);
  if (running) return;
  const same = misses === 0 && last !== null && isSame(last, order) ? last : null;
  if (same !== null && since(same.at) < EVERY) return right(Math.floor(since(same.at) / 1000));
  if (since(failedAt) < EVERY) return;
  running = true;
  // The line must not say of another balance that it was checked.
  if (same === null) line("wallet-script.checking", { percent: 0 });
  await check(order).catch(failed);
  running = false;
});
