// The wallet page: what it is made of, which view is shown, and when the key is forgotten.
//
// The part of the address behind # names the view, so that reload and back do what people expect; without it, `?pay=`
// is the payment to review. The key is a CryptoKey that cannot be read out, in this tab's memory alone.

import { Idle } from "./idle.mjs";
import { checkSupport } from "./ed25519.mjs";
import { parse, render } from "./keyfile.mjs";
import { Node } from "./node.mjs";
import { Paying } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { must, Problem } from "./problem.mjs";
import { message } from "./texts.mjs";
import { parseUri, returnUrlInSearch, uriInSearch, uriInText } from "./uri.mjs";
import { abandonWork, byId, onClick, remembered, show, tell, write } from "./wallet-dom.mjs";
import { enterHistory, enterHome, enterReceive, wireHistory, wireHome } from "./wallet-home.mjs";
import { Creating, downloadKeyfile, showUnlock, wireKeyfile, wireUnlock } from "./wallet-open.mjs";
import { Following } from "./wallet-following.mjs";
import { Spending } from "./wallet-pay.mjs";
import { enterSettings, wireSettings } from "./wallet-settings.mjs";
import { openStore } from "./wallet-store.mjs";

const CHECK_IDLE_EVERY = 5_000;
/** The views of an open wallet: what stands in them is nobody's business once it is locked. */
const PRIVATE = ["home", "receive", "send", "review", "payment", "history", "settings"];

/** What is typed into another field must not stay on a locked page. */
const clearFields = () => document.querySelectorAll("form").forEach((form) => form.reset());

class Wallet {
  node = new Node((path, options) => fetch(path, options));
  link = null;
  keyfile = null;
  #key = null;
  #leave = null;
  #blank = null;
  /** The fragment to go to once the wallet is unlocked, or null: a locked page has no payment in its address. */
  #awaited = null;

  /** Look whether everything is there, and show the first view. */
  async open() {
    must(isSecureContext && crypto.subtle, "insecure-origin", message("wallet-script.insecure"));
    await checkSupport();
    this.store = await openStore();
    this.network = await this.node.network();
    this.paying = new Paying({
      store: this.store,
      node: this.node,
      clock: Date.now,
      exclusive: (work) => navigator.locks.request("svc-wallet-signing", work),
    });
    this.#wire();
    const badge = byId("network");
    badge.hidden = false;
    badge.classList.add(this.network.name === "mainnet" ? "accent" : "warn");
    write(badge, this.network.name === "mainnet" ? "Mainnet" : "Devnet");
    byId("review-network").className = badge.className;
    write(byId("review-network"), badge.textContent);
    const uri = uriInSearch(location.search, this.network);
    const returnUrl = returnUrlInSearch(location.search);
    this.link = uri === null ? null : { ...parseUri(uri, this.network, { amountMayBeMissing: true }), returnUrl };
    const kept = await this.store.keyfile();
    this.keyfile = kept && parse(render(kept), this.network);
    this.#blank = remembered(PRIVATE.map((name) => document.querySelector(`main > section[data-view="${name}"]`)));
    // Not before: a page that could not look into the store must not offer to make a wallet.
    addEventListener("hashchange", () => this.route());
    this.route();
  }

  #wire() {
    this.channel = new BroadcastChannel("svc-wallet");
    this.channel.addEventListener("message", ({ data }) => data?.kind === "changed" && location.reload());
    this.idle = new Idle(Date.now, this.channel, () => this.#forgetKey());
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
      addEventListener(kind, () => this.#key && this.idle.active(), { capture: true, passive: true });
    }
    setInterval(() => this.idle.check(), CHECK_IDLE_EVERY);
    document.addEventListener("visibilitychange", () => this.idle.check());
    // A page that the browser has kept aside has not heard the other tabs.
    addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
    onClick(byId("lock"), () => this.idle.lockAll());
    onClick(byId("create-start"), () => this.go("create"));
    this.creating = new Creating(this);
    this.spending = new Spending(this);
    this.following = new Following(this);
    wireKeyfile(this);
    wireUnlock(this);
    wireHome(this);
    wireHistory(this);
    wireSettings(this);
  }

  /** Show the view that the address names, as far as the wallet is open for it. */
  async route() {
    this.#leave?.();
    this.#leave = null;
    const [name, argument] = location.hash.slice(1).split("=");
    this.#showNavigation();
    if (this.#key === null) {
      this.#hideArgument(name, argument);
      this.creating.forget();
      if (this.keyfile !== null) return showUnlock(this);
      return this.#outside(name);
    }
    for (const link of byId("navigation").querySelectorAll("a")) {
      const here = link.hash === `#${name}` || (link.hash === "#home" && name === "" && this.link === null);
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.#leave = this.#inside(name, argument) ?? null;
  }

  #hideArgument(name, argument) {
    this.#awaited = argument === undefined ? null : `${name}=${argument}`;
    if (argument !== undefined) history.replaceState(null, "", addressOf(""));
  }

  #showNavigation() {
    byId("navigation").hidden = this.#key === null;
    byId("lock").hidden = this.#key === null;
  }

  async #outside(name) {
    byId("welcome-link").hidden = this.link === null;
    if (name === "import") return show("import");
    if (name !== "create") return show("welcome");
    try {
      await this.creating.begin();
    } catch (problem) {
      this.stop(problem);
    }
  }

  #inside(name, argument) {
    const views = {
      home: () => enterHome(this),
      receive: () => enterReceive(this),
      send: () => this.spending.enterSend(),
      review: () => this.spending.enterReview(),
      payment: () => this.following.enter(argument),
      history: () => enterHistory(this),
      settings: () => enterSettings(),
    };
    if (Object.hasOwn(views, name)) return views[name]();
    return this.link === null ? views.home() : this.spending.enterLink(this.link);
  }

  /** Go to the view that a fragment names. */
  go(fragment, { replace = false } = {}) {
    if (replace) history.replaceState(null, "", addressOf(fragment));
    else history.pushState(null, "", addressOf(fragment));
    this.route();
  }

  /** Keep a keyfile that has just been opened; throws `no-storage` rather than replace another. */
  async adopt(keyfile, key) {
    const sentence = message("wallet-script.other-wallet");
    must(await this.store.keepKeyfile(keyfile), "no-storage", sentence);
    // Without it browsers may delete what they keep for this page when the disk is full.
    navigator.storage?.persist?.();
    this.keyfile = keyfile;
    this.#key = key;
    this.idle.begin();
    this.#showNavigation();
    this.channel.postMessage({ kind: "changed" });
  }

  /** Keep the keyfile under its new password; throws `no-storage` if another wallet is kept by now. */
  async replace(keyfile) {
    const sentence = message("wallet-script.other-keyfile");
    must(await this.store.replaceKeyfile(this.keyfile, keyfile), "no-storage", sentence);
    this.keyfile = keyfile;
    this.channel.postMessage({ kind: "changed" });
  }

  /** Review the payment of a link that was pasted or scanned; throws what is wrong with it. */
  openLink(text) {
    const [uri, returnUrl] = uriInText(text, this.network);
    this.link = { ...parseUri(uri, this.network, { amountMayBeMissing: true }), returnUrl };
    const back = returnUrl === null ? "" : `&returnUrl=${encodeURIComponent(returnUrl)}`;
    history.pushState(null, "", `${location.pathname}?pay=${encodeURIComponent(uri)}${back}`);
    this.route();
  }

  /** The key is there: go where the address says, or said before it was locked. */
  unlocked(key) {
    this.#key = key;
    this.idle.begin();
    const awaited = this.#awaited;
    this.#awaited = null;
    if (awaited === null) this.route();
    else this.go(awaited, { replace: true });
  }

  /** Sign and keep the payment of `intent` (`again`: see paying.mjs) and show it; throws `locked` and what `sign` does.
   *
   * Says whether it is shown. If the wallet was locked meanwhile it is not: it is followed once that is open again. */
  async pay(intent, again = null) {
    must(this.#key !== null, "locked", message("wallet-script.locked"));
    const [key, sender] = [this.#key, this.keyfile.address];
    const { txid } = await this.paying.sign(intent, { key, sender, network: this.network }, again);
    const shown = this.#key === key;
    if (shown) this.go(`payment=${txid}`, { replace: true });
    else if (this.#key === null) this.#awaited = `payment=${txid}`;
    // Somebody has unlocked it and does something else by now. If this fails, the balance's view does it again.
    else this.paying.settle(sender).catch(() => {});
    return shown;
  }

  #forgetKey() {
    if (this.#key === null) return;
    this.#key = null;
    abandonWork();
    this.spending.forget();
    clearFields();
    // Leaves the view, so that nothing that is under way writes into it any more.
    this.route();
    this.following.forget();
    this.#blank();
  }

  /** Delete everything that this browser keeps. */
  async remove() {
    await this.store.clear();
    this.channel?.postMessage({ kind: "changed" });
    location.assign("/wallet/");
  }

  /** Show a fault that leaves nothing to be done here, with what the person can do instead. */
  stop(problem) {
    tell(byId("stopped-error"), problem);
    const ofLink = LINK_FAULTS.has(problem.code);
    const title = ofLink ? "wallet-script.link-cannot-be-paid" : "wallet-script.cannot-be-opened";
    write(byId("stopped-title"), message(title));
    byId("stopped-without-link").hidden = !ofLink;
    const other = problem.code === "keyfile-of-other-network" || problem.code === "damaged-keyfile";
    byId("stopped-download").hidden = !other;
    byId("stopped-remove").hidden = true;
    write(byId("stopped-advice"), advice(problem.code, ofLink));
    show("stopped");
  }
}

const addressOf = (fragment) => `${location.pathname}${location.search}${fragment && `#${fragment}`}`;

const LINK_FAULTS = new Set(
  "scheme encoding too-long duplicate unsupported address network amount reference confirmations label".split(" "),
);

function advice(code, ofLink) {
  if (ofLink) return message("wallet-script.ask-for-another-link");
  if (code === "node-unreachable") return message("wallet-script.tries-again");
  if (code === "keyfile-of-other-network") return message("wallet-script.wallet-of-other-network");
  return "";
}

const wallet = new Wallet();
for (const place of document.querySelectorAll(".origin")) write(place, location.origin);
byId("skip").addEventListener("click", (event) => {
  // Its fragment would name a view.
  event.preventDefault();
  byId("main").focus();
});
const stillStopped = (problem) => tell(byId("stopped-error"), problem);
onClick(byId("stopped-remove"), () => wallet.remove(), stillStopped);
onClick(
  byId("stopped-download"),
  async () => {
    // One click must not lose a key: only who has taken the copy can remove it.
    byId("stopped-remove").hidden = false;
    downloadKeyfile({ keyfile: await wallet.store.keyfile() });
  },
  stillStopped,
);

try {
  await wallet.open();
} catch (problem) {
  wallet.stop(problem);
  if (problem instanceof Problem && problem.code === "node-unreachable") {
    const again = new Poller(
      async () => {
        await wallet.node.network();
        location.reload();
        return true;
      },
      () => {},
    );
    again.ask();
  }
}
