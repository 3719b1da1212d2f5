// What becomes of a payment, from its signature until it is as deep as was asked.

import { byId, moment, onClick, onCopy, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { coins } from "./digits.mjs";
import { blocksLeft } from "./expectation.mjs";
import { hasFallen } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { Problem } from "./problem.mjs";
import { signedOf } from "./signed.mjs";
import { message } from "./texts.mjs";
import { returnUrlOf } from "./uri.mjs";
import { visible } from "./visible.mjs";

/** @import { View } from "./node.mjs" */
/** @import { Payment, PaymentState } from "./paying.mjs" */
/** @import { Wallet } from "./wallet.mjs" */

// Milliseconds between looks at a payment that is confirmed, which a reorganisation may take back.
const SLOW = 30_000;

/** @type {Record<PaymentState, string>} */
const TITLES = {
  refused: "wallet-script.title-refused",
  confirmed: "wallet-script.title-confirmed",
  confirming: "wallet-script.title-confirming",
  pending: "wallet-script.title-pending",
  signed: "wallet-script.title-signed",
};
/** @type {Record<PaymentState, [string, string]>} */
const BADGES = {
  refused: ["bad", "wallet-script.badge-refused"],
  confirmed: ["good", "wallet-script.badge-confirmed"],
  confirming: ["accent", "wallet-script.badge-confirming"],
  pending: ["warn", "wallet-script.badge-pending"],
  signed: ["warn", "wallet-script.badge-signed"],
};

/** What is told of a payment; `view` is what is known of the node, or null.
 * @type {(payment: Payment, view: View | null) => string} */
function sentence({ state, confirmations: done, wanted: count }, view) {
  if (state === "signed") return message("wallet-script.signed");
  if (state === "refused") return message("wallet-script.refused");
  // More than was asked for would read as if that was still missing.
  if (state === "confirmed") return message("wallet-script.confirmed", { count: done });
  const left = blocksLeft(count - done, view);
  return message("wallet-script.confirming", { left, done, count });
}

/** What it means that a reorganisation has taken the payment back, or "".
 * @type {(payment: Payment) => string} */
function newsOfFall(payment) {
  if (!hasFallen(payment)) return "";
  if (payment.state === "refused") return message("wallet-script.fallen-refused");
  return payment.state === "confirming" ? message("wallet-script.fallen-confirming") : message("wallet-script.fallen");
}

/** One payment from its signature until it is as deep as was asked. */
export class Following {
  #app;
  /** @type {Payment | null} */
  #payment = null;
  /** @type {bigint} */
  #fee = 0n;
  /** Why it cannot be signed again; undefined before that is known.
   * @type {Problem | null | undefined} */
  #why = undefined;
  /** What was known of the node last.
   * @type {View | null} */
  #view = null;
  /** Whether the person was asked to confirm another nonce. */
  #asked = false;
  /** @type {Poller | null} */
  #poller = null;
  #turn = 0;

  /** @param {Wallet} app */
  constructor(app) {
    this.#app = app;
    /** @type {(problem: unknown) => void} */
    const failed = (problem) => tell(byId("payment-error"), problem);
    onCopy(byId("payment-copy"), () => this.#payment?.txid ?? "", byId("payment-live"));
    onClick(byId("try-again"), () => this.#follow(true), failed);
    onClick(byId("payment-print"), () => globalThis.print());
    onClick(byId("sign-again"), () => this.#signAgain(), failed);
  }

  /** Show a payment of this wallet and follow it; gives what ends it.
   * @type {(txid: string) => () => void} */
  enter(txid) {
    this.#turn += 1;
    const turn = this.#turn;
    this.#open(txid, turn).catch((problem) => turn === this.#turn && this.#app.stop(problem));
    return () => this.#leave();
  }

  /** Forget which payment it was. */
  forget() {
    this.#payment = null;
  }

  /** @type {(txid: string, turn: number) => Promise<void>} */
  async #open(txid, turn) {
    const own = await this.#app.paying.of(this.#app.keyfile.address);
    if (turn !== this.#turn) return;
    const payment = own.find((each) => signedOf(each).some((signed) => signed.txid === txid));
    if (payment === undefined) {
      this.#app.go("history", { replace: true });
      return;
    }
    this.#app.dropLink(payment.id);
    this.#why = undefined;
    this.#view = null;
    this.#asked = false;
    this.#fill(payment);
    show("payment");
    this.#follow(payment.state !== "refused");
  }

  #leave() {
    this.#turn += 1;
    this.#poller?.end();
    this.#poller = null;
  }

  /** Ask what has become of the payment until nothing more can; `handIn`: give it to the node although it was refused.
   * @type {(handIn: boolean) => Promise<void>} */
  #follow(handIn) {
    this.#poller?.end();
    const { attention, node, paying } = this.#app;
    const poller = new Poller(
      async () => {
        if (this.#payment === null) return true;
        const before = this.#payment;
        const asking = () => (handIn ? paying.follow(before) : paying.look(before));
        // What was signed is handed in even if the person goes to another tab at once.
        const payment = await (before.state === "signed" ? attention.urgently(asking) : asking());
        const why = payment.state === "refused" ? await paying.whyNotAgain(payment) : undefined;
        if (this.#poller !== poller) return true;
        handIn = payment.state !== "refused";
        this.#why = why;
        this.#fill(payment, this.#view);
        // Only the time that is left depends on the node's view: a hidden tab has what became of the payment before it.
        if (["pending", "confirming"].includes(payment.state)) {
          this.#view = await node.view().catch((problem) => {
            if (!(problem instanceof Problem)) throw problem;
            return null;
          });
          if (this.#poller !== poller) return true;
          this.#fill(payment, this.#view);
        }
        if (payment.problem?.code === "rejected") this.#adviseFee(poller);
        if (payment.state === "refused") return why === null || SLOW;
        return payment.state === "confirmed" ? SLOW : false;
      },
      (problem) => tell(byId("payment-error"), problem),
    );
    this.#poller = poller;
    return poller.ask();
  }

  /** Say what signing anew costs, if the node suggests a higher fee by now, as it does when its pool is full.
   * @type {(poller: Poller) => Promise<void>} */
  async #adviseFee(poller) {
    const fee = await this.#app.node.fee().catch((problem) => {
      // It is told when the payment is signed anew.
      if (!(problem instanceof Problem)) throw problem;
      return this.#fee;
    });
    if (this.#poller !== poller || fee <= this.#fee) return;
    write(byId("payment-advice"), message("wallet-script.fee-higher", { fee: coins(fee) }));
    byId("payment-advice").hidden = false;
  }

  /** @type {(payment: Payment, view?: View | null) => void} */
  #fill(payment, view = null) {
    this.#payment = payment;
    const { state, transfer, txid, confirmations, wanted, problem, label, returnUrl, signedAt, blockTime } = payment;
    const { payload, fee } = transfer;
    const title = message(TITLES[state]);
    write(byId("payment-title"), title);
    document.title = `${title} · SVC`;
    writeAmount(byId("payment-amount"), BigInt(payload.amount));
    const badge = byId("payment-badge");
    const [kind, words] = BADGES[state];
    badge.className = `badge ${kind}`;
    write(badge, message(words));
    const where = byId("payment-state");
    Object.assign(where.dataset, { state, confirmations, wanted });
    write(where, sentence(payment, view));
    const fall = newsOfFall(payment);
    write(byId("payment-fallen"), fall);
    byId("payment-fallen").hidden = fall === "";
    write(byId("payment-label"), visible(label ?? ""));
    byId("payment-label-name").hidden = byId("payment-label-value").hidden = label === null;
    byId("payment-time").replaceChildren(moment(blockTime ?? signedAt));
    this.#showReturn(returnUrlOf(returnUrl ?? null), state);
    const progress = byId("payment-progress", HTMLProgressElement);
    progress.max = wanted;
    progress.value = Math.min(confirmations, wanted);
    progress.hidden = state === "refused";
    write(byId("payment-recipient"), payload.recipient);
    write(byId("payment-reference"), payload.paymentReference ?? message("wallet-script.none"));
    this.#fee = BigInt(fee);
    writeAmount(byId("payment-fee"), this.#fee);
    const link = byId("payment-txid", HTMLAnchorElement);
    write(link, txid);
    link.href = `/tx/${txid}`;
    tell(byId("payment-error"), problem && new Problem(problem.code, problem.sentence));
    byId("payment-advice").hidden = true;
    byId("payment-actions").hidden = state !== "refused";
    byId("payment-print").hidden = state !== "confirmed";
    byId("try-again").hidden = problem?.code !== "rejected";
    // What waits under the same nonce would be replaced, and of what may be paid already there must not be another.
    byId("sign-again").hidden = state !== "refused" || this.#why !== null;
    tell(byId("payment-again"), this.#why ?? null);
  }

  /** @type {(shop: { url: string, host: string } | null, state: PaymentState) => void} */
  #showReturn(shop, state) {
    const link = byId("payment-return", HTMLAnchorElement);
    link.hidden = shop === null;
    link.classList.toggle("primary", state === "confirmed");
    if (shop === null) return;
    link.href = shop.url;
    write(link, message("wallet-script.back", { host: shop.host }));
  }

  async #signAgain() {
    if (this.#payment === null) return;
    const { id, txid, transfer, wanted: confirmations, label, returnUrl, until } = this.#payment;
    const { recipient, amount, paymentReference: reference = null } = transfer.payload;
    const suggested = await this.#app.node.fee();
    if (suggested > this.#fee) {
      this.#fee = suggested;
      writeAmount(byId("payment-fee"), suggested);
      throw new Problem("fee-raised", message("wallet-script.fee-risen"));
    }
    const intent = {
      id,
      recipient,
      amount: BigInt(amount),
      reference,
      confirmations,
      label,
      returnUrl,
      until,
      fee: this.#fee,
      fromLink: id.startsWith("link "),
    };
    try {
      await this.#app.pay(intent, { again: txid, anew: this.#asked });
    } catch (problem) {
      this.#asked = problem instanceof Problem && problem.code === "nonce-ask";
      throw problem;
    }
  }
}
