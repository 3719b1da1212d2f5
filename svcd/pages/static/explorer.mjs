// Says on the first page of the explorer that there are new blocks. It does not move what somebody is reading.

import { objectIn, question, textOf } from "./answers.mjs";
import { Poller } from "./polling.mjs";
import { message } from "./texts.mjs";

/** @typedef {{ height: string, hash: string }} Tip */

const TIMEOUT = 10_000;

/** What to say when the page shows the chain up to the tip `shown` and the node's is `now`; "" for nothing.
 *
 * A tip with another hash is a new block, also at the same height: a reorganisation has replaced the one that is shown.
 * @type {(shown: Tip, now: Tip) => string} */
export function newsOf(shown, now) {
  if (now.hash === shown.hash) return "";
  return message("script.new-blocks", { count: Math.max(Number(now.height) - Number(shown.height), 1) });
}

/** Show `text` as a way to the new blocks; the button is made once, so that the focus stays on it.
 * @type {(news: HTMLElement, text: string) => void} */
function tell(news, text) {
  let button = news.querySelector("a");
  if (!button && text) {
    button = document.createElement("a");
    button.className = "button small";
    button.href = "/";
    news.append(button);
  }
  if (button && button.textContent !== text) {
    button.textContent = text;
  }
}

/** @type {(news: HTMLElement) => Promise<void>} */
async function look(news) {
  const answer = await fetch("/rpc/status", question(AbortSignal.timeout(TIMEOUT), {}, "same-origin"));
  const { status } = /** @type {{ status: Parameters<typeof newsOf>[1] }} */ (objectIn(await textOf(answer)));
  const { height = "", hash = "" } = news.dataset;
  tell(news, newsOf({ height, hash }, status));
}

const news = /** @type {HTMLElement | null | undefined} */ (
  globalThis.document?.querySelector(".news[data-hash]")
);
if (news) {
  // What the page shows stays true while the node does not answer, so nobody is told.
  new Poller(() => look(news), () => {}).ask();
}
