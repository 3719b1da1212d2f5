// The fragment (#) of the wallet's address: which view is shown, and the payment link, which no server gets to see.

/** @typedef {{ view: string, name: string, argument: string | undefined, link: string }} Fragment
 * `link` is `pay=…` with what may be beside it, or "". */

/** @type {(pairs: string) => boolean} */
const hasLink = (pairs) => pairs.split("&").some((pair) => pair.startsWith("pay="));

/** What a fragment says: `#view`, `#payment=<txid>` or `#transfer=<txid>`, `#pay=…`, or a view with a link: `#view&pay=…`.
 * @type {(hash: string) => Fragment} */
export function readFragment(hash) {
  const text = hash.replace(/^#/, "");
  const [first] = text.split("&");
  const view = !first.includes("=") || /^(?:payment|transfer)=/.test(first) ? first : "";
  const rest = view === first ? text.slice(first.length + 1) : text;
  const [name, argument] = view.split("=");
  return { view, name, argument, link: hasLink(rest) ? rest : "" };
}

/** The fragment for a view and a link, each of which may be "".
 * @type {(view: string, link: string) => string} */
export function fragmentOf(view, link) {
  const text = [view, link].filter((each) => each !== "").join("&");
  return text === "" ? "" : `#${text}`;
}

/** The fragment of an address whose query has a payment link, with that link moved into it; null if it has none.
 * @type {(address: { search: string, hash: string }) => string | null} */
export function fragmentWithQuery({ search, hash }) {
  const query = search.replace(/^\?/, "");
  if (!hasLink(query)) return null;
  const { view, link } = readFragment(hash);
  return fragmentOf(view, link === "" ? query : `${query}&${link}`);
}
