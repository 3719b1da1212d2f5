// From an intent to a transfer on the chain, and never to two of them.
//
// An intent has an id. What was signed for it is kept before it is sent, under that id, and is never forgotten; whoever
// asks again, be it by a double click, a reload or in another tab, gets the same bytes. Sending the same bytes again is
// always safe. What may be signed after a refusal is in signed.mjs.

import { sign } from "./ed25519.mjs";
import { placeOf } from "./node.mjs";
import { alreadySigned, judge, needsBalance, spendable } from "./review.mjs";
import { must, Problem } from "./problem.mjs";
import { countedAs, holderOf, isUnsettled, nextNonce, nonceAgain, nonceOf, secondOf, signedOf } from "./signed.mjs";
import { message } from "./texts.mjs";
import { MARGIN, signedTransfer, voidAt } from "./transaction.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Key } from "./ed25519.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { Account, Node, Place, View } from "./node.mjs" */
/** @import { Judgement } from "./review.mjs" */
/** @import { Signed } from "./signed.mjs" */
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
 * @property {bigint} [fee] in base units, as it was shown
 * @property {bigint} [nonce] as it was shown
 * @property {boolean} fromLink
 */
/** @typedef {Omit<Intent, "amount"> & { amount: bigint | null, listed?: boolean }} OpenIntent
 * whose amount the person may choose, and which may come from a link that this site does not list. */
/**
 * @typedef {object} Payment
 * @property {string} id of the intent
 * @property {string} txid
 * @property {Transfer} transfer
 * @property {Signed[]} [earlier] what else was signed for the intent; a block may have taken it all the same
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
/** @typedef {{ key: Key, sender: string }} Signing */
/** @typedef {{ account: Account, own: Payment[], view: View, nonce: bigint }} Reviewed */

/** The id of the intent behind a payment link: one order of one shop, paid once from one address.
 *
 * A link that leaves the amount to the person (null) is one intent too, whatever they choose.
 * @type {(sender: string, order: Pick<OpenIntent, "recipient" | "amount" | "reference">) => string} */
export function linkId(sender, { recipient, amount, reference }) {
  return `link ${sender} ${recipient} ${amount ?? "any"} ${reference}`;
}

/** From this number of confirmations on, nobody expects a reorganisation to take a payment back. */
const DEEP = 100;
/** @type {PaymentState[]} */
const DEPTHS = ["signed", "pending", "confirming", "confirmed"];

/** Whether a reorganisation has taken a payment back: it was in a block, and is less deep now.
 * @type {(payment: Pick<Payment, "state" | "deepest">) => boolean} */
export function hasFallen({ state, deepest = state }) {
  return DEPTHS.indexOf(deepest) >= DEPTHS.indexOf("confirming") && DEPTHS.indexOf(state) < DEPTHS.indexOf(deepest);
}

/** Whether a payment is watched without being handed in: in a block, or refused and not too old for a block.
 * @type {(payment: Payment, now: number, network: Network) => boolean} */
function isWatched(payment, now, network) {
  return isUnsettled(payment, now, network) || (payment.state === "confirmed" && payment.confirmations < DEEP);
}

/** @type {(payment: Payment) => boolean} */
const isOpen = ({ state }) => state !== "refused" && state !== "confirmed";

/** Signs and follows payments.
 *
 * `store` keeps them (payment, payments, keep, renew), `node` is a Node, `clock` gives Unix milliseconds, and
 * `exclusive` runs a piece of work while no other tab does. `network` is that of the node.
 */
export class Paying {
  #store;
  #node;
  #clock;
  #exclusive;
  #network;
  /** @type {string | null} */
  #settledAt = null;

  /** @param {{ store: PaymentStore, node: Node, clock: () => number, exclusive: Exclusive, network: Network }} parts */
  constructor({ store, node, clock, exclusive, network }) {
    this.#store = store;
    this.#node = node;
    this.#clock = clock;
    this.#exclusive = exclusive;
    this.#network = network;
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
   *
   * `nonce` is the one of the intent, or the one that its first transfer gets.
   * @type {(intent: Intent, sender: string) => Promise<Judgement & Reviewed>} */
  async review(intent, sender) {
    const { recipient, reference } = intent;
    const [view, account, received, fee, paid, own] = await Promise.all([
      this.#node.view(),
      this.#node.account(sender),
      needsBalance(intent, sender, this.#network) ? this.#node.account(recipient).then(({ balance }) => balance) : null,
      intent.fee ?? this.#node.fee(),
      reference === null ? null : this.#node.payment({ ...intent, reference }),
      this.of(sender),
    ]);
    const available = spendable(account, own, intent.id);
    const earlier = own.find(({ id }) => id === intent.id);
    const nonce = earlier ? nonceOf(earlier) : nextNonce(account, own);
    const known = { sender, view, received, fee, paid, available, own, now: this.#clock(), nonce };
    return { ...judge(intent, known), account, own, view, nonce };
  }

  /** The signed payment of `intent`, made now unless there is one. It is kept, and not yet sent.
   *
   * `again` is the txid of a refused payment of the same intent that is to be signed again; `anew` says that the person
   * takes the risk of another nonce (see signed.mjs). Throws what review.mjs blocks for, what signed.mjs throws, and
   * `review-changed` if the nonce is not the one of the intent.
   * @param {Intent} intent
   * @param {Signing} signing
   * @param {{ again?: string | null, anew?: boolean }} options
   * @returns {Promise<Payment>} */
  sign(intent, { key, sender }, { again = null, anew = false } = {}) {
    return this.#exclusive(async () => {
      let earlier = await this.#store.payment(intent.id);
      const network = this.#network;
      if (earlier !== null && (earlier.txid !== again || earlier.state !== "refused")) return earlier;
      await this.settle(sender, intent.id);
      if (earlier !== null) earlier = await this.look(earlier);
      if (earlier !== null && earlier.state !== "refused") return earlier;
      const { account, own, fee, blocked, nonce: next } = await this.review(intent, sender);
      if (blocked !== null) throw blocked;
      const signedAt = this.#clock();
      const nonce = earlier === null ? next : nonceAgain(earlier, { account, own, now: signedAt, network }, anew);
      must((intent.nonce ?? nonce) === nonce, "review-changed", message("wallet-script.review-changed"));
      const second = secondOf(intent, own, signedAt, nonce, network);
      if (second !== null) throw alreadySigned(second);
      const { recipient, amount, reference } = intent;
      const draft = { recipient, amount, reference, fee, nonce, timestamp: BigInt(signedAt) };
      const { privateKey, publicKey } = key;
      const signing = (/** @type {Bytes} */ content) => sign(privateKey, content);
      const { txid, transaction: transfer } = await signedTransfer(draft, publicKey, signing, network);
      const { id, confirmations: wanted, label, returnUrl = null, until = null } = intent;
      const about = { id, txid, transfer, wanted, label, returnUrl, until, signedAt };
      const before = earlier === null ? [] : signedOf(earlier);
      /** @type {Payment} */
      const payment = { ...about, earlier: before, state: "signed", deepest: "signed", confirmations: 0, problem: null };
      await this.#store.keep(payment);
      return payment;
    });
  }

  /** Why a refused payment cannot be signed again at present, or null.
   * @type {(payment: Payment) => Promise<Problem | null>} */
  async whyNotAgain(payment) {
    const sender = payment.transfer.senderAddress;
    const [account, own] = await Promise.all([this.#node.account(sender), this.of(sender)]);
    try {
      nonceAgain(payment, { account, own, now: this.#clock(), network: this.#network }, true);
      return null;
    } catch (problem) {
      if (problem instanceof Problem) return problem;
      throw problem;
    }
  }

  /** Follow all payments of `sender` that are not settled, but for the one of the intent `except`.
   *
   * The node counts what waits there into the next nonce, so before anything is signed it must have all that was, and
   * also what a reorganisation has taken back. Payments that are confirmed, and those that are refused and may still be
   * paid, are asked for once for each `tip`, the hash of the newest block, where it is given.
   * @type {(sender: string, except?: string | null, tip?: string | null) => Promise<void>} */
  async settle(sender, except = null, tip = null) {
    const same = tip !== null && tip === this.#settledAt;
    // The oldest first, because a transfer waits for those with earlier nonces.
    const own = (await this.of(sender)).filter(({ id }) => id !== except).reverse();
    const watched = own.filter((payment) => isWatched(payment, this.#clock(), this.#network));
    if (watched.length > 0 && !same) {
      // One question for all of them, in the common case that the newest transfers have them.
      const { transfers } = await this.#node.transfers(sender);
      const newest = new Map(transfers.map((record) => [record.txid, record]));
      for (const payment of watched) {
        const record = signedOf(payment).map(({ txid }) => newest.get(txid)).find((each) => each !== undefined);
        if (record !== undefined) await this.#found(countedAs(payment, record.txid), placeOf(record));
        else await (payment.state === "refused" ? this.look(payment) : this.follow(payment));
      }
    }
    for (const payment of own.filter(isOpen)) await this.follow(payment);
    this.#settledAt = tip;
  }

  /** The payment as it is now; the same bytes are handed to the node (again) if no block holds them.
   *
   * A refused payment is not handed in while another payment from here has its nonce: it might replace that one.
   * @type {(payment: Payment) => Promise<Payment>} */
  async follow(payment) {
    const found = await this.#inBlock(payment);
    if (found !== null) return found;
    const own = payment.state === "refused" ? await this.of(payment.transfer.senderAddress) : [];
    if (holderOf(own, nonceOf(payment), payment.id) !== null) return this.#notPaid(payment, payment.problem);
    const sendable = signedOf(payment).filter(({ transfer }) => transfer.nonce === payment.transfer.nonce);
    /** @type {Problem | null} */
    let refusal = null;
    for (const { txid, transfer } of sendable) {
      try {
        await this.#node.broadcast(txid, transfer);
        return await this.#renew(countedAs(payment, txid), { state: "pending", confirmations: 0, problem: null });
      } catch (problem) {
        if (!(problem instanceof Problem) || problem.code !== "rejected") throw problem;
        refusal ??= problem;
      }
    }
    return (await this.#inBlock(payment)) ?? this.#notPaid(payment, refusal);
  }

  /** A refused payment as it is now, which is handed to no node.
   * @type {(payment: Payment) => Promise<Payment>} */
  async look(payment) {
    return (await this.#inBlock(payment)) ?? this.#notPaid(payment, payment.problem);
  }

  /** The payment, if a block holds one of its transfers.
   * @type {(payment: Payment) => Promise<Payment | null>} */
  async #inBlock(payment) {
    for (const { txid } of signedOf(payment)) {
      const place = await this.#node.transaction(txid);
      if (place !== null) return this.#found(countedAs(payment, txid), place);
    }
    return null;
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

  /** @type {(payment: Payment, reason: Payment["problem"] | Problem) => Promise<Payment>} */
  async #notPaid(payment, reason) {
    const account = await this.#node.account(payment.transfer.senderAddress);
    const unknown = await this.#maybeDeleted(payment, account);
    if (unknown !== null) {
      const { state, confirmations, blockHeight, blockTime } = payment;
      const problem = { code: unknown.code, sentence: unknown.message };
      return this.#renew(payment, { state, confirmations, blockHeight, blockTime, problem });
    }
    const told = reason instanceof Problem ? { code: reason.code, sentence: reason.message } : reason;
    const why = this.#why(payment, account);
    const problem = why === null ? told : { code: why.code, sentence: why.message };
    return this.#renew(payment, { state: "refused", confirmations: 0, problem });
  }

  /** Why the node cannot say whether the payment was made: its block may be one that the node does not have any more.
   * @type {(payment: Payment, account: Account) => Promise<Problem | null>} */
  async #maybeDeleted(payment, { nonce }) {
    if (nonce <= nonceOf(payment)) return null;
    const first = await this.#node.firstBlock();
    if (first === null || payment.signedAt > first.newest + Number(MARGIN)) return null;
    return new Problem("pruned", message("wallet-script.pruned", { height: first.height }));
  }

  /** @type {(payment: Payment, account: Account) => Problem | null} */
  #why(payment, { nonce, pendingNonce }) {
    const own = nonceOf(payment);
    if (nonce > own) {
      return new Problem("nonce-stale", message("wallet-script.nonce-taken"));
    }
    if (pendingNonce > own) {
      return new Problem("nonce-stale", message("wallet-script.nonce-waits"));
    }
    if (this.#clock() > voidAt(payment.transfer, this.#network)) {
      return new Problem("expired", message("wallet-script.expired"));
    }
    return null;
  }
}
