// The view for a fault that leaves nothing to be done on this page.

import { byId, show, tell, write } from "./wallet-dom.mjs";
import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

const LINK_FAULTS = new Set(
  "scheme encoding too-long duplicate unsupported address network amount reference confirmations label unlisted".split(
    " ",
  ),
);

/** Show a fault that leaves nothing to be done here, with what the person can do instead.
 * @type {(problem: unknown) => void} */
export function stop(problem) {
  tell(byId("stopped-error"), problem);
  const code = problem instanceof Problem ? problem.code : "";
  const ofLink = LINK_FAULTS.has(code);
  const title = ofLink ? "wallet-script.link-cannot-be-paid" : "wallet-script.cannot-be-opened";
  write(byId("stopped-title"), message(title));
  byId("stopped-without-link").hidden = !ofLink;
  const other = code === "keyfile-of-other-network" || code === "damaged-keyfile";
  byId("stopped-download").hidden = !other;
  byId("stopped-remove").hidden = true;
  write(byId("stopped-advice"), advice(code, ofLink));
  show("stopped");
}

/** @type {(code: string, ofLink: boolean) => string} */
function advice(code, ofLink) {
  if (ofLink) return message("wallet-script.ask-for-another-link");
  if (code === "node-unreachable") return message("wallet-script.tries-again");
  if (code === "keyfile-of-other-network") return message("wallet-script.wallet-of-other-network");
  return "";
}
