// The views that spend: send and review.

import { message } from "./texts.mjs";
import { byId, element, judged, onClick, onSubmit, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { checkAddress } from "./address.mjs";
import { coins, formatAmount, typedAmount } from "./amounts.mjs";
import { linkId } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { must, Problem } from "./problem.mjs";
import { underWay } from "./review.mjs";
import { checkReference, isLink } from "./uri.mjs";
import { visible } from "./visible.mjs";
import { Scanning } from "./wallet-scan.mjs";

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
  #intent = null;
  #fee = null;
  #poller = null;
  #scanning;
  #turn = 0;
  #tip = null;
  /** Whether coins were missing for the payment that is open. */
  #short = false;

  constructor(app) {
    this.#app = app;
    this.#scanning = new Scanning((text) => this.#scanned(text));
    onClick(
      byId("send-all"),
      () => this.#fillAll(),
      (problem) => tell(byId("send-amount-error"), problem),
    );
    onSubmit(byId("send-form"), byId("send-recipient-error"), () => this.#send());
    onSubmit(byId("review-amount-form"), byId("review-amount-error"), () => {
      this.#intent = { ...this.#intent, amount: judged(byId("review-amount-input"), typedAmount) };
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
    this.#showFee();
    return () => this.#scanning.stop();
  }

  async #showFee() {
    try {
      write(byId("send-fee"), coins(await this.#app.node.fee()));
    } catch (problem) {
      // The review tells it.
      if (!(problem instanceof Problem)) throw problem;
    }
  }

  /** A code of the camera: a link is opened, an address goes into the form. */
  #scanned(text) {
    const field = byId("send-recipient");
    field.value = text;
    if (isLink(text)) byId("send-form").requestSubmit();
    else byId("send-amount").focus();
  }

  async #fillAll() {
    const { paying, node, keyfile } = this.#app;
    const [{ balance }, fee, own] = await Promise.all([
      node.account(keyfile.address),
      node.fee(),
      paying.of(keyfile.address),
    ]);
    const all = balance - underWay(own) - fee;
    must(all > 0n, "insufficient", message("wallet-script.nothing-to-send", { fee: coins(fee) }));
    byId("send-amount").value = formatAmount(all);
    tell(byId("send-amount-error"), null);
  }

  /** The payment link that is open and not signed yet, or null. */
  async openLink() {
    const { link, keyfile, store } = this.#app;
    if (link === null) return null;
    const intent = { ...link, id: linkId(keyfile.address, link), fromLink: true };
    return (await store.payment(intent.id)) === null ? intent : null;
  }

  /** What is missing for the payment that is open, in base units: 0 once it can be paid, null if none waits for coins. */
  async missing() {
    const intent = this.#intent ?? (await this.openLink());
    if (intent === null || intent.amount === null) return null;
    const { blocked } = await this.#app.paying.review(intent, this.#app.keyfile.address);
    if (blocked === null) return this.#short ? 0n : null;
    if (blocked.code !== "insufficient") return null;
    this.#short = true;
    return blocked.missing;
  }

  /** Go back to the payment that waited for coins. */
  resume() {
    this.#app.go(this.#intent === null || this.#intent.fromLink ? "" : "review");
  }

  /** Forget what was typed. */
  forget() {
    this.#intent = null;
    this.#short = false;
    byId("send-form").reset();
  }

  /** Review what a payment link asks for; gives what ends it. */
  enterLink(request) {
    return this.#enter({ ...request, fromLink: true });
  }

  /** Review what was typed into the form, if there is something; gives what ends it. */
  enterReview() {
    if (this.#intent === null || this.#intent.fromLink) return this.#app.go("send", { replace: true });
    return this.#enter(this.#intent);
  }

  #send() {
    const typed = byId("send-recipient").value.trim();
    if (isLink(typed)) {
      judged(byId("send-recipient"), (text) => this.#app.openLink(text));
      byId("send-form").reset();
      return;
    }
    const recipient = judged(byId("send-recipient"), (text) => {
      checkAddress(text, this.#app.network);
      return text;
    });
    const amount = judged(byId("send-amount"), typedAmount);
    const reference = judged(byId("send-reference"), referenceOf);
    // The id lives as long as the intent: going back to the form makes a new one, and so may a second transfer.
    const id = `send ${crypto.randomUUID()}`;
    this.#intent = { id, recipient, amount, reference, confirmations: CONFIRMATIONS, label: null, fromLink: false };
    this.#app.go("review");
  }

  #enter(intent) {
    this.#turn += 1;
    // Until the page shows this intent, it may still show another.
    switched(byId("sign"), false);
    this.#intent = { ...intent, id: intent.id ?? linkId(this.#app.keyfile.address, intent) };
    const turn = this.#turn;
    this.#begin(turn).catch((problem) => turn === this.#turn && this.#app.stop(problem));
    return () => this.#leave();
  }

  #leave() {
    this.#turn += 1;
    this.#poller?.end();
    this.#poller = null;
  }

  async #begin(turn) {
    const earlier = await this.#app.store.payment(this.#intent.id);
    if (turn !== this.#turn) return;
    if (earlier !== null) {
      this.#app.go(`payment=${earlier.txid}`, { replace: true });
      return;
    }
    const asks = this.#intent.amount === null;
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
        await paying.settle(sender, this.#intent.id, this.#tip);
        const judgement = await paying.review(this.#intent, sender);
        this.#tip = judgement.view.tip;
        if (this.#poller === poller) this.#judged(judgement);
      },
      (problem) => this.#fault(problem),
    );
    this.#poller = poller;
    poller.ask();
  }

  #fill() {
    const { recipient, amount, reference, label } = this.#intent;
    writeAmount(byId("review-amount"), amount);
    write(byId("review-recipient"), recipient);
    write(byId("review-reference"), reference ?? message("wallet-script.none"));
    write(byId("review-label"), visible(label ?? ""));
    byId("review-label").dir = "auto";
    byId("review-label-name").hidden = label === null;
    byId("review-label-value").hidden = label === null;
    this.#fee = null;
    for (const id of ["review-fee", "review-total", "review-after"]) {
      delete byId(id).dataset.shown;
      write(byId(id), "…");
    }
    byId("review-receive").hidden = true;
    byId("sign").hidden = false;
    byId("review-warnings").replaceChildren();
    tell(byId("review-error"), null);
    switched(byId("sign"), false);
  }

  #judged({ fee, total, after, warnings, blocked }) {
    this.#fee = fee;
    writeAmount(byId("review-fee"), fee);
    writeAmount(byId("review-total"), total);
    if (after < 0n) {
      delete byId("review-after").dataset.shown;
      write(byId("review-after"), message("wallet-script.not-enough"));
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
    byId("review-receive").hidden = blocked?.code !== "insufficient";
    byId("sign").hidden = blocked?.code === "insufficient";
    this.#short ||= blocked?.code === "insufficient";
    switched(byId("sign"), blocked === null);
  }

  #fault(problem) {
    tell(byId("review-error"), problem);
    switched(byId("sign"), false);
  }

  async #sign() {
    // What is signed is what was shown, whatever the node suggests by now.
    if (await this.#app.pay({ ...this.#intent, fee: this.#fee })) this.forget();
  }
}
