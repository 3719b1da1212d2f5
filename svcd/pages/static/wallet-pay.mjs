// The views that spend: send, review, and what becomes of a payment.

import { byId, element, judged, onClick, onCopy, onSubmit, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { checkAddress } from "./address.mjs";
import { parseAmount } from "./amounts.mjs";
import { FEE } from "./networks.mjs";
import { linkId } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { Problem } from "./problem.mjs";
import { checkReference } from "./uri.mjs";

const CONFIRMATIONS = 12;

function referenceOf(text) {
  if (text === "") return null;
  checkReference(text);
  return text;
}

function switched(button, on) {
  button.disabled = !on;
  button.setAttribute("aria-disabled", String(!on));
}

/** The form for a transfer without a link, and the review of both kinds. */
export class Spending {
  #app;
  #wish = null;
  #poller = null;
  #turn = 0;

  constructor(app) {
    this.#app = app;
    onSubmit(byId("send-form"), byId("send-recipient-error"), () => this.#send());
    onSubmit(byId("review-amount-form"), byId("review-amount-error"), () => {
      this.#wish = { ...this.#wish, amount: judged(byId("review-amount-input"), parseAmount) };
      this.#look();
      byId("review-title").focus();
    });
    onClick(
      byId("sign"),
      () => this.#sign(),
      (problem) => this.#fault(problem),
    );
  }

  /** Show the form. */
  enterSend() {
    show("send");
  }

  /** Forget what was typed. */
  forget() {
    this.#wish = null;
    byId("send-form").reset();
  }

  /** Review what a payment link asks for; gives what ends it. */
  enterLink(request) {
    return this.#enter({ ...request, fromLink: true });
  }

  /** Review what was typed into the form, if there is something; gives what ends it. */
  enterReview() {
    if (this.#wish === null || this.#wish.fromLink) return this.#app.go("send", { replace: true });
    return this.#enter(this.#wish);
  }

  #send() {
    const recipient = judged(byId("send-recipient"), (text) => {
      checkAddress(text, this.#app.network);
      return text;
    });
    const amount = judged(byId("send-amount"), parseAmount);
    const reference = judged(byId("send-reference"), referenceOf);
    // The id lives as long as the wish: going back to the form makes a new one, and so may a second transfer.
    const id = `send ${crypto.randomUUID()}`;
    this.#wish = { id, recipient, amount, reference, confirmations: CONFIRMATIONS, label: null, fromLink: false };
    this.#app.go("review");
  }

  #enter(wish) {
    this.#turn += 1;
    // Until the page shows this wish, it may still show another.
    switched(byId("sign"), false);
    this.#wish = { ...wish, id: wish.id ?? linkId(this.#app.keyfile.address, wish) };
    this.#begin(this.#turn).catch((problem) => this.#app.stop(problem));
    return () => this.#leave();
  }

  #leave() {
    this.#turn += 1;
    this.#poller?.end();
    this.#poller = null;
  }

  async #begin(turn) {
    const earlier = await this.#app.store.payment(this.#wish.id);
    if (turn !== this.#turn) return;
    if (earlier !== null) {
      this.#app.go(`payment=${earlier.txid}`, { replace: true });
      return;
    }
    const asks = this.#wish.amount === null;
    byId("review-amount-input").value = "";
    byId("review-amount-form").hidden = !asks;
    byId("review-body").hidden = asks;
    show("review");
    if (!asks) this.#look();
  }

  #look() {
    this.#poller?.end();
    this.#fill();
    byId("review-amount-form").hidden = true;
    byId("review-body").hidden = false;
    const { paying, keyfile } = this.#app;
    const sender = keyfile.address;
    const poller = new Poller(
      async () => {
        await paying.settle(sender, this.#wish.id);
        const judgement = await paying.review(this.#wish, sender);
        if (this.#poller === poller) this.#judged(judgement);
      },
      (problem) => this.#fault(problem),
    );
    this.#poller = poller;
    poller.ask();
  }

  #fill() {
    const { recipient, amount, reference, label } = this.#wish;
    writeAmount(byId("review-amount"), amount);
    write(byId("review-recipient"), recipient);
    write(byId("review-reference"), reference ?? "none");
    write(byId("review-label"), label ?? "");
    byId("review-label").dir = "auto";
    byId("review-label-name").hidden = label === null;
    byId("review-label-value").hidden = label === null;
    writeAmount(byId("review-fee"), FEE);
    writeAmount(byId("review-total"), amount + FEE);
    delete byId("review-after").dataset.shown;
    write(byId("review-after"), "…");
    byId("review-warnings").replaceChildren();
    tell(byId("review-error"), null);
    switched(byId("sign"), false);
  }

  #judged({ after, warnings, blocked }) {
    if (after < 0n) {
      delete byId("review-after").dataset.shown;
      write(byId("review-after"), "not enough");
    } else writeAmount(byId("review-after"), after);
    const list = byId("review-warnings");
    const codes = warnings.map(({ code }) => code).join();
    if ((list.dataset.codes ?? "") !== codes || list.children.length !== warnings.length) {
      list.dataset.codes = codes;
      const items = warnings.map((warning) => {
        const item = element("p", { className: "notice warn", role: "alert", textContent: warning.message });
        item.dataset.error = warning.code;
        return item;
      });
      list.replaceChildren(...items);
    }
    tell(byId("review-error"), blocked);
    switched(byId("sign"), blocked === null);
  }

  #fault(problem) {
    tell(byId("review-error"), problem);
    switched(byId("sign"), false);
  }

  async #sign() {
    const payment = await this.#app.paying.sign(this.#wish, this.#app.signer());
    this.#leave();
    this.forget();
    this.#app.go(`payment=${payment.txid}`, { replace: true });
  }
}

const TITLES = {
  refused: "Not paid",
  confirmed: "Paid",
  confirming: "On the chain",
  pending: "On its way",
  signed: "Signed",
};
const BADGES = { refused: "bad", confirmed: "good", confirming: "accent", pending: "warn", signed: "warn" };

function sentence({ state, confirmations, wanted, blockHeight }) {
  if (state === "signed") return "Signed, and being handed to the node.";
  if (state === "pending") return `The node has it; it waits for a block. 0 of ${wanted} confirmations.`;
  if (state === "confirming") return `In block ${blockHeight}. ${confirmations} of ${wanted} confirmations.`;
  if (state === "confirmed") return `Confirmed in block ${blockHeight}: ${confirmations} of ${wanted} confirmations.`;
  return "Nothing was paid by this transfer.";
}

/** One payment from its signature until it is as deep as was asked. */
export class Following {
  #app;
  #payment = null;
  #poller = null;
  #turn = 0;

  constructor(app) {
    this.#app = app;
    const failed = (problem) => tell(byId("payment-error"), problem);
    onCopy(byId("payment-copy"), () => this.#payment.txid, byId("payment-live"));
    onClick(byId("try-again"), () => this.#follow(), failed);
    onClick(byId("sign-again"), () => this.#signAgain(), failed);
  }

  /** Show a payment of this wallet and follow it; gives what ends it. */
  enter(txid) {
    this.#turn += 1;
    this.#open(txid, this.#turn).catch((problem) => this.#app.stop(problem));
    return () => this.#leave();
  }

  /** Forget which payment it was. */
  forget() {
    this.#payment = null;
  }

  async #open(txid, turn) {
    const own = await this.#app.paying.of(this.#app.keyfile.address);
    if (turn !== this.#turn) return;
    const payment = own.find((each) => each.txid === txid);
    if (payment === undefined) {
      this.#app.go("history", { replace: true });
      return;
    }
    this.#fill(payment);
    show("payment");
    this.#follow();
  }

  #leave() {
    this.#turn += 1;
    this.#poller?.end();
    this.#poller = null;
  }

  #follow() {
    this.#poller?.end();
    const poller = new Poller(
      async () => {
        const payment = await this.#app.paying.follow(this.#payment);
        if (this.#poller !== poller) return true;
        this.#fill(payment);
        return payment.state === "confirmed" || payment.state === "refused";
      },
      (problem) => tell(byId("payment-error"), problem),
    );
    this.#poller = poller;
    return poller.ask();
  }

  #fill(payment) {
    this.#payment = payment;
    const { state, transfer, txid, confirmations, wanted, problem } = payment;
    const { payload, fee } = transfer;
    write(byId("payment-title"), TITLES[state]);
    document.title = `${TITLES[state]} · SVC`;
    writeAmount(byId("payment-amount"), BigInt(payload.amount));
    const badge = byId("payment-badge");
    badge.className = `badge ${BADGES[state]}`;
    write(badge, state);
    const where = byId("payment-state");
    Object.assign(where.dataset, { state, confirmations, wanted });
    write(where, sentence(payment));
    const progress = byId("payment-progress");
    progress.max = wanted;
    progress.value = Math.min(confirmations, wanted);
    progress.hidden = state === "refused";
    write(byId("payment-recipient"), payload.recipient);
    write(byId("payment-reference"), payload.paymentReference ?? "none");
    writeAmount(byId("payment-fee"), BigInt(fee));
    const link = byId("payment-txid");
    write(link, txid);
    link.href = `/tx/${txid}`;
    tell(byId("payment-error"), problem && new Problem(problem.code, problem.sentence));
    byId("payment-actions").hidden = state !== "refused";
    byId("try-again").hidden = problem?.code !== "rejected";
    byId("sign-again").hidden = state !== "refused";
  }

  async #signAgain() {
    const { id, txid, transfer, wanted: confirmations, label } = this.#payment;
    const { recipient, amount, paymentReference: reference = null } = transfer.payload;
    const wish = {
      id,
      recipient,
      amount: BigInt(amount),
      reference,
      confirmations,
      label,
      fromLink: id.startsWith("link "),
    };
    const payment = await this.#app.paying.sign(wish, this.#app.signer(), txid);
    this.#app.go(`payment=${payment.txid}`, { replace: true });
  }
}
