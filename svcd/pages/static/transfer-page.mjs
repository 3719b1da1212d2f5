// Keeps the page of a transfer up to date: its confirmations, and the whole page when a block takes it or gives it back.

import { objectIn, question, textOf } from "./answers.mjs";
import { Poller } from "./polling.mjs";
import { message } from "./texts.mjs";

/** @typedef {{ transaction?: { blockHash: string, confirmations: number }, mempool?: boolean }} Answer */

const TIMEOUT = 10_000;
const IN_A_BLOCK_EVERY = 10_000;

/** What has become of a transfer, from the node's answer: the hash of its block or "", and its confirmations or null.
 *
 * `gone` means that it waits for no block either.
 * @type {(answer: Answer) => { block: string, confirmations: number | null, gone: boolean }} */
function placeOf({ transaction, mempool }) {
  if (transaction) return { block: transaction.blockHash, confirmations: transaction.confirmations, gone: false };
  return { block: "", confirmations: null, gone: mempool === false };
}

/** @type {(state: HTMLElement) => Promise<boolean | number>} */
async function look(state) {
  const answer = await fetch(`/rpc/transaction/${state.dataset.txid}`, question(AbortSignal.timeout(TIMEOUT), {}, "same-origin"));
  if (answer.status !== 200 && answer.status !== 404) throw new Error(`status ${answer.status}`);
  const { block, confirmations, gone } = placeOf(/** @type {Parameters<typeof placeOf>[0]} */ (objectIn(await textOf(answer))));
  if (gone || block !== state.dataset.block) {
    location.reload();
    return true;
  }
  if (confirmations === null) return false;
  const text = message("script.confirmations", { count: confirmations });
  if (state.textContent !== text) state.textContent = text;
  return IN_A_BLOCK_EVERY;
}

const state = /** @type {HTMLElement | null | undefined} */ (
  globalThis.document?.querySelector("[data-txid][data-block]")
);
if (state) {
  // What the page shows stays true while the node does not answer, so nobody is told.
  new Poller(() => look(state), () => {}).ask();
}
