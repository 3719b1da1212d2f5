// What a transfer is to a wallet.

import { message } from "./texts.mjs";

/** @import { Payload } from "./transaction.mjs" */

/** How the reference of a refund begins (docs/payments.md). */
export const REFUND = "refund:";
/** Confirmations of a transfer for which nobody has asked for another number. */
export const CONFIRMATIONS = 12;

/** What a transfer that was not refused is called: it goes `out`, to the wallet itself, or comes in, and may wait for a
 * block.
 * @type {(payload: Payload | undefined, how: { out: boolean, toSelf: boolean, waits: boolean }) => string} */
export function kindOf(payload, { out, toSelf, waits }) {
  if (waits && !out) return message("wallet-script.arriving");
  if (toSelf) return message("wallet-script.to-yourself");
  if (String(payload?.paymentReference).startsWith(REFUND)) {
    return out ? message("wallet-script.refund-sent") : message("wallet-script.refund-received");
  }
  return out ? message("wallet-script.sent") : message("wallet-script.received");
}
