// A client of one node, over `fetch`.

import {
  checkAddress,
  checkNames,
  checkNetwork,
  checkOrder,
  checkReference,
  integer,
  isLoopback,
  MINIMUM_FEE,
  must,
  networkFor,
  newReference,
} from "./chain.js";
import { ApiError, InvalidAnswer, NodeUnreachable, SvcPayError, WaitTimeout } from "./errors.js";
import { objectIn, pages, question, textOf } from "./light/answers.mjs";
import { FEE_LIMIT } from "./light/networks.mjs";
import { DEFAULT_CONFIRMATIONS } from "./light/orders.mjs";
import { formatAmount, GREATEST } from "./light/units.mjs";
import { feedPage, isSettled, members, payment, rank, received, shown } from "./members.js";
import { checkMinimum, signTransfer } from "./wallet.js";

/** The greatest fee in base units that is paid on mainnet and devnet because a node suggests it. */
export const MAXIMUM_FEE = FEE_LIMIT * MINIMUM_FEE;

const TIMEOUT = 15;
const ATTEMPTS = 4;
const RETRY_SECONDS = 5;
const LONGEST_WAIT = 30;
const UNSYNCED_WAIT = 2;
const RETRY_WAIT = 2;
/** Milliseconds. */
const SHORTEST_WAIT = 1000;
const PASSING = [429, 502, 503, 504];

const pause = (attempt) => (0.25 + 0.25 * Math.random()) * 2 ** attempt;

/** Resolves after some seconds; rejects as soon as `signal` is aborted. */
const sleepFor = (seconds, signal) =>
  new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", stop, { once: true });
  });

const WATCH = {
  id: "text",
  active: "flag",
  lastState: "text",
  callbackUrl: "text",
  wantedEvents: "texts",
  createdAt: "number",
  expiresAt: "number",
  payUntil: "number?",
  endedAt: "number?",
  mismatchesUntil: "number?",
  closesAtHeight: "number?",
  sinceHeight: "number?",
  ending: "text?",
  payment: "object?",
  breaker: "object?",
  events: "objects?",
};
const DELIVERY = {
  id: "text",
  event: "text",
  createdAt: "number",
  attempts: "count",
  lastAttemptAt: "number?",
  deliveredAt: "number?",
  nextAttemptAt: "number?",
  content: "object",
};
const CONTENT = { state: "text", confirmations: "count", txid: "hash?", blockHash: "hash?", blockHeight: "number?" };
const ACCOUNT = {
  address: "text",
  balance: "number",
  nonce: "number",
  pendingNonce: "number",
  pendingBalance: "number",
};

/** What to say of an answer that no node sends. */
const unlikeNode = (url, why) => `${shown(url)} does not answer like a svcd node (${why}): check the URL`;

/** The node's own sentence in the text of a refusal; null if there is none. */
function sentenceIn(text) {
  try {
    return shown(members(objectIn(text), "the answer", { error: "text" }).error);
  } catch {
    return null;
  }
}

function refusal({ status, text, retryAfter }, url) {
  const seconds = /^[0-9]{1,6}$/.test(retryAfter ?? "") ? Number(retryAfter) : null;
  // The methods of this client are those of a node's paths: where another is wanted, there is something else.
  const told = status === 405 ? null : sentenceIn(text);
  const passing = `${shown(url)} answers with status ${status}; a proxy before the node may do that`;
  const why = PASSING.includes(status) ? passing : unlikeNode(url, `status ${status}`);
  return new ApiError(status, told ?? why, seconds);
}

/** The value of the text of an answer; throws InvalidAnswer if it is not one of a node. */
const valueOf = (text, url) => objectIn(text, "the answer", unlikeNode(url, "its answer is not JSON"));

/** The rules in an answer; throws InvalidAnswer if the node is on another network. */
function consensusIn(answer, network) {
  const { consensus } = members(answer, "the answer", { consensus: "object" });
  const { genesisHash } = members(consensus, "consensus", { genesisHash: "text" });
  const told = shown(genesisHash.slice(0, 64));
  const found = `its genesis hash is '${told}', and that of ${network.name} ${network.genesisHash}`;
  if (genesisHash !== network.genesisHash) throw new InvalidAnswer(`the node is not on ${network.name}: ${found}`);
  return consensus;
}

const CONSENSUS = "/rpc/consensus";
const JSON_ONLY = { accept: "application/json" };

function query({ recipient, amount, confirmations, sinceHeight }) {
  const given = { recipient, amountBaseUnits: amount, confirmations: String(confirmations) };
  return sinceHeight === null ? given : { ...given, sinceHeight };
}

/** What an answer about a checked order says of it. */
const termsOf = ({ reference, recipient, amount, confirmations, sinceHeight }) => ({
  reference,
  recipient,
  amount,
  requiredConfirmations: confirmations,
  sinceHeight: sinceHeight ?? undefined,
});

/** Text in a query, as nodes encode it. */
const encoded = (text) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);

/** The payment URI of an order and its paths on a node: what a buyer pays, which no node decides. */
function linksOf({ reference, recipient, amount, confirmations, sinceHeight }, label) {
  const [coins, named] = [formatAmount(amount), label === null ? "" : `&label=${encoded(label)}`];
  const paymentUri = `svc:${recipient}?amount=${coins}&ref=${reference}&confirmations=${confirmations}${named}`;
  const terms = `recipient=${recipient}&amount=${coins}&confirmations=${confirmations}&sinceHeight=${sinceHeight}`;
  const checkoutPath = `/pay/?reference=${encoded(reference)}&${terms}${named}`;
  return { paymentUri, checkoutPath, walletPath: `/wallet/?pay=${encoded(paymentUri)}` };
}

/** Throws InvalidAnswer unless a record has these members: it would be about something else than was asked for. */
function checkSame(found, expected, what) {
  const other = Object.keys(expected).find((name) => found[name] !== expected[name]);
  const sentence = `the node's answer is about another ${what} than the one that was asked for: ${other} differs`;
  if (other !== undefined) throw new InvalidAnswer(sentence);
}

/** An event of a watch, of an answer about its delivery. */
function deliveryOf(value) {
  const found = members(value, "event", DELIVERY);
  members(members(found.content, "content", { payment: "object" }).payment, "content", CONTENT);
  return found;
}

/** A watch of an answer, with its payment and its events. */
function watchOf(value) {
  const found = members(value, "subscription", WATCH);
  if (found.payment) payment(found.payment);
  if (found.breaker) members(found.breaker, "breaker", { openedAt: "number", nextProbeAt: "number" });
  found.events?.forEach(deliveryOf);
  return found;
}

/** The host of a URL in the one form that hosts have; null if it has none. */
const hostOf = (url) => (URL.canParse(url) ? new URL(url).hostname : null);
/** The same of a name, or of an IP address without brackets. */
const literal = (host) => hostOf(`http://${host.includes(":") ? `[${host}]` : host}`) ?? host;

/** An id of a node, which becomes a part of a path. */
function idOf(id, prefix, what) {
  const right = typeof id === "string" && id.startsWith(prefix) && /^[0-9a-f]{32}$/.test(id.slice(prefix.length));
  must(right, `the id of ${what} is ${prefix} and 32 lower-case hex characters`);
  return id;
}

const watchPath = (id) => `/rpc/commerce/webhooks/${idOf(id, "svcwh_", "a watch")}`;

/** The calls of a client that only this package makes. */
export let questionsOf;

/** The calls of a node. Every method rejects with a subclass of SvcPayError. */
export class Client {
  #url;
  #token;
  #timeout;
  #fetch;
  #sleep;
  #retrySeconds;
  #network;
  #onNetwork;

  /** `url` is that of the node, `token` its management token, needed only for watches, `timeout` in seconds.
   *
   * With a token and `http://` the URL must name this computer, unless `insecureHttp` is true. `retrySeconds` is how
   * long a request may wait in all before it is repeated; then it rejects with the refusal.
   *
   * `network` is that of the node, and must be given unless it is mainnet or devnet. With it, the first call asks the
   * node for its genesis hash, and every call rejects with InvalidAnswer if the node is on another network.
   */
  constructor(url, options = {}) {
    const { token = null, timeout = TIMEOUT, retrySeconds = RETRY_SECONDS, network = null } = options;
    const { fetch = globalThis.fetch, sleep = null, insecureHttp = false } = options;
    must(typeof url === "string" && /^https?:\/\//.test(url), "the URL of a node begins with http:// or https://");
    must(URL.canParse(url), "the URL of the node is not valid");
    // The sentence does not repeat the token: it may be logged, or shown to a buyer.
    const form = "a management token consists of visible ASCII characters, without a newline at its end";
    must(token === null || (typeof token === "string" && /^[!-~]+$/.test(token)), form);
    const { protocol, hostname } = new URL(url);
    const open = token !== null && protocol === "http:" && !isLoopback(hostname);
    const advice = "use https://, or a tunnel to this computer; insecureHttp: true sends it anyway";
    must(!open || insecureHttp === true, `the token would cross the network unencrypted to ${hostname}: ${advice}`);
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#timeout = timeout;
    this.#fetch = (...given) => fetch(...given);
    this.#sleep = sleep ?? sleepFor;
    this.#retrySeconds = retrySeconds;
    this.#network = network === null ? null : checkNetwork(network);
    this.#onNetwork = network === null;
  }

  /** The network that was given; null if any of mainnet and devnet will do. */
  get network() {
    return this.#network;
  }

  // One request

  /** The text of a successful answer. A repeatable call is repeated if no answer came, and after a passing refusal.
   *
   * `timeout` and these `seconds` are the time of all of it: attempts, answers and pauses, unless it ends at `end`, in
   * milliseconds of the monotonic clock. A call with a `limit` in seconds is given up then at the latest and not
   * repeated: its caller has a deadline.
   */
  async #ask(path, options = {}) {
    const { parameters = {}, body, authorized = false, repeatable = true, seconds = 0, limit = null, signal } = options;
    const { end = performance.now() + Math.min(this.#timeout + seconds, limit ?? Infinity) * 1000 } = options;
    must(!authorized || this.#token !== null, "this call needs the management token of the node; give it as token");
    const search = new URLSearchParams(parameters).toString();
    const headers = { ...JSON_ONLY };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (authorized) headers.authorization = `Bearer ${this.#token}`;
    const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const late = AbortSignal.timeout(Math.max(Math.ceil(end - performance.now()), 0));
    const given = { ...question(signal ? AbortSignal.any([signal, late]) : late, headers), ...post };
    let paused = 0;
    for (let attempt = 0; ; attempt++) {
      let refused;
      try {
        const answer = await this.#sent(`${path}${search && "?"}${search}`, given);
        if (answer.ok) return answer.text;
        refused = refusal(answer, this.#url);
        if (!PASSING.includes(answer.status)) throw refused;
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof SvcPayError) throw error;
        refused = new NodeUnreachable(`the node does not answer: ${error.cause?.message ?? error.message}`);
      }
      const wait = refused.retryAfter ?? pause(attempt);
      paused += wait;
      const last = !repeatable || limit !== null || attempt === ATTEMPTS - 1;
      if (last || paused > this.#retrySeconds || performance.now() + wait * 1000 >= end) throw refused;
      await this.#sleep(wait, signal);
    }
  }

  /** The answer to a request, or, before it is known which network the node is on, the refusal to say that. */
  async #sent(target, given) {
    if (!this.#onNetwork) {
      const told = await this.#answer(CONSENSUS, question(given.signal, JSON_ONLY));
      if (!told.ok) return told;
      consensusIn(valueOf(told.text, this.#url), this.#network);
      this.#onNetwork = true;
    }
    return this.#answer(target, given);
  }

  async #answer(target, given) {
    const response = await this.#fetch(`${this.#url}${target}`, given);
    const { status, ok, headers } = response;
    return { status, ok, text: await textOf(response), retryAfter: headers.get("retry-after") };
  }

  /** The pages of a list, all of them within `timeout`; each begins at what the one before has as `next`. */
  async *#pages(path, parameters, cursor = "after") {
    const following = pages();
    const end = performance.now() + this.#timeout * 1000;
    for (let given = parameters; ; ) {
      const text = await this.#ask(path, { parameters: given, end });
      const answer = members(valueOf(text, this.#url), "the answer", { next: "text?" });
      yield answer;
      if ((answer.next ?? null) === null) return;
      given = { ...parameters, [cursor]: following(answer.next, text.length) };
    }
  }

  async #value(path, options) {
    return valueOf(await this.#ask(path, options), this.#url);
  }

  async #object(path, name, options) {
    return members(await this.#value(path, options), "the answer", { [name]: "object" })[name];
  }

  // Payments

  /** A payment request for an order, with a random reference if none is given. The node stores nothing.
   *
   * A node that chose the reference could choose that of an order which is paid. */
  async paymentRequest(wanted) {
    checkNames(wanted, "recipient", "amount", "reference", "label", "confirmations");
    const { recipient, amount, reference = newReference(), label, confirmations = DEFAULT_CONFIRMATIONS } = wanted;
    const { networkId } = networkFor(recipient, this.#network);
    const units = integer(amount, "amount", 1n).toString();
    checkReference(reference);
    const named = label === undefined || (typeof label === "string" && !/\p{Cs}/u.test(label));
    must(named, "label must be a string of whole characters");
    const body = { recipient, amountBaseUnits: units, reference, label, confirmations };
    const made = members(await this.#object("/rpc/commerce/payment-request", "payment", { body }), "payment", {
      sinceHeight: "number",
      warning: "text?",
    });
    const order = { reference, recipient, amount: units, confirmations, sinceHeight: made.sinceHeight };
    const links = linksOf(order, label || null);
    const { confirmations: requiredConfirmations, ...terms } = order;
    const expected = { ...terms, requiredConfirmations, networkId, label: label || undefined, ...links };
    checkSame(made, expected, "payment request");
    return { order, ...links, label: label || null, warning: made.warning ?? null };
  }

  /** What the node knows about the payment of an order now: verifies it.
   *
   * With `wait` seconds, 1 to 30, and the last known `state` the answer comes when it changes.
   */
  async payment(order, { wait = 0, state = null, signal } = {}) {
    return this.#payment(order, { wait, state, signal });
  }

  async #payment(order, { wait, state, signal, limit = null }) {
    const asked = checkOrder(order, this.#network);
    must(!wait || state !== null, "with wait, give the last known state: the answer comes when it changes");
    const parameters = { ...query(asked), ...(wait ? { wait: String(wait), state } : {}) };
    const options = { parameters, seconds: wait, signal, limit };
    const found = payment(await this.#object(`/rpc/commerce/payment/${asked.reference}`, "payment", options));
    checkSame(found, termsOf(asked), "payment");
    return found;
  }

  /** Wait by long polling until the payment is in `state` or further; WaitTimeout after about `timeout` seconds.
   *
   * A confirmed payment counts only once the node is synced, so that the shop may deliver. With a `timeout` the wait
   * goes on while the node cannot be reached; without one it rejects with NodeUnreachable. `signal` cancels it.
   */
  async waitFor(order, { state = "confirmed", timeout = Infinity, signal } = {}) {
    must(rank(state) > 0, "state must be pending, confirming or confirmed");
    const giveUpAt = performance.now() + timeout * 1000;
    const reached = (found) => (state === "confirmed" ? isSettled(found) : rank(found.state) >= rank(state));
    const remaining = () => (giveUpAt - performance.now()) / 1000;
    let found = null;
    for (let wait = 0; ; ) {
      // The answer of a long poll takes as long as the wait, and needs a moment to arrive.
      const limit = timeout === Infinity ? null : Math.max(remaining(), 0) + 1;
      const [began, before] = [performance.now(), found?.state];
      let failure = null;
      try {
        found = await this.#payment(order, { wait, state: found?.state ?? null, signal, limit });
        if (reached(found)) return found;
      } catch (error) {
        const passing = error instanceof ApiError && (error.status === 429 || error.status >= 500);
        // Without a deadline only the long poll may fail: too many verifications may be waiting.
        const goesOn = limit === null ? passing && wait > 0 : passing || error instanceof NodeUnreachable;
        if (!goesOn) throw error;
        failure = error;
      }
      const left = Math.min(remaining(), LONGEST_WAIT);
      const known = found === null ? "is not known" : `is ${found.state}, not yet ${state}`;
      const why = failure === null ? "" : `; the last question failed: ${failure.message}`;
      if (left < 1) throw new WaitTimeout(`the payment of ${order.reference} ${known}${why}`);
      if (failure !== null) {
        await this.#sleep(Math.min(failure.retryAfter || RETRY_WAIT, left), signal);
        wait = 0;
      } else {
        // A node that does not wait must not be asked without a pause.
        const early = wait > 0 && found.state === before && performance.now() - began < SHORTEST_WAIT;
        if (early) await this.#sleep(Math.min(RETRY_WAIT, left), signal);
        // Whether the node is synced does not end a wait, so it is asked again soon.
        const longest = found.state === "confirmed" ? UNSYNCED_WAIT : LONGEST_WAIT;
        wait = Math.floor(Math.min(Math.max(remaining(), 0), longest));
      }
    }
  }

  /** Every transfer to an address, paying an order or not; with `amount`, whether each pays that order. */
  async payments(recipient, { reference, amount, sinceHeight } = {}) {
    networkFor(recipient, this.#network);
    const parameters = { recipient, limit: "100" };
    if (reference !== undefined) parameters.reference = checkReference(reference);
    if (amount !== undefined) parameters.amountBaseUnits = integer(amount, "amount", 1n).toString();
    if (sinceHeight !== undefined) parameters.sinceHeight = integer(sinceHeight, "sinceHeight").toString();
    const found = new Map();
    for await (const answer of this.#pages("/rpc/commerce/payments", parameters))
      for (const each of members(answer, "the answer", { payments: "objects" }).payments) {
        checkSame(received(each, recipient, amount), reference === undefined ? {} : { reference }, "transfer");
        const early = BigInt(each.blockHeight ?? GREATEST) < BigInt(sinceHeight ?? 0n);
        if (early) throw new InvalidAnswer(`the node lists a transfer of block ${each.blockHeight}, below sinceHeight`);
        found.set(each.txid, each);
      }
    return [...found.values()];
  }

  /** A page of the feed of an address: every payment to it in the order of the chain, those that are undone too.
   *
   * It goes on `after` the `next` of an earlier page, or begins at `sinceHeight`, which each page must get. With `wait`
   * seconds, 1 to 30, the answer comes when there is something to tell. A node whose chain is lower than `minHeight`
   * refuses with 503.
   */
  async feed(recipient, { after = null, wait = 0, limit = 100, sinceHeight, minHeight, signal } = {}) {
    networkFor(recipient, this.#network);
    must(Number.isSafeInteger(limit) && limit >= 1 && limit <= 1000, "limit must be an integer from 1 to 1000");
    const parameters = { limit: String(limit) };
    if (after !== null) parameters.after = after;
    if (wait) parameters.wait = String(wait);
    if (sinceHeight !== undefined) parameters.sinceHeight = integer(sinceHeight, "sinceHeight").toString();
    if (minHeight !== undefined) parameters.minHeight = integer(minHeight, "minHeight").toString();
    const found = await this.#object(`/rpc/commerce/feed/${recipient}`, "feed", { parameters, seconds: wait, signal });
    return feedPage(found, recipient, limit);
  }

  /** A proof of the payment, for `checkPaymentProof` of `svc-pay/light`. */
  async proof(order) {
    const asked = checkOrder(order, this.#network);
    return this.#ask(`/rpc/commerce/payment/${asked.reference}/proof`, { parameters: { ...query(asked), chain: "1" } });
  }

  /** The hash of the block at a height: the tip of a proof, if this node is trusted. */
  async blockHash(height) {
    const asked = integer(height, "height").toString();
    const block = members(await this.#object(`/rpc/block/${asked}`, "block"), "block", { hash: "hash" });
    checkSame(block, { height: asked }, "block");
    return block.hash;
  }

  // Watches

  async #watch(path, expected, options = {}) {
    const found = await this.#object(path, "subscription", { authorized: true, ...options });
    checkSame(watchOf(found), expected, "watch");
    return found;
  }

  /** Register a watch; store the order before that. The same registration again returns the same watch.
   *
   * `payWithinSeconds` is the buyer's deadline: until when the payment must have been seen, in the mempool or in a
   * block. `ttlSeconds` is the lifetime of the watch, with a deadline by default the node's maximum.
   */
  async register(order, callbackUrl, { events, payWithinSeconds, ttlSeconds } = {}) {
    const checked = checkOrder(order, this.#network);
    const { amount, sinceHeight, ...asked } = checked;
    const terms = { ...asked, amountBaseUnits: amount, sinceHeight: sinceHeight ?? undefined };
    const body = { ...terms, callbackUrl, events, payWithinSeconds, ttlSeconds };
    return this.#watch("/rpc/commerce/webhooks", termsOf(checked), { body });
  }

  /** A watch with its newest events. */
  async watch(id) {
    return this.#watch(watchPath(id), { id });
  }

  /** A page of at most `limit` watches with their newest events, the newest watch first; 50 is the most.
   *
   * `reference`, `state` and `host` choose those of this order, with this `lastState`, or with a callback at this host.
   * Ask again with `after` the page's `next` until that is null: a page may have fewer watches, or none, even if more
   * follow.
   */
  async watches({ reference, state, host, after, limit = 50 } = {}) {
    must(Number.isSafeInteger(limit) && limit > 0, "limit must be a whole number above 0");
    const given = { reference, state, host, after, limit: String(limit) };
    const parameters = Object.fromEntries(Object.entries(given).filter(([, value]) => (value ?? null) !== null));
    const answer = await this.#value("/rpc/commerce/webhooks", { parameters, authorized: true });
    const { subscriptions, next } = members(answer, "the answer", { subscriptions: "objects", next: "text?" });
    const chosen = { reference, lastState: state, host: host && literal(host) };
    const expected = Object.fromEntries(Object.entries(chosen).filter(([, value]) => (value ?? null) !== null));
    for (const each of subscriptions)
      checkSame({ ...watchOf(each), host: hostOf(each.callbackUrl) }, expected, "watch");
    return { watches: subscriptions, next: next ?? null };
  }

  /** Cancel a watch; its undelivered events are dropped. */
  async cancel(id) {
    return this.#watch(`${watchPath(id)}/cancel`, { id }, { body: {} });
  }

  /** Send an event again. This call is never repeated by itself. */
  async redeliver(id, eventId) {
    const path = `${watchPath(id)}/events/${idOf(eventId, "svcevt_", "an event")}/redeliver`;
    const event = await this.#object(path, "event", { body: {}, authorized: true, repeatable: false });
    checkSame(deliveryOf(event), { id: eventId }, "event");
    return event;
  }

  /** Send a `webhook.test` and wait for its outcome. This call is never repeated by itself. */
  async testCallback(callbackUrl) {
    const options = { body: { callbackUrl }, authorized: true, repeatable: false, seconds: 15 };
    const test = await this.#object("/rpc/commerce/webhooks/test", "test", options);
    return members(test, "test", { id: "text", status: "count?", error: "text?" });
  }

  // Transfers

  /** The account of an address. */
  async account(address) {
    networkFor(address, this.#network);
    return this.#account(address);
  }

  /** The account of an address that was checked before. */
  async #account(address) {
    const account = members(await this.#object(`/rpc/balance/${address}`, "account"), "account", ACCOUNT);
    checkSame(account, { address }, "account");
    return account;
  }

  /** A transfer signed with the suggested fee and `nonce`, by default the account's next one from the node.
   *
   * `maximumFee` is by default a hundred times the least fee of the network. Store the transfer, then broadcast it. Two
   * workers that sign at the same time get the same nonce from the node, and one transfer replaces the other: use
   * `Payouts`, or nonces that no two workers share. Rejects with ImpossibleAmount if either account would then have
   * less than the network's account minimum.
   */
  async sign(key, network, wanted) {
    checkNames(wanted, "recipient", "amount", "reference", "maximumFee", "nonce");
    const { recipient, amount, reference = null, maximumFee = null, nonce = null } = wanted;
    checkAddress(recipient, checkNetwork(network));
    const units = integer(amount, "amount", 1n);
    const given = nonce === null ? null : integer(nonce, "nonce");
    const minimum = await this.#accountMinimum(network);
    const fee = await this.#suggestedFee(network, maximumFee);
    const sender = await this.#account(await key.address(network));
    const used = given !== null && given < BigInt(sender.nonce);
    must(!used, `nonce ${given} is already used; the next one is ${sender.nonce}`);
    // A transfer with an earlier nonce replaces one that waits, whose amount it can spend.
    const replaces = given !== null && given < BigInt(sender.pendingNonce);
    const available = BigInt(replaces ? sender.balance : sender.pendingBalance);
    await this.#checkRecipient(sender, { recipient, units, minimum, fee, available });
    return signTransfer(key, network, { recipient, amount, reference, fee, nonce: given ?? sender.pendingNonce });
  }

  /** The account minimum of a network; rejects if the node is on another one. */
  async #accountMinimum(network) {
    const rules = consensusIn(await this.#value(CONSENSUS), network);
    return BigInt(members(rules, "consensus", { accountMinimum: "number" }).accountMinimum);
  }

  /** The fee that the node suggests, at least the minimum; rejects if it is above `maximumFee`. */
  async #suggestedFee({ rules: { minimumFee } }, maximumFee) {
    const fees = members(await this.#object("/rpc/fees", "fees"), "fees", { suggestedFee: "number" });
    const fee = BigInt(fees.suggestedFee);
    const most = BigInt(maximumFee ?? FEE_LIMIT * minimumFee);
    const much = `the node suggests a fee of ${fee} base units, more than maximumFee ${most}`;
    if (fee > most) throw new InvalidAnswer(much);
    return fee > minimumFee ? fee : minimumFee;
  }

  /** Rejects with ImpossibleAmount unless both accounts keep the minimum; `available` is what the sender can spend. */
  async #checkRecipient(sender, { recipient, units, minimum, fee, available }) {
    let received = minimum;
    if (recipient === sender.address) received = BigInt(sender.balance);
    // Otherwise the amount alone gives the recipient enough.
    else if (units < minimum || units > available - fee - minimum)
      received = BigInt((await this.#account(recipient)).balance);
    checkMinimum(units, { minimum, fee, available, received });
  }

  /** How many confirmations a transfer has, at least 1; null if no block of the chain has it. */
  async #confirmations(txid) {
    try {
      const found = await this.#object(`/rpc/transaction/${txid}`, "transaction");
      const record = members(found, "transaction", { txid: "text", confirmations: "count" });
      checkSame(record, { txid }, "transfer");
      return Math.max(record.confirmations, 1);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** The transfers from or to an address, in the mempool or on the chain, the newest first. */
  async *#transfersOf(address, waiting) {
    const path = waiting ? `/rpc/mempool/${address}` : `/rpc/address/${address}/transactions`;
    for await (const answer of this.#pages(path, { limit: "100" }, "before"))
      yield* members(answer, "the answer", { transactions: "objects" }).transactions;
  }

  // What `Payouts`, `Orders` and the light client ask, which is not part of the interface of this package.
  static {
    questionsOf = (client) => ({
      sleep: (seconds, signal) => client.#sleep(seconds, signal),
      text: (path, { parameters, signal }) => client.#ask(path, { parameters, signal }),
      accountMinimum: (network) => client.#accountMinimum(network),
      account: (address) => client.#account(address),
      suggestedFee: (network, maximumFee) => client.#suggestedFee(network, maximumFee),
      checkRecipient: (sender, wanted) => client.#checkRecipient(sender, wanted),
      confirmations: (txid) => client.#confirmations(txid),
      transfersOf: (address, waiting) => client.#transfersOf(address, waiting),
    });
  }

  /** Hand a signed transfer to the network: "accepted", or "known" if the node had it. Safe to repeat. */
  async broadcast({ txid, transaction }) {
    const answer = await this.#value("/rpc/broadcast", { body: { transaction } });
    checkSame(members(answer, "the answer", { txid: "text", state: "text" }), { txid }, "transfer");
    return answer.state;
  }
}

/** The checkout of a payment request at `node`, the URL under which buyers reach it.
 *
 * `returnUrl` is the https:// URL of a page of the shop, `until` the Unix milliseconds at which the order expires.
 */
export function checkoutUrl(request, node, { returnUrl, until } = {}) {
  const more = new URLSearchParams();
  if (returnUrl !== undefined) more.set("returnUrl", returnUrl);
  if (until !== undefined) more.set("until", String(until));
  return `${node.replace(/\/+$/, "")}${request.checkoutPath}${more.size ? "&" : ""}${more}`;
}
