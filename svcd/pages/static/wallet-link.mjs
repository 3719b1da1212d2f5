// The payment link of the wallet's page, as it is in the fragment of its address.

import { judgedLink } from "./link-policy.mjs";
import { parseUri, returnUrlInSearch, untilInSearch, uriInSearch, uriInText } from "./uri.mjs";
import { siteData } from "./site-data.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { LinkRequest } from "./uri.mjs" */
/** @typedef {LinkRequest & { returnUrl: string | null, until: number | null, listed: boolean }} Link */

/** The link of a text such as `pay=…&returnUrl=…`, or null if there is none in it; throws what is wrong with it.
 * @type {(text: string, network: Network) => Link | null} */
export function linkOf(text, network) {
  const query = `?${text}`;
  const uri = uriInSearch(query, network);
  if (uri === null) return null;
  const [returnUrl, until] = [returnUrlInSearch(query), untilInSearch(query)];
  return judgedLink({ ...parseUri(uri, network, { amountMayBeMissing: true }), returnUrl, until }, siteData());
}

/** The text of the link that was pasted or scanned, for the fragment; throws what is wrong with it.
 * @type {(pasted: string, network: Network) => string} */
export function linkTextOf(pasted, network) {
  const { uri, returnUrl, until } = uriInText(pasted, network);
  const back = returnUrl === null ? "" : `&returnUrl=${encodeURIComponent(returnUrl)}`;
  const end = until === null ? "" : `&until=${until}`;
  return `pay=${encodeURIComponent(uri)}${back}${end}`;
}
