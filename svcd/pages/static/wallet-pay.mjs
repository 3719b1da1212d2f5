// The views that spend: send and review.

import { message } from "./texts.mjs";
import {
  byId,
  element,
  forgetErrors,
  judged,
  moment,
  onClick,
  onSubmit,
  show,
  tell,
  write,
  writeAmount,
} from "./wallet-dom.mjs";
import { checkAddress } from "./address.mjs";
import { typedAmount } from "./amounts.mjs";
import { coins } from "./digits.mjs";
import { loaded } from "./node.mjs";
import { linkId } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { must, Problem } from "./problem.mjs";
import { spendable } from "./review.mjs";
import { siteData } from "./site-data.mjs";
import { possibleAmounts } from "./transaction.mjs";
import { CONFIRMATIONS } from "./transfer-kind.mjs";
import { formatAmount } from "./units.mjs";
import { checkReference, isLink } from "./uri.mjs";
import { visible } from "./visible.mjs";

/** @import { OpenIntent } from "./paying.mjs" */
/** @import { Judgement } from "./review.mjs" */
/** @import { Link } from "./wallet-link.mjs" */
/** @import { Scanning } from "./wallet-scan.mjs" */
/** @import { Wallet } from "./wallet.mjs" */

/** @type {(text: string) => string | null} */
function referenceOf(text) {
  if (text === "") return null;
  checkReference(text);
  return text;
}

/** The form for a transfer without a link, and the review of both kinds. */
export class Spending {
  #app;
  /** @type {OpenIntent | null} */
  #intent = null;
  /** @type {bigint | undefined} */
  #fee = undefined;
  /** @type {bigint | undefined} */
  #nonce = undefined;
  /** That what was shown has changed before it was signed: told until the person tries again.
   * @type {Problem | null} */
  #changed = null;
  /** @type {Poller | null} */
  #poller = null;
  /** @type {Scanning | null} */
  #scanning = null;
  #turn = 0;
  /** @type {string | null} */
  #tip = null;
  /** Whether coins were missing for the payment that is open. */
  #short = false;

  /** @param {Wallet} app */
  constructor(app) {
    this.#app = app;
    byId("scan-start").hidden = navigator.mediaDevices === undefined;
    onClick(
      byId("scan-start"),
      () => this.#scan(),
      (problem) => tell(byId("scan-error"), problem),
    );
    onClick(
      byId("send-all"),
      () => this.#fillAll(),
      (problem) => tell(byId("send-amount-error"), problem),
    );
    onSubmit(byId("send-form"), byId("send-recipient-error"), () => this.#send());
    onSubmit(byId("review-amount-form"), byId("review-amount-error"), () => {
      this.#intent = { ...this.#open, amount: judged(byId("review-amount-input", HTMLInputElement), typedAmount) };
      this.#look();
      byId("review-title").focus();
    });
    onClick(
      byId("sign"),
      () => this.#sign(),
      (problem) => this.#fault(problem),
    );
  }

  async #scan() {
    const { Scanning } = await loaded(import("./wallet-scan.mjs"));
    this.#scanning ??= new Scanning((text) => this.#scanned(text));
    await this.#scanning.start();
  }

  /** The intent that is open; throws a RangeError if there is none. */
  get #open() {
    if (this.#intent === null) throw new RangeError("no payment is open");
    return this.#intent;
  }

  /** The intent that is reviewed, whose amount is known; throws a RangeError if there is none. */
  get #reviewed() {
    const { amount, ...others } = this.#open;
    if (amount === null) throw new RangeError("the payment has no amount yet");
    return { ...others, amount };
  }

  /** Open the form for a transfer of so many base units, which the person may change.
   * @type {(draft: { recipient: string, amount: bigint, reference: string }) => void} */
  propose({ recipient, amount, reference }) {
    byId("send-recipient", HTMLInputElement).value = recipient;
    byId("send-amount", HTMLInputElement).value = formatAmount(amount);
    byId("send-reference", HTMLInputElement).value = reference;
    forgetErrors(byId("send-form"));
    this.#app.go("send");
  }

  /** Show the form. */
  enterSend() {
    show("send");
    this.#showFee();
    return () => this.#scanning?.stop();
  }

  async #showFee() {
    try {
      write(byId("send-fee"), coins(await this.#app.node.fee()));
    } catch (problem) {
      // The review tells it.
      if (!(problem instanceof Problem)) throw problem;
    }
  }

  /** A code of the camera: a link is opened, an address goes into the form.
   * @type {(text: string) => void} */
  #scanned(text) {
    const field = byId("send-recipient", HTMLInputElement);
    field.value = text;
    if (isLink(text)) byId("send-form", HTMLFormElement).requestSubmit();
    else byId("send-amount", HTMLInputElement).focus();
  }

  async #fillAll() {
    const { paying, node, keyfile, network } = this.#app;
    // What has come into a block meanwhile is in the balance already.
    await paying.settle(keyfile.address);
    const [account, fee, own] = await Promise.all([
      node.account(keyfile.address),
      node.fee(),
      paying.of(keyfile.address),
    ]);
    const { accountMinimum: least } = network.rules;
    const available = spendable(account, own);
    const { most: all } = possibleAmounts({ minimum: least, fee, available, received: least });
    const sentence = message("wallet-script.nothing-to-send", { fee: coins(fee), least: coins(least) });
    must(all > 0n, "insufficient", sentence);
    byId("send-amount", HTMLInputElement).value = formatAmount(all);
    tell(byId("send-amount-error"), null);
  }

  /** The payment link that is open and not signed yet, or null.
   * @type {() => Promise<OpenIntent | null>} */
  async openLink() {
    const { link, keyfile, store } = this.#app;
    if (link === null) return null;
    const intent = { ...link, id: linkId(keyfile.address, link), fromLink: true };
    return (await store.payment(intent.id)) === null ? intent : null;
  }

  /** What is missing for the payment that is open, in base units: 0 once it can be paid, null if none waits for coins.
   * @type {() => Promise<bigint | null>} */
  async missing() {
    const intent = this.#intent ?? (await this.openLink());
    if (intent === null || intent.amount === null) return null;
    const known = { ...intent, amount: intent.amount };
    const { blocked } = await this.#app.paying.review(known, this.#app.keyfile.address);
    if (blocked === null) return this.#short ? 0n : null;
    if (blocked.code !== "insufficient") return null;
    this.#short = true;
    return blocked.missing ?? null;
  }

  /** Go back to the payment that waited for coins. */
  resume() {
    this.#app.go(this.#intent === null || this.#intent.fromLink ? "" : "review");
  }

  /** Forget what was typed. */
  forget() {
    this.#intent = null;
    this.#short = false;
    byId("send-form", HTMLFormElement).reset();
  }

  /** Review what a payment link asks for; gives what ends it.
   * @type {(request: Link) => () => void} */
  enterLink(request) {
    return this.#enter({ ...request, fromLink: true });
  }

  /** Review what was typed into the form, if there is something; gives what ends it.
   * @type {() => (() => void) | void} */
  enterReview() {
    if (this.#intent === null || this.#intent.fromLink) return this.#app.go("send", { replace: true });
    return this.#enter(this.#intent);
  }

  #send() {
    const typed = byId("send-recipient", HTMLInputElement).value.trim();
    if (isLink(typed)) {
      judged(byId("send-recipient", HTMLInputElement), (text) => this.#app.openLink(text));
      byId("send-form", HTMLFormElement).reset();
      return;
    }
    const recipient = judged(byId("send-recipient", HTMLInputElement), (text) => {
      checkAddress(text, this.#app.network);
      return text;
    });
    const amount = judged(byId("send-amount", HTMLInputElement), typedAmount);
    const reference = judged(byId("send-reference", HTMLInputElement), referenceOf);
    // The id lives as long as the intent: going back to the form makes a new one, and so may a second transfer.
    const id = `send ${crypto.randomUUID()}`;
    this.#intent = { id, recipient, amount, reference, confirmations: CONFIRMATIONS, label: null, fromLink: false };
    this.#app.go("review");
  }

  /** @type {(intent: Omit<OpenIntent, "id"> & { id?: string }) => () => void} */
  #enter(intent) {
    this.#turn += 1;
    // Until the page shows this intent, it may still show another.
    byId("sign", HTMLButtonElement).disabled = true;
    const open = { ...intent, id: intent.id ?? linkId(this.#app.keyfile.address, intent) };
    this.#intent = open;
    const turn = this.#turn;
    this.#begin(open, turn).catch((problem) => turn === this.#turn && this.#app.stop(problem));
    return () => this.#leave();
  }

  #leave() {
    this.#turn += 1;
    this.#poller?.end();
    this.#poller = null;
  }

  /** @type {(intent: OpenIntent, turn: number) => Promise<void>} */
  async #begin(intent, turn) {
    const earlier = await this.#app.store.payment(intent.id);
    if (turn !== this.#turn) return;
    if (earlier !== null) {
      this.#app.go(`payment=${earlier.txid}`, { replace: true });
      return;
    }
    const asks = intent.amount === null;
    byId("review-unlisted").hidden = intent.listed ?? true;
    byId("review-amount-input", HTMLInputElement).value = "";
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
        const intent = this.#reviewed;
        await paying.settle(sender, intent.id, this.#tip);
        const judgement = await paying.review(intent, sender);
        this.#tip = judgement.view.tip;
        if (this.#poller === poller) this.#judged(judgement);
      },
      (problem) => this.#fault(problem),
    );
    this.#poller = poller;
    poller.ask();
  }

  #fill() {
    const { recipient, amount, reference, label, listed = true, until = null } = this.#reviewed;
    // As in the checkout: beside a link that this site has not made the name of a shop would vouch for it.
    const shop = listed ? siteData().shopNames[recipient] : undefined;
    write(byId("review-shop"), visible(shop ?? ""));
    byId("review-shop").dir = "auto";
    byId("review-shop-name").hidden = byId("review-shop-value").hidden = shop === undefined;
    writeAmount(byId("review-amount"), amount);
    write(byId("review-recipient"), recipient);
    write(byId("review-reference"), reference ?? message("wallet-script.none"));
    write(byId("review-label"), visible(label ?? ""));
    byId("review-label").dir = "auto";
    byId("review-label-name").hidden = label === null;
    byId("review-label-value").hidden = label === null;
    byId("review-until").replaceChildren(until === null ? "" : moment(until));
    byId("review-until-name").hidden = byId("review-until").hidden = until === null;
    this.#fee = this.#nonce = undefined;
    this.#changed = null;
    write(byId("review-nonce"), "…");
    for (const id of ["review-fee", "review-total", "review-after"]) {
      delete byId(id).dataset.shown;
      write(byId(id), "…");
    }
    byId("review-receive").hidden = true;
    byId("sign").hidden = false;
    byId("review-warnings").replaceChildren();
    tell(byId("review-error"), null);
    byId("sign", HTMLButtonElement).disabled = true;
  }

  /** @type {(judgement: Judgement & { nonce: bigint }) => void} */
  #judged({ fee, total, after, warnings, blocked, nonce }) {
    this.#fee = fee;
    this.#nonce = nonce;
    write(byId("review-nonce"), nonce.toString());
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
    tell(byId("review-error"), blocked ?? this.#changed);
    byId("review-receive").hidden = blocked?.code !== "insufficient";
    byId("sign").hidden = blocked?.code === "insufficient";
    this.#short ||= blocked?.code === "insufficient";
    byId("sign", HTMLButtonElement).disabled = blocked !== null;
  }

  /** @type {(problem: unknown) => void} */
  #fault(problem) {
    tell(byId("review-error"), problem);
    byId("sign", HTMLButtonElement).disabled = true;
  }

  async #sign() {
    // A lock forgets it.
    must(this.#intent !== null, "locked", message("wallet-script.locked"));
    // What is signed is what was shown, whatever the node says by now.
    this.#changed = null;
    try {
      if (await this.#app.pay({ ...this.#reviewed, fee: this.#fee, nonce: this.#nonce })) this.forget();
    } catch (problem) {
      this.#changed = problem instanceof Problem && problem.code === "review-changed" ? problem : null;
      throw problem;
    }
  }
}
