// Payment URIs (docs/payments.md "Payment URI"): a wallet signs what it reads here, so what is not plain is refused.

import { checkAddress } from "./address.mjs";
import { parseAmount } from "./amounts.mjs";
import { must, Problem, quoted } from "./problem.mjs";

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
const DEFAULT_CONFIRMATIONS = 12;
const MAX_RETURN_URL = 1024;
const RETURN_URL = /^https:\/\/([a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?)(?:[/?#][!#-;=?-[\]_a-z~]*)?$/;
const VALUE = /^(?:[A-Za-z0-9\-._~!$'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$/;
// Control characters, separators of lines, and what turns the direction of text around.
// eslint-disable-next-line no-control-regex
const UNSHOWABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** Throw `reference` unless `text` can be asked for as the reference of a payment.
 * @type {(text: string) => void} */
export function checkReference(text) {
  const right = /^[A-Za-z0-9._:-]{1,64}$/.test(text) && text !== "." && text !== "..";
  must(right, "reference", "A reference is 1 to 64 of the characters A-Z a-z 0-9 . _ : - and not just dots.");
}

/** @type {(text: string) => number} */
function confirmationsOf(text) {
  const right = /^[1-9][0-9]{0,3}$/.test(text) && Number(text) <= 1000;
  must(right, "confirmations", "The confirmations in the link must be a whole number from 1 to 1000.");
  return Number(text);
}

/** @type {(encoded: string) => string} */
function labelOf(encoded) {
  let label;
  try {
    label = decodeURIComponent(encoded);
  } catch {
    throw new Problem("encoding", "The label in the link is not UTF-8 in percent-encoding.");
  }
  must(label !== "", "label", "The label in the link is empty; a link without one leaves it out.");
  must([...label].length <= MAX_LABEL, "label", `The label in the link has more than ${MAX_LABEL} characters.`);
  must(!UNSHOWABLE.test(label), "label", "The label in the link holds characters that could hide what it says.");
  return label;
}

/** @type {(query: string) => Map<string, string>} */
function valuesOf(query) {
  const values = new Map();
  for (const pair of query.split("&")) {
    const [, name, value] = /^([a-z][a-z0-9-]*)=(.*)$/s.exec(pair) ?? [];
    must(name !== undefined, "encoding", `${quoted(pair)} in the link must be name=value with a name in lower case.`);
    must(VALUE.test(value), "encoding", `The value of ${name} in the link is not percent-encoded rightly.`);
    must(
      !values.has(name),
      "duplicate",
      `${quoted(name)} stands in the link more than once; it can be read in two ways.`,
    );
    const unsupported = `The link asks for ${quoted(name)}, which this wallet does not know; do not pay it here.`;
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
    `The link has ${text.length} characters; a payment link has at most ${MAX_URI}.`,
  );
  must(text.startsWith("svc:"), "scheme", "A payment link begins with svc: and the recipient's address.");
  must(/^[!-~]*$/.test(text), "encoding", "Blanks and characters outside ASCII must be percent-encoded in the link.");
  must(!text.includes("#"), "encoding", "The link has a fragment (#), which no payment link has.");
  const [, recipient, query] = /** @type {RegExpExecArray} */ (/^svc:([^?]*)\??(.*)$/s.exec(text));
  checkAddress(recipient, network);
  must(query !== "", "reference", "The link has neither amount nor reference; a payment link has both.");
  const values = valuesOf(query);
  const reference = values.get("ref");
  must(reference !== undefined, "reference", "The link has no reference, so the shop could not tell what is paid.");
  checkReference(reference);
  const amount = values.get("amount");
  const label = values.get("label");
  must(amount !== undefined || amountMayBeMissing, "amount", "The link has no amount.");
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

/** The address of the shop's page in the query of a page's address (`&returnUrl=…`), or null; throws encoding.
 * @type {(search: string) => string | null} */
export function returnUrlInSearch(search) {
  const found = search.split(/[?&]/).find((pair) => pair.startsWith("returnUrl="));
  if (found === undefined) return null;
  const sentence = "The way back to the shop in the link must begin with https: and be percent-encoded.";
  let text = null;
  try {
    text = decodeURIComponent(found.slice("returnUrl=".length));
  } catch {
    // Judged below.
  }
  must(returnUrlOf(text) !== null, "encoding", sentence);
  return text;
}

/** Whether a pasted or scanned text is a payment link rather than an address.
 * @type {(text: string) => boolean} */
export const isLink = (text) => /^(?:web\+svc|svcd?|https?):/i.test(text);

/** The payment URI in a pasted or scanned text, and the way back to the shop or null.
 *
 * The text is a payment URI or the address of a wallet page with `?pay=`. Throws scheme, encoding or duplicate.
 * @type {(text: string, network: Network) => [string, string | null]} */
export function uriInText(text, network) {
  const isPage = /^https?:/i.test(text);
  const query = isPage ? text.split("#")[0].split("?").slice(1).join("?") : `pay=${encodeURIComponent(text)}`;
  const search = `?${query}`;
  const uri = uriInSearch(search, network);
  must(uri !== null, "scheme", "This address has no payment in it; copy the payment link, which begins with svc:.");
  return [uri, isPage ? returnUrlInSearch(search) : null];
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
  must(found.length === 1, "duplicate", "The address of this page has two payment links; open only one.");
  const loose = pairs.find((pair) => /^(amount|ref|confirmations|label|req-[^=]*)=/.test(pair));
  const sentence = "The payment link behind pay= must be percent-encoded as a whole; part of it stands outside.";
  must(loose === undefined, "encoding", sentence);
  let text;
  try {
    text = decodeURIComponent(found[0].slice("pay=".length));
  } catch {
    throw new Problem("encoding", "The payment link is not percent-encoded rightly.");
  }
  const schemes = network.name === "devnet" ? /^(?:web\+svc|svcd?):/i : /^(?:web\+svc|svc):/i;
  return text.replace(schemes, "svc:");
}
