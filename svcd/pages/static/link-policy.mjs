// Which payment links this site shows as links of its own shops; svcd/pages/link_policy.py does the same.

import { message } from "./texts.mjs";
import { must } from "./problem.mjs";
import { returnUrlOf } from "./uri.mjs";

/** @typedef {{ recipients: string[], returnHosts: string[], only: boolean }} LinkPolicy empty lists: any */

/** The link, with `listed`: if it is not listed, without its label and its way back; throws unlisted if it is refused.
 * @template {{ recipient: string, label: string | null, returnUrl: string | null }} L
 * @param {L} link
 * @param {LinkPolicy} policy
 * @returns {L & { listed: boolean }} */
export function judgedLink(link, { recipients, returnHosts, only }) {
  const host = returnUrlOf(link.returnUrl)?.host;
  const known = recipients.length === 0 || recipients.includes(link.recipient);
  const listed = known && (host === undefined || returnHosts.length === 0 || returnHosts.includes(host));
  must(listed || !only, "unlisted", message("wallet-script.link-unlisted"));
  return listed ? { ...link, listed } : { ...link, label: null, returnUrl: null, listed };
}
