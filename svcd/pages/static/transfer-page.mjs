// Keeps the page of a transfer up to date: its confirmations, when it is expected in a block, and the whole page when a
// block takes it or gives it back.

import { objectIn, question, textOf } from "./answers.mjs";
import { Poller } from "./polling.mjs";
import { message } from "./texts.mjs";

/** @typedef {{ transaction?: { blockHash: string, confirmations: number }, mempool?: boolean }} Answer */

const TIMEOUT = 10_000;
const IN_A_BLOCK_EVERY = 10_000;
/** In how many looks at a waiting transfer the page itself is asked again: only there the node says what it expects. */
const LOOKS = 5;
let looks = 0;

/** What has become of a transfer, from the node's answer: the hash of its block or "", and its confirmations or null.
 *
 * `gone` means that it waits for no block either.
 * @type {(answer: Answer) => { block: string, confirmations: number | null, gone: boolean }} */
function placeOf({ transaction, mempool }) {
  if (transaction) return { block: transaction.blockHash, confirmations: transaction.confirmations, gone: false };
  return { block: "", confirmations: null, gone: mempool === false };
}

/** Show when the transfer is expected in a block by now.
 * @type {() => Promise<void>} */
async function showExpected() {
  const shown = document.querySelector('[data-fill="expected"]');
  const answer = await fetch(location.pathname, question(AbortSignal.timeout(TIMEOUT), {}, "same-origin"));
  // The policy of the page forbids to parse HTML, and what is looked for is a text alone.
  const [, text] = /data-fill="expected">([^<&]+)</.exec(await textOf(answer)) ?? [];
  if (shown && text && shown.textContent !== text) shown.textContent = text;
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
  if (confirmations === null) {
    looks += 1;
    if (looks % LOOKS === 0) await showExpected();
    return false;
  }
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
