// The wallet page: what it is made of, which view is shown, and when the key is forgotten.
//
// The part of the address behind # names the view, so that reload and back do what people expect, and has the payment
// link (fragment.mjs). The key is a CryptoKey that cannot be read out, in this tab's memory alone.

import { Attention } from "./attention.mjs";
import { fragmentOf, fragmentWithQuery, readFragment } from "./fragment.mjs";
import { genesisIn } from "./genesis.mjs";
import { Idle } from "./idle.mjs";
import { checkSupport, parse, render } from "./keyfile.mjs";
import { Node } from "./node.mjs";
import { linkId, Paying } from "./paying.mjs";
import { Poller } from "./polling.mjs";
import { must, Problem } from "./problem.mjs";
import { message } from "./texts.mjs";
import { abandonWork, byId, onClick, remembered, show, tell, write } from "./wallet-dom.mjs";
import { enterHome, enterReceive, wireHome } from "./wallet-home.mjs";
import { Creating, downloadKeyfile, showUnlock, tellStorage, wireKeyfile, wireUnlock } from "./wallet-open.mjs";
import { Following } from "./wallet-following.mjs";
import { linkOf, linkTextOf } from "./wallet-link.mjs";
import { enterHistory, enterTransfer } from "./wallet-part.mjs";
import { Spending } from "./wallet-pay.mjs";
import { confirmNetwork, showNetwork } from "./wallet-network.mjs";
import { enterSettings, wireSettings } from "./wallet-settings.mjs";
import { stop } from "./wallet-stopped.mjs";
import { openStore } from "./wallet-store.mjs";

/** @import { Key } from "./ed25519.mjs" */
/** @import { Keyfile } from "./keyfile.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { Intent } from "./paying.mjs" */
/** @import { Store } from "./wallet-store.mjs" */
/** @import { Link } from "./wallet-link.mjs" */
/**
 * @typedef {object} Parts of a wallet.
 * @property {Attention} attention
 * @property {Node} node
 * @property {Store} store
 * @property {BroadcastChannel} channel to the other tabs
 * @property {Network} network
 * @property {Keyfile | null} keyfile
 * @property {Link | null} link
 * @property {string} linkText the link as it is in the address, or ""
 */

const CHECK_IDLE_EVERY = 5_000;
/** The views of an open wallet: what they show is nobody's business once it is locked. */
const PRIVATE = ["home", "receive", "send", "review", "payment", "transfer", "history", "settings"];
/** The views in which the words of a wallet, or a password for it, stand or are typed before it is made. */
const SECRET = ["words", "quiz", "password", "import"];

// Before anything is asked: the query would be sent along with each reload.
const moved = fragmentWithQuery(location);
if (moved !== null) history.replaceState(null, "", location.pathname + moved);

const attention = new Attention(document);
const node = new Node((path, options) => fetch(path, options), () => attention.ready());
/** @type {Store | null} */
let store = null;
/** To the other tabs. @type {BroadcastChannel | null} */
let channel = null;

/** What is typed into another field must not stay on a locked page. */
const clearFields = () => document.querySelectorAll("form").forEach((form) => form.reset());

/** A wallet whose node, network and store are there. */
export class Wallet {
  /** The payment to review, or null. */
  link;
  #keyfile;
  #linkText;
  /** @type {Key | null} */
  #key = null;
  /** @type {(() => void) | null} */
  #leave = null;
  #blank;
  /** The fragment to go to once the wallet is unlocked, or null: a locked page has no payment in its address.
   * @type {string | null} */
  #awaited = null;

  /** @param {Parts} parts */
  constructor({ attention, node, store, channel, network, keyfile, link, linkText }) {
    this.attention = attention;
    this.node = node;
    this.store = store;
    this.channel = channel;
    this.network = network;
    this.link = link;
    this.#linkText = linkText;
    this.#keyfile = keyfile;
    this.paying = new Paying({
      store,
      node,
      clock: Date.now,
      network,
      exclusive: async (work) => await navigator.locks.request("svc-wallet-signing", work),
    });
    this.idle = new Idle(Date.now, channel, () => this.#lock());
    this.creating = new Creating(this);
    this.spending = new Spending(this);
    this.following = new Following(this);
    this.#wire();
    this.#blank = remembered(
      PRIVATE.map((name) => /** @type {Element} */ (document.querySelector(`main > section[data-view="${name}"]`))),
    );
  }

  /** The keyfile of this wallet; throws a RangeError if there is none yet. */
  get keyfile() {
    if (this.#keyfile === null) throw new RangeError("there is no keyfile yet");
    return this.#keyfile;
  }

  #wire() {
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
      addEventListener(kind, () => this.idle.active(), { capture: true, passive: true });
    }
    setInterval(() => this.idle.check(), CHECK_IDLE_EVERY);
    document.addEventListener("visibilitychange", () => this.idle.check());
    onClick(byId("lock"), () => this.idle.lockAll());
    onClick(byId("create-start"), () => this.go("create"));
    for (const wire of [wireKeyfile, wireUnlock, wireHome, wireSettings]) wire(this);
  }

  /** Show the view that the address names, as far as the wallet is open for it. */
  async route() {
    this.#leave?.();
    this.#leave = null;
    const { name, argument = "" } = this.#readAddress() ?? {};
    if (name === undefined) return;
    this.#showNavigation();
    if (this.#key === null) {
      this.#hideArgument(name, argument);
      this.creating.forget();
      if (this.#keyfile !== null) return showUnlock(this);
      return this.#outside(name);
    }
    for (const link of byId("navigation").querySelectorAll("a")) {
      const here = link.hash === `#${name}` || (link.hash === "#home" && name === "" && this.link === null);
      link.ariaCurrent = here ? "page" : null;
    }
    this.#leave = this.#inside(name, argument) ?? null;
  }

  /** The fragment of the address, with the link that it names as the one to review; null if that cannot be paid. */
  #readAddress() {
    const fragment = readFragment(location.hash);
    const { view, link } = fragment;
    // The links to the views do not have it, and a reload must find it.
    if (link === "" && this.#linkText !== "") history.replaceState(null, "", this.#addressOf(view));
    if (link === "" || link === this.#linkText) return fragment;
    try {
      this.link = linkOf(link, this.network);
      this.#linkText = link;
      return fragment;
    } catch (problem) {
      this.stop(problem);
      return null;
    }
  }

  /** @type {(view: string) => string} */
  #addressOf(view) {
    return location.pathname + location.search + fragmentOf(view, this.#linkText);
  }

  /** @type {(name: string, argument: string) => void} */
  #hideArgument(name, argument) {
    this.#awaited = argument === "" ? null : `${name}=${argument}`;
    if (argument !== "") history.replaceState(null, "", this.#addressOf(""));
  }

  #showNavigation() {
    byId("navigation").hidden = byId("lock").hidden = this.#key === null;
  }

  /** @type {(name: string) => Promise<void>} */
  async #outside(name) {
    byId("welcome-link").hidden = this.link === null;
    byId("welcome-cleared").hidden = true;
    if (name === "import" || name === "create") this.idle.begin();
    if (name === "import") return show("import");
    if (name !== "create") return show("welcome");
    try {
      await this.creating.begin();
    } catch (problem) {
      this.stop(problem);
    }
  }

  /** @type {(name: string, argument: string) => (() => void) | void} */
  #inside(name, argument) {
    /** @type {Record<string, () => (() => void) | void>} */
    const views = {
      home: () => enterHome(this),
      receive: () => enterReceive(this),
      send: () => this.spending.enterSend(),
      review: () => this.spending.enterReview(),
      payment: () => this.following.enter(argument),
      transfer: () => enterTransfer(this, argument),
      history: () => enterHistory(this),
      settings: () => enterSettings(),
    };
    if (Object.hasOwn(views, name)) return views[name]();
    return this.link === null ? views.home() : this.spending.enterLink(this.link);
  }

  /** Go to the view that a fragment names.
   * @type {(fragment: string, options?: { replace?: boolean }) => void} */
  go(fragment, { replace = false } = {}) {
    if (replace) history.replaceState(null, "", this.#addressOf(fragment));
    else history.pushState(null, "", this.#addressOf(fragment));
    this.route();
  }

  /** Keep a keyfile that has just been opened; throws `no-storage` rather than replace another.
   * @type {(keyfile: Keyfile, key: Key) => Promise<void>} */
  async adopt(keyfile, key) {
    const sentence = message("wallet-script.other-wallet");
    must(await this.store.keepKeyfile(keyfile), "no-storage", sentence);
    tellStorage(byId("keyfile-storage"), navigator.storage?.persist?.());
    this.#keyfile = keyfile;
    this.#key = key;
    this.idle.begin();
    this.#showNavigation();
    this.channel.postMessage({ kind: "changed" });
  }

  /** Keep the keyfile under its new password; throws `no-storage` if another wallet is kept by now.
   * @type {(keyfile: Keyfile) => Promise<void>} */
  async replace(keyfile) {
    const sentence = message("wallet-script.other-keyfile");
    must(await this.store.replaceKeyfile(this.keyfile, keyfile), "no-storage", sentence);
    this.#keyfile = keyfile;
    this.channel.postMessage({ kind: "changed" });
  }

  /** Review the payment of a link that was pasted or scanned; throws what is wrong with it.
   * @type {(text: string) => void} */
  openLink(text) {
    const link = linkTextOf(text, this.network);
    this.link = linkOf(link, this.network);
    this.#linkText = link;
    this.go("");
  }

  /** A payment of the intent `id` is kept: if that is the link that is open, neither address nor first page keeps it.
   * @type {(id: string) => void} */
  dropLink(id) {
    if (this.link === null || linkId(this.keyfile.address, this.link) !== id) return;
    [this.link, this.#linkText] = [null, ""];
    history.replaceState(null, "", this.#addressOf(readFragment(location.hash).view));
  }

  /** The key is there: go where the address says, or said before it was locked.
   * @type {(key: Key) => void} */
  unlocked(key) {
    this.#key = key;
    this.idle.begin();
    const awaited = this.#awaited;
    this.#awaited = null;
    if (awaited === null) this.route();
    else this.go(awaited, { replace: true });
  }

  /** Sign and keep the payment of `intent` (`options`: see paying.mjs), show it; throws `locked` and what `sign` does.
   *
   * Says whether it is shown. If the wallet was locked meanwhile it is not: it is followed once that is open again.
   * @type {(intent: Intent, options?: { again?: string, anew?: boolean }) => Promise<boolean>} */
  async pay(intent, options = {}) {
    this.idle.check();
    must(this.#key !== null, "locked", message("wallet-script.locked"));
    const [key, sender] = [this.#key, this.keyfile.address];
    const signing = { key, sender };
    const { txid } = await this.attention.urgently(() => this.paying.sign(intent, signing, options));
    const shown = this.#key === key;
    if (shown) this.go(`payment=${txid}`, { replace: true });
    else if (this.#key === null) this.#awaited = `payment=${txid}`;
    // Somebody has unlocked it and does something else by now. If this fails, the balance's view does it again.
    else this.paying.settle(sender).catch(() => {});
    return shown;
  }

  #lock() {
    if (this.#key !== null) this.#forgetKey();
    else if (SECRET.includes(document.body.dataset.view ?? "")) this.#forgetWords();
  }

  #forgetWords() {
    abandonWork();
    clearFields();
    this.go("", { replace: true });
    byId("welcome-cleared").hidden = this.#keyfile !== null;
  }

  #forgetKey() {
    this.#key = null;
    abandonWork();
    this.attention.forget();
    this.spending.forget();
    clearFields();
    // Leaves the view, so that nothing that is under way writes into it any more.
    this.route();
    this.following.forget();
    this.#blank();
  }

  /** Delete everything that this browser keeps. */
  remove() {
    return remove(this.store, this.channel);
  }

  /** Show a fault that leaves nothing to be done here.
   * @type {(problem: unknown) => void} */
  stop(problem) {
    stop(problem);
  }
}

/** Delete everything that this browser keeps, and begin anew in all tabs.
 * @type {(store: Store | null, channel: BroadcastChannel | null) => Promise<void>} */
async function remove(store, channel) {
  await store?.clear();
  channel?.postMessage({ kind: "changed" });
  location.assign("/wallet/");
}

/** Look whether everything is there, and show the first view. */
async function open() {
  must(isSecureContext && crypto.subtle, "insecure-origin", message("wallet-script.insecure"));
  // Through one, whatever else is served here could replace this program. Private windows may reject the question.
  const registered = () => navigator.serviceWorker?.getRegistration().catch(() => null);
  const worker = navigator.serviceWorker?.controller ?? (await registered());
  must(!worker, "service-worker", message("wallet-script.service-worker"));
  navigator.serviceWorker?.addEventListener("controllerchange", () => location.reload());
  await checkSupport();
  store = await openStore();
  const network = await node.network();
  channel = new BroadcastChannel("svc-wallet");
  channel.addEventListener("message", ({ data }) => data?.kind === "changed" && attention.reload());
  // A page that the browser has kept aside has not heard the other tabs.
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  showNetwork(network);
  const kept = await store.keyfile();
  const keyfile = kept && (await parse(render(kept), network));
  await confirmNetwork(network, store, keyfile !== null);
  const { link: linkText } = readFragment(location.hash);
  const link = linkText === "" ? null : linkOf(linkText, network);
  const wallet = new Wallet({ attention, node, store, channel, network, keyfile, link, linkText });
  // Not before: a page that could not look into the store must not offer to make a wallet.
  addEventListener("hashchange", () => wallet.route());
  wallet.route();
}

// The link of another network's founder.
addEventListener("hashchange", () => genesisIn(location.hash).given !== null && location.reload());
for (const place of document.querySelectorAll(".origin")) write(place, location.origin);
byId("skip").addEventListener("click", (event) => {
  // Its fragment would name a view.
  event.preventDefault();
  byId("main").focus();
});
/** @type {(problem: unknown) => void} */
const stillStopped = (problem) => tell(byId("stopped-error"), problem);
onClick(byId("stopped-remove"), () => remove(store, channel), stillStopped);
onClick(
  byId("stopped-download"),
  async () => {
    // One click must not lose a key: only who has taken the copy can remove it.
    byId("stopped-remove").hidden = false;
    const keyfile = await store?.keyfile();
    if (keyfile) downloadKeyfile({ keyfile });
  },
  stillStopped,
);

try {
  await open();
} catch (problem) {
  stop(problem);
  const linkNow = () => readFragment(location.hash).link;
  const stopped = linkNow();
  addEventListener("hashchange", () => ["", stopped].includes(linkNow()) || location.reload());
  if (problem instanceof Problem && problem.code === "node-unreachable") {
    const again = new Poller(
      async () => {
        await node.network();
        location.reload();
        return true;
      },
      () => {},
    );
    again.ask();
  }
}
