// What the node has put into the page of the wallet, and into that of the till, for their scripts.

/** @import { LinkPolicy } from "./link-policy.mjs" */
/** @import { Timing } from "./expectation.mjs" */

/** The data of the page; throws a SyntaxError if there are none.
 * @type {() => LinkPolicy & Timing & { shopNames: Record<string, string> }} */
export const siteData = () => JSON.parse(document.getElementById("site-data")?.textContent ?? "");
