// Views whose part of the page is loaded when somebody opens them.

import { byId, onClick, show, tell } from "./wallet-dom.mjs";
import { loaded } from "./node.mjs";
import { Problem } from "./problem.mjs";

/** @import { Wallet } from "./wallet.mjs" */

/** What such a part takes from the page, and has no copies of: `tell` knows only the page's own class of problems, and
 * `onClick` knows when the page was locked.
 * @typedef {{ tell: typeof tell, onClick: typeof onClick, Problem: typeof Problem }} Page */

/** Begin a view with its part, or tell in `error` why that cannot be loaded; gives what ends the view.
 * @template T
 * @param {HTMLElement} error
 * @param {Promise<T>} loading
 * @param {(part: T, page: Page) => () => void} begin */
function enterPart(error, loading, begin) {
  tell(error, null);
  let left = false;
  let end = () => {};
  loaded(loading)
    .then((part) => {
      if (!left) end = begin(part, { tell, onClick, Problem });
    })
    .catch((problem) => left || tell(error, problem));
  return () => {
    left = true;
    end();
  };
}

/** Show all transfers; gives what ends that.
 * @type {(app: Wallet) => () => void} */
export function enterHistory(app) {
  show("history");
  return enterPart(byId("history-error"), import("./wallet-history.mjs"), ({ follow }, page) => follow(app, page));
}

/** Offer the coins of a devnet, and say how blocks come there.
 * @type {(app: Wallet) => void} */
export function offerCoins(app) {
  if (app.network.name !== "devnet") return;
  const loading = loaded(import("./wallet-devnet.mjs")).then(({ offer }) => offer(app, { tell, onClick }));
  // The wallet works without it.
  loading.catch(() => {});
}

/** Show a transfer that was not signed here; gives what ends that.
 * @type {(app: Wallet, txid: string) => () => void} */
export function enterTransfer(app, txid) {
  byId("transfer-body").hidden = true;
  // It may still be called as another one was.
  const title = byId("transfer-title");
  title.textContent = title.dataset.title ?? "";
  show("transfer");
  const error = byId("transfer-error");
  return enterPart(error, import("./wallet-transfer.mjs"), ({ follow }, page) => follow(app, txid, page));
}
