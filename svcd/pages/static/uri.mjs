// Payment URIs (docs/payments.md "Payment URI"): a wallet signs what it reads here, so what is not plain is refused.

import { checkAddress } from "./address.mjs";
import { parseAmount } from "./amounts.mjs";
import { readFragment } from "./fragment.mjs";
import { DEFAULT_CONFIRMATIONS, isDepth, isReference } from "./orders.mjs";
import { must, Problem, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Network } from "./networks.mjs" */
/**
 * @typedef {object} LinkRequest
 * @property {string} recipient
 * @property {bigint | null} amount in base units
 * @property {string} reference
 * @property {number} confirmations
 * @property {string | null} label
 */

const MAX_URI = 2048;
const MAX_LABEL = 80;
const MAX_RETURN_URL = 1024;
const RETURN_URL = /^https:\/\/([a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?)(?:[/?#][!#-;=?-[\]_a-z~]*)?$/;
const UNTIL = /^until=(?:0|[1-9][0-9]{0,14})$/;
const VALUE = /^(?:[A-Za-z0-9\-._~!$'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$/;
// Control characters, separators of lines, and what turns the direction of text around.
// eslint-disable-next-line no-control-regex
const UNSHOWABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** Throw `reference` unless `text` can be asked for as the reference of a payment.
 * @type {(text: string) => void} */
export function checkReference(text) {
  must(isReference(text), "reference", message("wallet-script.reference"));
}

/** @type {(text: string) => number} */
function confirmationsOf(text) {
  const right = /^[1-9][0-9]{0,3}$/.test(text) && isDepth(Number(text));
  must(right, "confirmations", message("wallet-script.link-confirmations"));
  return Number(text);
}

/** @type {(encoded: string) => string} */
function labelOf(encoded) {
  let label;
  try {
    label = decodeURIComponent(encoded);
  } catch {
    throw new Problem("encoding", message("wallet-script.link-label-encoding"));
  }
  must(label !== "", "label", message("wallet-script.link-label-empty"));
  must([...label].length <= MAX_LABEL, "label", message("wallet-script.link-label-long", { most: MAX_LABEL }));
  must(!UNSHOWABLE.test(label), "label", message("wallet-script.link-label-hides"));
  return label;
}

/** @type {(query: string) => Map<string, string>} */
function valuesOf(query) {
  const values = new Map();
  for (const pair of query.split("&")) {
    const [, name, value] = /^([a-z][a-z0-9-]*)=(.*)$/s.exec(pair) ?? [];
    must(name !== undefined, "encoding", message("wallet-script.link-pair", { pair: quoted(pair) }));
    must(VALUE.test(value), "encoding", message("wallet-script.link-value", { name }));
    must(
      !values.has(name),
      "duplicate",
      message("wallet-script.link-repeated", { name: quoted(name) }),
    );
    const unsupported = message("wallet-script.link-unsupported", { name: quoted(name) });
    must(!name.startsWith("req-"), "unsupported", unsupported);
    values.set(name, value);
  }
  return values;
}

/** What a payment URI for `network` asks for: recipient, amount in base units, reference, confirmations, label or null.
 *
 * With `amountMayBeMissing` the amount is null where the link has none, for the person to fill in.
 * Throws scheme, encoding, too-long, duplicate, unsupported, address, network, amount, reference, confirmations, label.
 * @type {(text: string, network: Network, options?: { amountMayBeMissing?: boolean }) => LinkRequest} */
export function parseUri(text, network, { amountMayBeMissing = false } = {}) {
  must(
    text.length <= MAX_URI,
    "too-long",
    message("wallet-script.link-long", { length: text.length, most: MAX_URI }),
  );
  must(text.startsWith("svc:"), "scheme", message("wallet-script.link-scheme"));
  must(/^[!-~]*$/.test(text), "encoding", message("wallet-script.link-ascii"));
  must(!text.includes("#"), "encoding", message("wallet-script.link-fragment"));
  const [, recipient, query] = /** @type {RegExpExecArray} */ (/^svc:([^?]*)\??(.*)$/s.exec(text));
  checkAddress(recipient, network);
  must(query !== "", "reference", message("wallet-script.link-empty"));
  const values = valuesOf(query);
  const reference = values.get("ref");
  must(reference !== undefined, "reference", message("wallet-script.link-no-reference"));
  checkReference(reference);
  const amount = values.get("amount");
  const label = values.get("label");
  must(amount !== undefined || amountMayBeMissing, "amount", message("wallet-script.link-no-amount"));
  return {
    recipient,
    amount: amount === undefined ? null : parseAmount(amount),
    reference,
    confirmations: confirmationsOf(values.get("confirmations") ?? String(DEFAULT_CONFIRMATIONS)),
    label: label === undefined ? null : labelOf(label),
  };
}

/** The https address of a shop's page and the host in it, or null; as svcd/pages/routes.py takes it for the checkout.
 * @type {(text: string | null) => { url: string, host: string } | null} */
export function returnUrlOf(text) {
  const [url, host] = (text !== null && text.length <= MAX_RETURN_URL && RETURN_URL.exec(text)) || [];
  return url === undefined ? null : { url, host };
}

/** The address of the shop's page in the query of a page's address (`&returnUrl=…`), or null; throws encoding or
 * duplicate.
 * @type {(search: string) => string | null} */
export function returnUrlInSearch(search) {
  const all = search.split(/[?&]/).filter((pair) => pair.startsWith("returnUrl="));
  must(all.length < 2, "duplicate", message("wallet-script.link-repeated", { name: quoted("returnUrl") }));
  const [found] = all;
  if (found === undefined) return null;
  const sentence = message("wallet-script.link-return");
  let text = null;
  try {
    text = decodeURIComponent(found.slice("returnUrl=".length));
  } catch {
    // Judged below.
  }
  must(returnUrlOf(text) !== null, "encoding", sentence);
  return text;
}

/** When the order expires, in the query of a page's address (`&until=…`) in Unix milliseconds, or null; throws encoding.
 * @type {(search: string) => number | null} */
export function untilInSearch(search) {
  const found = search.split(/[?&]/).filter((pair) => pair.startsWith("until="));
  if (found.length === 0) return null;
  must(found.length === 1 && UNTIL.test(found[0]), "encoding", message("wallet-script.link-until"));
  return Number(found[0].slice("until=".length));
}

/** Whether a pasted or scanned text is a payment link rather than an address.
 * @type {(text: string) => boolean} */
export const isLink = (text) => /^(?:web\+svc|svcd?|https?):/i.test(text);

/** The payment URI in a pasted or scanned text, with the way back to the shop and the end of the order, or null.
 *
 * The text is a payment URI or the address of a wallet page with `#pay=` or `?pay=`. Throws scheme, encoding or
 * duplicate.
 * @type {(text: string, network: Network) => { uri: string, returnUrl: string | null, until: number | null }} */
export function uriInText(text, network) {
  const isPage = /^https?:/i.test(text);
  const search = isPage ? searchOf(text) : `?pay=${encodeURIComponent(text)}`;
  const uri = uriInSearch(search, network);
  must(uri !== null, "scheme", message("wallet-script.address-without-payment"));
  return { uri, returnUrl: isPage ? returnUrlInSearch(search) : null, until: isPage ? untilInSearch(search) : null };
}

/** What the query of a wallet page's address has, and its fragment beside the view.
 * @type {(address: string) => string} */
function searchOf(address) {
  const [page, hash = ""] = address.split(/#(.*)/s);
  const query = page.split("?").slice(1).join("?");
  return `?${[query, readFragment(hash).link].filter((each) => each !== "").join("&")}`;
}

/** The payment URI in the query of a page's address (`?pay=…`), percent-decoded once, or null if there is none.
 *
 * Besides svc: a link may say web+svc:, which is what browsers let pages handle, SVC:, as QR codes do, and svcd: on
 * devnet; all are turned into svc:. Throws encoding or duplicate.
 * @type {(search: string, network: Network) => string | null} */
export function uriInSearch(search, network) {
  const pairs = search
    .replace(/^\?/, "")
    .split("&")
    .filter((pair) => pair !== "");
  const found = pairs.filter((pair) => pair.startsWith("pay="));
  if (found.length === 0) return null;
  must(found.length === 1, "duplicate", message("wallet-script.link-twice"));
  const loose = pairs.find((pair) => /^(amount|ref|confirmations|label|req-[^=]*)=/.test(pair));
  const sentence = message("wallet-script.link-loose");
  must(loose === undefined, "encoding", sentence);
  let text;
  try {
    text = decodeURIComponent(found[0].slice("pay=".length));
  } catch {
    throw new Problem("encoding", message("wallet-script.link-encoding"));
  }
  const schemes = network.name === "devnet" ? /^(?:web\+svc|svcd?):/i : /^(?:web\+svc|svc):/i;
  return text.replace(schemes, "svc:");
}
