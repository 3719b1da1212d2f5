// Says on the first page of the explorer that there are new blocks. It does not move what somebody is reading.

import { Poller } from "./polling.mjs";
import { message } from "./texts.mjs";

/** What to say when the page shows the chain up to `shown` and the node is at `height`; "" for nothing.
 * @type {(shown: number, height: number) => string} */
export function newsOf(shown, height) {
  const count = height - shown;
  if (!(count > 0)) {
    return "";
  }
  return message("script.new-blocks", { count });
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
  const answer = await fetch("/rpc/status", { cache: "no-store" });
  const { status } = await answer.json();
  tell(news, newsOf(Number(news.dataset.height), Number(status.height)));
}

const news = /** @type {HTMLElement | null | undefined} */ (
  globalThis.document?.querySelector(".news[data-height]")
);
if (news) {
  // What the page shows stays true while the node does not answer, so nobody is told.
  new Poller(() => look(news), () => {}).ask();
}
