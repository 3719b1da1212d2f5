// From an intent to a transfer on the chain, and never to two of them.
//
// An intent has an id. What was signed for it is kept before it is sent, under that id; whoever asks again, be it by a
// double click, a reload or in another tab, gets the same bytes. Sending the same bytes again is always safe.

import { placeOf } from "./node.mjs";
import { judge, needsBalance, spendable } from "./review.mjs";
import { DEEP, LIFETIME } from "./networks.mjs";
import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";
import { signTransfer } from "./transaction.mjs";

/** @import { Key } from "./ed25519.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { Account, Node, Place, View } from "./node.mjs" */
/** @import { Judgement } from "./review.mjs" */
/** @import { Transfer } from "./transaction.mjs" */
/** @typedef {"signed" | "pending" | "confirming" | "confirmed" | "refused"} PaymentState */
/**
 * @typedef {object} Intent
 * @property {string} id
 * @property {string} recipient
 * @property {bigint} amount in base units
 * @property {string | null} reference
 * @property {number} confirmations
 * @property {string | null} label
 * @property {string | null} [returnUrl]
 * @property {number | null} [until] when the order expires, in Unix milliseconds
 * @property {bigint} [fee] in base units
 * @property {boolean} fromLink
 */
/** @typedef {Omit<Intent, "amount"> & { amount: bigint | null, listed?: boolean }} OpenIntent
 * whose amount the person may choose, and which may come from a link that this site does not list. */
/**
 * @typedef {object} Payment
 * @property {string} id of the intent
 * @property {string} txid
 * @property {Transfer} transfer
 * @property {number} wanted confirmations
 * @property {string | null} label
 * @property {string | null} [returnUrl]
 * @property {number | null} [until] when the order expires, in Unix milliseconds
 * @property {number} signedAt in Unix milliseconds
 * @property {PaymentState} state
 * @property {PaymentState} [deepest] which it had before
 * @property {number} confirmations
 * @property {string} [blockHeight]
 * @property {number} [blockTime] in Unix milliseconds
 * @property {{ code: string, sentence: string } | null} problem
 */
/**
 * @typedef {object} PaymentStore
 * @property {(id: string) => Promise<Payment | null>} payment
 * @property {() => Promise<Payment[]>} payments
 * @property {(payment: Payment) => Promise<void>} keep
 * @property {(payment: Payment) => Promise<Payment>} renew
 */
/** @typedef {(work: () => Promise<Payment>) => Promise<Payment>} Exclusive */
/** @typedef {{ key: Key, sender: string, network: Network }} Signing */

/** The id of the intent behind a payment link: one order of one shop, paid once from one address.
 *
 * A link that leaves the amount to the person (null) is one intent too, whatever they choose.
 * @type {(sender: string, order: Pick<OpenIntent, "recipient" | "amount" | "reference">) => string} */
export function linkId(sender, { recipient, amount, reference }) {
  return `link ${sender} ${recipient} ${amount ?? "any"} ${reference}`;
}

/** @type {PaymentState[]} */
const DEPTHS = ["signed", "pending", "confirming", "confirmed"];

/** Whether a reorganisation has taken a payment back: it was in a block, and is less deep now.
 * @type {(payment: Pick<Payment, "state" | "deepest">) => boolean} */
export function hasFallen({ state, deepest = state }) {
  return DEPTHS.indexOf(deepest) >= DEPTHS.indexOf("confirming") && DEPTHS.indexOf(state) < DEPTHS.indexOf(deepest);
}

/** Whether nothing more is expected to happen to a payment by itself.
 * @type {(payment: Payment) => boolean} */
const isSettled = ({ state, confirmations }) => state === "refused" || (state === "confirmed" && confirmations >= DEEP);

/** Signs and follows payments.
 *
 * `store` keeps them (payment, payments, keep, renew), `node` is a Node, `clock` gives Unix milliseconds, and
 * `exclusive` runs a piece of work while no other tab does.
 */
export class Paying {
  #store;
  #node;
  #clock;
  #exclusive;
  /** @type {string | null} */
  #settledAt = null;

  /** @param {{ store: PaymentStore, node: Node, clock: () => number, exclusive: Exclusive }} parts */
  constructor({ store, node, clock, exclusive }) {
    this.#store = store;
    this.#node = node;
    this.#clock = clock;
    this.#exclusive = exclusive;
  }

  /** Payments signed by `sender` here, the newest first.
   * @type {(sender: string) => Promise<Payment[]>} */
  async of(sender) {
    const all = await this.#store.payments();
    return all
      .filter(({ transfer }) => transfer.senderAddress === sender)
      .sort((one, other) => other.signedAt - one.signedAt);
  }

  /** What there is to know before `intent` is signed, judged: see review.mjs. Without a `fee` it has the node's.
   * @type {(intent: Intent, sender: string) => Promise<Judgement & { account: Account, view: View }>} */
  async review(intent, sender) {
    const { recipient, reference } = intent;
    const [view, account, received, fee, paid, own] = await Promise.all([
      this.#node.view(),
      this.#node.account(sender),
      needsBalance(intent, sender) ? this.#node.account(recipient).then(({ balance }) => balance) : null,
      intent.fee ?? this.#node.fee(),
      reference === null ? null : this.#node.payment({ ...intent, reference }),
      this.of(sender),
    ]);
    const available = spendable(account, own, intent.id);
    const known = { sender, view, received, fee, paid, available, now: this.#clock() };
    return { ...judge(intent, known), account, view };
  }

  /** The signed payment of `intent`, made now unless there is one. It is kept, and not yet sent.
   *
   * `again` is the txid of a refused payment of the same intent that is to be signed anew. Throws what review.mjs
   * blocks for.
   * @param {Intent} intent
   * @param {Signing} signing
   * @param {string | null} again
   * @returns {Promise<Payment>} */
  sign(intent, { key, sender, network }, again = null) {
    return this.#exclusive(async () => {
      const earlier = await this.#store.payment(intent.id);
      if (earlier !== null && (earlier.txid !== again || earlier.state !== "refused")) return earlier;
      await this.settle(sender, intent.id);
      if (earlier !== null && (await this.#node.transaction(earlier.txid)) !== null) return earlier;
      const { account, fee, blocked } = await this.review(intent, sender);
      if (blocked !== null) throw blocked;
      const nonce = nonceFor(earlier, account);
      const signedAt = this.#clock();
      const { recipient, amount, reference } = intent;
      const draft = { recipient, amount, reference, fee, nonce, timestamp: BigInt(signedAt) };
      const { txid, transfer } = await signTransfer(draft, key, network);
      const { confirmations: wanted, label, id, returnUrl = null, until = null } = intent;
      const about = { id, txid, transfer, wanted, label, returnUrl, until, signedAt };
      /** @type {Payment} */
      const payment = { ...about, state: "signed", deepest: "signed", confirmations: 0, problem: null };
      await this.#store.keep(payment);
      return payment;
    });
  }

  /** Follow all payments of `sender` that are not settled, but for the one of the intent `except`.
   *
   * The node counts what waits there into the next nonce, so before anything is signed it must have all that was, and
   * also what a reorganisation has taken back. Payments that are confirmed are asked for once for each `tip`, the hash
   * of the newest block, where it is given.
   * @type {(sender: string, except?: string | null, tip?: string | null) => Promise<void>} */
  async settle(sender, except = null, tip = null) {
    const same = tip !== null && tip === this.#settledAt;
    const own = await this.of(sender);
    // The oldest first, because a transfer waits for those with earlier nonces.
    const open = own.filter((payment) => payment.id !== except && !isSettled(payment)).reverse();
    const confirmed = open.filter(({ state }) => state === "confirmed");
    const others = open.filter(({ state }) => state !== "confirmed");
    if (confirmed.length > 0 && !same) {
      // One question for all of them, in the common case that the newest transfers have them.
      const { transfers } = await this.#node.transfers(sender);
      const newest = new Map(transfers.map((record) => [record.txid, record]));
      for (const payment of confirmed) {
        const record = newest.get(payment.txid);
        await (record === undefined ? this.follow(payment) : this.#found(payment, placeOf(record)));
      }
    }
    for (const payment of others) await this.follow(payment);
    this.#settledAt = tip;
  }

  /** The payment as it stands now; it is handed to the node (again) if no block holds it.
   * @type {(payment: Payment) => Promise<Payment>} */
  async follow(payment) {
    const found = await this.#node.transaction(payment.txid);
    if (found !== null) return this.#found(payment, found);
    try {
      await this.#node.broadcast(payment.txid, payment.transfer);
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.code !== "rejected") throw problem;
      return this.#refused(payment, problem);
    }
    return this.#renew(payment, { state: "pending", confirmations: 0, problem: null });
  }

  /** @type {(payment: Payment, place: Place) => Promise<Payment>} */
  #found(payment, { confirmations, blockHeight, blockTime }) {
    const state = confirmations >= payment.wanted ? "confirmed" : "confirming";
    return this.#renew(payment, { state, confirmations, blockHeight, blockTime, problem: null });
  }

  /** @type {(payment: Payment, changes: Partial<Payment> & { state: PaymentState }) => Promise<Payment>} */
  #renew(payment, { state, ...changes }) {
    const { deepest = payment.state } = payment;
    const depth = Math.max(DEPTHS.indexOf(deepest), DEPTHS.indexOf(state), 0);
    const nowhere = { blockHeight: undefined, blockTime: undefined };
    return this.#store.renew({ ...payment, ...nowhere, ...changes, state, deepest: DEPTHS[depth] });
  }

  /** @type {(payment: Payment, rejected: Problem) => Promise<Payment>} */
  async #refused(payment, rejected) {
    const { senderAddress, nonce } = payment.transfer;
    const account = await this.#node.account(senderAddress);
    const found = await this.#node.transaction(payment.txid);
    if (found !== null) return this.#found(payment, found);
    const { code, message } = this.#why(payment, account, BigInt(nonce)) ?? rejected;
    return this.#renew(payment, { state: "refused", confirmations: 0, problem: { code, sentence: message } });
  }

  /** @type {(payment: Payment, account: Account, own: bigint) => Problem | null} */
  #why(payment, { nonce, pendingNonce }, own) {
    if (nonce > own) {
      return new Problem("nonce-stale", message("wallet-script.nonce-taken"));
    }
    if (pendingNonce > own) {
      return new Problem("nonce-stale", message("wallet-script.nonce-waits"));
    }
    if (this.#clock() - payment.signedAt > LIFETIME) {
      return new Problem("expired", message("wallet-script.expired"));
    }
    return null;
  }
}

// Of two transfers with one nonce only one can ever be paid, so a refused one is signed anew under its own if it can.
/** @type {(earlier: Payment | null, account: Account) => bigint} */
function nonceFor(earlier, account) {
  const own = earlier === null ? null : BigInt(earlier.transfer.nonce);
  return own !== null && own >= account.nonce ? own : account.pendingNonce;
}
