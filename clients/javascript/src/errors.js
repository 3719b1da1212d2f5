// What can go wrong; the message of every error is one sentence for a person.

import { InvalidAnswer, InvalidProof, SvcPayError } from "./light/errors.mjs";

export { InvalidAnswer, InvalidProof, SvcPayError };

/** A value that this program was given does not have the required form. */
export class InvalidInput extends SvcPayError {}

/** No answer came. A request that is not repeatable may or may not have been carried out. */
export class NodeUnreachable extends SvcPayError {}

/** The node refused the request; the message is its sentence, `retryAfter` is in seconds or null. */
export class ApiError extends SvcPayError {
  constructor(status, sentence, retryAfter = null) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** After a transfer of this amount its sender or its recipient would have less than the account minimum.
 *
 * `possible` is the nearest amount that would do, in base units, or null if none would.
 */
export class ImpossibleAmount extends SvcPayError {
  constructor(sentence, possible = null) {
    super(sentence);
    this.possible = possible;
  }
}

/** A payout is not made or changed as asked: other terms under its id, or a new nonce that could pay it twice. */
export class PayoutRefused extends SvcPayError {}

/** The journal of payouts cannot be read or written, or is damaged; nothing was sent. */
export class JournalError extends SvcPayError {}

/** The store of open orders cannot be read or written, or is damaged, or is read by two programs at once. */
export class StoreError extends SvcPayError {}

/** The awaited state did not come in time. */
export class WaitTimeout extends SvcPayError {}

/** A callback is not from the node, or is too old; answer it with 401. */
export class InvalidSignature extends SvcPayError {}

/** There is no rate that may be used now: do not sell until there is one. */
export class RateRefused extends SvcPayError {}
