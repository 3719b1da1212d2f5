// Money is a bigint or a decimal string of base units, of which one coin has 10^8; never a number.

/** Base units as this package takes them: a bigint, or a string of digits. */
export type Units = bigint | string;

/** MAINNET, DEVNET, or what `parseNetwork` has returned; its values never change. */
export interface Network {
  /** What this computer calls it. */
  readonly name: string;
  /** What its coins are called, for `formatCoins`. */
  readonly unit: string;
  readonly networkId: number;
  readonly chainId: string;
  /** The beginning of its addresses. */
  readonly prefix: string;
  /** 64 hex characters. */
  readonly genesisHash: string;
  readonly rules: NetworkRules;
}

/** The rules of a network as far as programs need them, and the changes of its producers. */
export interface NetworkRules {
  /** 64 hex characters. */
  readonly rulesHash: string;
  /** When slot 0 begins, in Unix milliseconds. */
  readonly genesisTime: bigint;
  readonly slotSeconds: bigint;
  readonly slotsPerBlock: bigint;
  /** The least fee of a transfer, in base units. */
  readonly minimumFee: bigint;
  /** How much older than its block a transfer may be. */
  readonly transactionPastSeconds: bigint;
  /** How much newer than its block a transfer may be. */
  readonly transactionFutureSeconds: bigint;
  /** The addresses that may make blocks; everybody may where there are none. */
  readonly producers?: readonly string[];
  /** Later lists of producers, by ascending height. */
  readonly changes?: readonly { readonly height: bigint; readonly producers: readonly string[] }[];
}

export const MAINNET: Network;
export const DEVNET: Network;
/** The networks that are built in. */
export const NETWORKS: readonly Network[];
/** The network that `svc network show --json` has printed; rejects with InvalidInput.
 *
 * Compare its genesis hash once with what the founder of the network says by another way.
 */
export function parseNetwork(text: string): Promise<Network>;
/** Base units of one coin. */
export const COIN: bigint;
/** The smallest fee of a transfer on mainnet and devnet, in base units. */
export const MINIMUM_FEE: bigint;
/** The greatest fee in base units that is paid on mainnet and devnet because a node suggests it. */
export const MAXIMUM_FEE: bigint;

/** The base units of a decimal number of coins such as "25" or "0.5"; throws InvalidInput. */
export function parseAmount(coins: string): bigint;
/** The shortest decimal number of coins of base units. */
export function formatAmount(units: Units): string;
/** The coins of base units with the `unit` of their network: "12.5 SVC". */
export function formatCoins(units: Units, unit: string): string;
/** `address` if it is one of `network`; throws InvalidInput. */
export function checkAddress(address: string, network: Network): string;
/** How many confirmations an order requires that does not say. */
export const DEFAULT_CONFIRMATIONS: 12;
/** The network of an address of mainnet or devnet; throws InvalidInput for every other text. */
export function networkOf(address: string): Network;
/** The reference that `svc wallet refund` gives the refund of a payment. */
export function refundReference(reference: string | null, txid: string): Promise<string>;

// Errors

export class SvcPayError extends Error {}
/** A value that this program was given does not have the required form. */
export class InvalidInput extends SvcPayError {}
/** No answer came. A request that is not repeatable may or may not have been carried out. */
export class NodeUnreachable extends SvcPayError {}
/** The answer is not one of a svcd node. */
export class InvalidAnswer extends SvcPayError {}
/** There is no rate that may be used now: do not sell until there is one. */
export class RateRefused extends SvcPayError {}
/** The node refused the request; the message is its sentence. */
export class ApiError extends SvcPayError {
  constructor(status: number, sentence: string, retryAfter?: number | null);
  readonly status: number;
  /** Seconds after which the node asks to be called again; null if it does not say. */
  readonly retryAfter: number | null;
}
/** After a transfer of this amount its sender or its recipient would have less than the account minimum. */
export class ImpossibleAmount extends SvcPayError {
  constructor(sentence: string, possible?: bigint | null);
  /** The nearest amount that would do, in base units; null if none would. */
  readonly possible: bigint | null;
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
/** A proof does not prove the payment, the account or the chain. */
export class InvalidProof extends SvcPayError {}

// Orders and payments

/** What a shop asks to be paid; a transfer pays it only if reference, recipient and amount agree exactly. */
export interface Order {
  /** Unique in the shop: 1 to 64 of `A-Z a-z 0-9 . _ : -`. */
  reference: string;
  /** The address of the shop. */
  recipient: string;
  amount: Units;
  /** How many confirmations the shop requires, 1 to 1000; by default 12. */
  confirmations?: number;
  /** Transfers in blocks below this height do not count. */
  sinceHeight?: Units | null;
}

/** An order as strings and numbers, to be stored. */
export interface StoredOrder extends Order {
  amount: string;
  confirmations: number;
  sinceHeight: string;
}

export interface PaymentRequest {
  order: StoredOrder;
  /** For the buyer's wallet, as a link or a QR code. */
  paymentUri: string;
  checkoutPath: string;
  walletPath: string;
  label: string | null;
  /** Why nobody can pay the request now: the recipient has too few coins for so small an amount. */
  warning: string | null;
}

/** The state of a payment; a reorganisation can turn it back at any time. */
export type State = "unpaid" | "pending" | "confirming" | "confirmed";

export interface Tip {
  height: string;
  hash: string;
}

export interface NodeView extends Tip {
  /** Whether the node's chain is the network's. */
  synced: boolean;
}

/** A transfer under the reference of an order that does not pay it. */
export interface Mismatch {
  txid: string;
  amount: string;
  amountSvc: string;
  confirmations: number;
}

/** What undoing a payment takes, as its node says: compare it with what the goods are worth. */
export interface Work {
  /** The expected hashes for the payment's block and those on top of it. */
  hashesToUndo: string;
  /** The same in hours of one core. */
  coreHoursToUndo: string;
  /** The same in blocks of the work that a block has today. */
  workConfirmations: string;
}

/** What a node knows about the payment of an order at one moment. */
export interface Payment {
  state: State;
  reference: string;
  recipient: string;
  amount: string;
  amountSvc: string;
  confirmations: number;
  requiredConfirmations: number;
  /** Whether a block of the chain has the transfer. */
  canonical: boolean;
  hardFinality: false;
  settlementModel: string;
  /** 2 if it was paid twice: refund one of them. */
  matchCount: number;
  mismatches: Mismatch[];
  /** In an event, a member of the event. */
  tip?: Tip;
  /** In an event, a member of the event. */
  node?: NodeView;
  txid?: string;
  blockHash?: string;
  blockHeight?: string;
  blockTime?: string;
  sinceHeight?: string;
  /** Missing while no block has the transfer. */
  work?: Work;
}

/** Whether the shop may deliver now: confirmed, on the chain of the network. It may still be undone later. */
export function isSettled(payment: Payment): boolean;

/** A transfer to an address, whether or not it pays an order. */
export interface ReceivedTransfer {
  txid: string;
  sender: string;
  reference: string | null;
  amount: string;
  amountSvc: string;
  canonical: boolean;
  confirmations: number;
  blockHash?: string;
  blockHeight?: string;
  blockTime?: string;
  /** Only if the amount of the order was given; null for the transfer that pays it. */
  mismatch?: "too-little" | "too-much" | "duplicate" | null;
}

/** A transfer to an address in a block, in its feed. */
export interface FeedPayment {
  type: "payment";
  txid: string;
  reference: string | null;
  amount: string;
  amountSvc: string;
  sender: string;
  height: string;
  /** Of the block. */
  hash: string;
  /** Of the block, in Unix milliseconds. */
  time: string;
  /** In the block. */
  position: number;
}

/** Everything above this height that the feed has told is undone. */
export interface FeedRewind {
  type: "rewind";
  height: string;
  hash: string;
}

/** A transfer to an address that waits in the mempool. */
export interface FeedPending {
  txid: string;
  reference: string | null;
  amount: string;
  amountSvc: string;
  sender: string;
  /** When it came to the node, in Unix milliseconds. */
  arrivalTime: string;
}

/** A part of the feed of an address; a rewind is the first of `entries`. */
export interface FeedPage {
  entries: (FeedRewind | FeedPayment)[];
  pending: FeedPending[];
  /** `after` of the next page. */
  next: string;
  tip: Tip;
  node: NodeView;
}

export interface Account {
  address: string;
  balance: string;
  balanceSvc: string;
  nonce: string;
  /** The nonce for a new transfer. */
  pendingNonce: string;
  pendingBalance: string;
  heldSince: string | null;
}

// Webhooks

export type WatchEventName =
  | "payment.pending"
  | "payment.confirming"
  | "payment.confirmed"
  | "payment.reorged"
  | "payment.expired"
  | "payment.dropped"
  | "payment.mismatched"
  | "node.alarm";

export const EVENT_NAMES: readonly WatchEventName[];

interface EventBase {
  /** The same for every repetition of the event. */
  id: string;
  createdAt: string;
  networkId: number;
  chainId: string;
  genesisHash: string;
}

interface WatchEventBase extends EventBase {
  subscriptionId: string;
  epoch: number;
  sequence: number;
  initial: boolean;
  previousState: string;
  payment: Payment;
  tip: Tip;
  node: NodeView;
}

export interface PaymentEvent extends WatchEventBase {
  event: "payment.pending" | "payment.confirming" | "payment.confirmed" | "payment.reorged" | "payment.expired";
}

export interface MismatchedEvent extends WatchEventBase {
  event: "payment.mismatched";
  mismatch: {
    txid: string;
    sender: string;
    amount: string;
    amountSvc: string;
    kind: "too-little" | "too-much" | "duplicate" | "late";
    /** This is the last one that the watch reports: read `payments` from now on. */
    more?: true;
  };
}

export interface DroppedEvent extends WatchEventBase {
  event: "payment.dropped";
  /** How the pending payment has left the mempool without a block. */
  dropped: { reason: "replaced" | "expired" | "evicted" | "unknown"; txid?: string; replacedBy?: string };
}

export interface AlarmEvent extends WatchEventBase {
  event: "node.alarm";
  alarm: { kind: "outage" | "deep-reorganisation" | "standstill"; sentence: string };
}

/** An event of a watch. */
export type WatchEvent = PaymentEvent | MismatchedEvent | DroppedEvent | AlarmEvent;

/** `webhook.test`, or an event that this version does not know. */
export interface OtherEvent extends EventBase {
  event: string;
}

export type Event = WatchEvent | OtherEvent;

export function isWatchEvent(event: Event): event is WatchEvent;
/** Where the network of a recipient is given, which must be done unless it is mainnet or devnet. */
export interface OnNetwork {
  network?: Network;
}

/** Whether the payment of an event is that of exactly this order, on the network of the recipient. */
export function concerns(event: WatchEvent, order: Order, options?: OnNetwork): boolean;
/** Whether the shop may deliver the order now: the payment is confirmed, as deep as the order requires.
 *
 * Only the newest event of a watch counts: compare `epoch`, then `sequence`.
 */
export function settles(event: WatchEvent, order: Order, options?: OnNetwork): boolean;
/** What a person should look at: of an alarm its sentence, of a mismatch how to refund it; else null. */
export function noticeOf(event: WatchEvent, options?: OnNetwork): string | null;

/** Anything with the headers of a request: `Headers`, or `request.headers` of Node.js. */
export type HeaderSource = { get(name: string): string | null } | { [name: string]: string | string[] | undefined };

/** Verifies the callbacks of a node, in the format of Standard Webhooks. */
export class Webhook {
  /** The signing secret as the node's file has it, or as `whsec_…`; while it is being rotated, both. */
  constructor(secrets: string | readonly string[], options?: { tolerance?: number });
  /** The event in a callback; rejects with InvalidSignature (answer 401) or InvalidAnswer.
   *
   * `body` is the bytes as received, before anything parses them; `now` is the Unix time in seconds.
   */
  verify(body: Uint8Array | ArrayBuffer, headers: HeaderSource, options?: { now?: number }): Promise<Event>;
}

/** An event of a watch, and what has become of its delivery. */
export interface Delivery {
  id: string;
  event: string;
  createdAt: string;
  attempts: number;
  lastAttemptAt: string | null;
  lastStatus: number | null;
  deliveredAt: string | null;
  nextAttemptAt: string | null;
  lastError: string | null;
  superseded?: boolean;
  refused?: boolean;
  abandoned?: boolean;
  dropped?: boolean;
  epoch: number;
  sequence: number;
  /** Of an event that waits for its delivery. */
  attemptsLeft?: number;
  /** What the event says, in short. */
  content: {
    payment: { state: State; confirmations: number; txid?: string; blockHash?: string; blockHeight?: string };
    /** The newest block, which has brought the event about. */
    tip: { height: string; hash: string };
    mismatch?: MismatchedEvent["mismatch"];
    dropped?: DroppedEvent["dropped"];
    alarm?: AlarmEvent["alarm"];
  };
}

/** A registration for the events of an order. */
export interface Watch {
  id: string;
  active: boolean;
  reference: string;
  recipient: string;
  amount: string;
  requiredConfirmations: number;
  sinceHeight?: string;
  lastState: State | "expired";
  callbackUrl: string;
  wantedEvents: WatchEventName[];
  createdAt: string;
  expiresAt: string;
  /** Until when the payment must have been seen, if the registration said so. */
  payUntil?: string;
  payment?: Payment;
  /** What the node has to say against the registration. */
  warning?: string;
  /** True if the watch has reported as many mismatches as it may. */
  moreMismatches?: true;
  /** True if the registration repeated an earlier one. */
  existing?: boolean;
  ending?: "expired" | "closed" | "cancelled" | "gone";
  endedAt?: string;
  /** Until when an ended watch reports mismatches; absent if it reports none. */
  mismatchesUntil?: string;
  /** Before this height a watch whose payment has been confirmed does not end. */
  closesAtHeight?: string;
  /** The open circuit breaker of a receiver that fails: it gets one delivery at a time. */
  breaker?: { openedAt: string; nextProbeAt: string };
  /** The newest first. */
  events?: Delivery[];
}

/** Some of the merchant's watches, the newest first; `next` is `after` of the following page, null on the last. */
export interface WatchPage {
  watches: Watch[];
  next: string | null;
}

export interface CallbackTest {
  id: string;
  event: "webhook.test";
  status: number | null;
  error: string | null;
  milliseconds: number;
}

// Keys and transfers

/** An Ed25519 key that signs transfers. */
export class Key {
  private constructor();
  static fromSeed(seed: Uint8Array): Promise<Key>;
  /** The key of 24 words: BIP-39 without a passphrase, then SLIP-0010 at m/0'. */
  static fromWords(words: string): Promise<Key>;
  readonly publicKey: Uint8Array;
  address(network: Network): Promise<string>;
  sign(message: Uint8Array): Promise<Uint8Array>;
}

export interface Transaction {
  version: 2;
  networkId: number;
  type: 1;
  senderPublicKey: string;
  senderAddress: string;
  nonce: string;
  fee: string;
  timestamp: string;
  payload: { recipient: string; amount: string; paymentReference?: string };
  signature: string;
}

/** Store it before the broadcast: the same text can be broadcast again safely. */
export interface SignedTransfer {
  txid: string;
  transaction: Transaction;
}

export interface Draft {
  recipient: string;
  amount: Units;
  nonce: Units;
  /** By default the least one of the network. */
  fee?: Units;
  reference?: string | null;
  /** Unix milliseconds; by default now. */
  timestamp?: Units;
}

export function signTransfer(key: Key, network: Network, draft: Draft): Promise<SignedTransfer>;

// The client

export interface ClientOptions {
  /** The management token, needed only for watches; never in a browser. */
  token?: string | null;
  /** Seconds until a request with its repetitions, or a list with its pages, is given up, 15 by default; a long poll has
   * its time on top. */
  timeout?: number;
  /** Seconds that a request may wait in all before it is repeated, 5 by default and at most `timeout`; then it rejects
   * with the refusal. */
  retrySeconds?: number;
  /** Whether the token may be sent over `http://` to another computer. */
  insecureHttp?: boolean;
  /** The network of the node, which must be given unless it is mainnet or devnet.
   *
   * With it, the first call asks the node for its genesis hash, and every call rejects with InvalidAnswer if the node is
   * on another network.
   */
  network?: Network | null;
  fetch?: typeof globalThis.fetch;
  /** Waits for seconds. */
  sleep?: ((seconds: number) => Promise<void>) | null;
}

/** The calls of a node. Every method rejects with a subclass of SvcPayError. */
export class Client {
  constructor(url: string, options?: ClientOptions);
  /** The network that was given; null if any of mainnet and devnet will do. */
  readonly network: Network | null;
  /** A payment request for an order, with a random reference if none is given. The node stores nothing. */
  paymentRequest(wanted: {
    recipient: string;
    amount: Units;
    reference?: string;
    label?: string;
    confirmations?: number;
  }): Promise<PaymentRequest>;
  /** What the node knows about the payment of an order now: verifies it. */
  payment(order: Order, options?: { wait?: number; state?: State | null; signal?: AbortSignal }): Promise<Payment>;
  /** Wait by long polling until the payment is in `state` or further; WaitTimeout after about `timeout` seconds. */
  waitFor(
    order: Order,
    options?: { state?: "pending" | "confirming" | "confirmed"; timeout?: number; signal?: AbortSignal },
  ): Promise<Payment>;
  /** Every transfer to an address, paying an order or not; with `amount`, whether each pays that order. */
  payments(
    recipient: string,
    options?: { reference?: string; amount?: Units; sinceHeight?: Units },
  ): Promise<ReceivedTransfer[]>;
  /** A page of the feed of an address: every payment to it in the order of the chain, those that are undone too.
   *
   * It goes on `after` the `next` of an earlier page, or begins at `sinceHeight`, which each page must get. It has at
   * most `limit` entries, 1 to 1000 and by default 100. With `wait` seconds, 1 to 30, the answer comes when there is
   * something to tell. A node whose chain is lower than `minHeight` refuses with 503.
   */
  feed(
    recipient: string,
    options?: {
      after?: string | null;
      wait?: number;
      limit?: number;
      sinceHeight?: Units;
      minHeight?: Units;
      signal?: AbortSignal;
    },
  ): Promise<FeedPage>;
  /** A proof of the payment, for `checkPaymentProof` of `svc-pay/light`. */
  proof(order: Order): Promise<string>;
  /** The hash of the block at a height: the tip of a proof, if this node is trusted. */
  blockHash(height: Units): Promise<string>;
  /** Register a watch; store the order before that. The same registration again returns the same watch.
   *
   * `payWithinSeconds` is the buyer's deadline: until when the payment must have been seen, in the mempool or in a
   * block. `ttlSeconds` is the lifetime of the watch, with a deadline by default the node's maximum.
   */
  register(
    order: Order,
    callbackUrl: string,
    options?: { events?: readonly WatchEventName[]; payWithinSeconds?: number; ttlSeconds?: number },
  ): Promise<Watch>;
  /** A watch with its newest events. */
  watch(id: string): Promise<Watch>;
  /** A page of at most `limit` watches with their newest events, the newest watch first; 50 is the most.
   *
   * Ask again with `after` the page's `next` until that is null: a page may have fewer watches, or none, even if more
   * follow.
   */
  watches(options?: {
    reference?: string | null;
    state?: string | null;
    host?: string | null;
    after?: string | null;
    limit?: number;
  }): Promise<WatchPage>;
  /** Cancel a watch; its undelivered events are dropped. */
  cancel(id: string): Promise<Watch>;
  /** Send an event again. This call is never repeated by itself. */
  redeliver(id: string, eventId: string): Promise<Delivery>;
  /** Send a `webhook.test` and wait for its outcome. This call is never repeated by itself. */
  testCallback(callbackUrl: string): Promise<CallbackTest>;
  /** The account of an address. */
  account(address: string): Promise<Account>;
  /** A transfer signed with the suggested fee and `nonce`, by default the account's next one from the node.
   *
   * `maximumFee` is by default a hundred times the least fee of the network. Store the transfer, then broadcast it. Two
   * workers that sign at the same time get the same nonce from the node, and one transfer replaces the other: use
   * `Payouts`, or nonces that no two workers share. Rejects with ImpossibleAmount if either account would then have
   * less than the network's account minimum.
   */
  sign(
    key: Key,
    network: Network,
    wanted: { recipient: string; amount: Units; reference?: string | null; maximumFee?: Units; nonce?: Units | null },
  ): Promise<SignedTransfer>;
  /** Hand a signed transfer to the network: "accepted", or "known" if the node had it. Safe to repeat. */
  broadcast(transfer: SignedTransfer): Promise<string>;
}

// Open orders

/** A row for an open order; the last three are what a store has to find it by. */
export interface OrderRow {
  reference: string;
  /** What is known about the order; only `Orders` reads it. */
  text: string;
  /** A height; null for none. */
  awaits: number | null;
  /** A time in Unix milliseconds; null for none. */
  due: number | null;
  /** The height of its highest transfer; null if it has none. */
  top: number | null;
}

/** What is written in one transaction. */
export interface OrderUpdate {
  /** New orders; one whose reference is stored stays as it is. */
  added?: readonly OrderRow[];
  /** Orders in the place of those with their references; one that is not stored any more is left out. */
  changed?: readonly OrderRow[];
  /** The reference of an order to be removed. */
  removed?: string;
  /** Events behind all that are stored. */
  events?: readonly string[];
  /** The number of an event: it and all before it are removed. */
  told?: number;
  /** The place in the feed that must be stored, null before the first one, and the one in its stead. */
  place?: { before: string | null; after: string };
}

/** The open orders of one recipient, for programs that have a database of their own.
 *
 * `FileOrders` of `svc-pay/file-orders` is one in a folder. Several calls may be made at the same time.
 */
export interface OrderStore {
  /** The place in the feed; null before the first one. */
  place(): Promise<string | null>;
  /** The orders with these references, of which many may not be stored. */
  orders(references: readonly string[]): Promise<OrderRow[]>;
  /** The first orders by reference, in the order of ASCII, of those to be looked at, behind the reference `after`.
   *
   * They are those whose `awaits` is at most `height`, whose `due` is at most `now`, or whose `top` is above `above`.
   * Each of the three needs an index.
   */
  affected(wanted: {
    height: number;
    now: number;
    above: number;
    after: string;
    limit: number;
  }): Promise<OrderRow[]>;
  /** The oldest events with their numbers, which rise and are never used again. */
  events(limit: number): Promise<[number, string][]>;
  /** Write everything, durably before it resolves; false, and nothing, if another place is stored.
   *
   * That events were told may be forgotten: then they come again.
   */
  write(update: OrderUpdate): Promise<boolean>;
}

/** The open orders to one recipient, and what happens to them, from one feed: without webhooks.
 *
 * Everything is in the store; nothing is registered with the node. Any number of programs may add and remove orders;
 * one of them iterates over `changes`.
 */
export class Orders {
  /** `recipient` is the address of the shop, on the network of `node`. The feed is read from `sinceHeight` on if the
   * `store` is new; `now` gives the Unix milliseconds, and `even` milliseconds that nobody sets.
   */
  constructor(
    node: Client,
    options: { recipient: string; store: OrderStore; sinceHeight?: Units; now?: () => number; even?: () => number },
  );
  /** Follow an order, before its buyer learns the reference: what the feed has told before is not told again.
   *
   * `payUntil` is the buyer's deadline in Unix milliseconds: until then the payment must have been seen, in the mempool
   * or in a block; `payment.expired` is told a minute later. The same order again changes nothing; other terms under
   * its reference reject with InvalidInput, and a store that has the feed of another address with StoreError.
   */
  add(order: Order, options?: { payUntil?: number | null }): Promise<void>;
  /** Follow an order no longer: nothing of it happens any more, not even that it is paid twice or undone. */
  remove(reference: string): Promise<void>;
  /** The events of all open orders, as webhooks tell them, without end; waits for the next one.
   *
   * An event is removed from the store when the next one is asked for: after an interruption the last one comes again,
   * with the same id, or several do. An error ends the iteration and loses nothing: iterate again after a while.
   * `signal` ends it, too.
   */
  changes(options?: { signal?: AbortSignal }): AsyncGenerator<WatchEvent, never, void>;
}

// Prices in money

/** What one coin costs in a currency, at a moment. */
export interface Rate {
  readonly currency: string;
  /** A decimal string. */
  readonly price: string;
  /** When the rate was that, in Unix milliseconds. */
  readonly at: number;
  /** For how many seconds it may be used; null for a fixed rate. */
  readonly maxAge: number | null;
}

/** The amount of an order and how it was calculated: store it with the order. */
export interface Quote {
  /** Base units to be paid. */
  amount: string;
  /** The price of the goods in the currency, a decimal. */
  price: string;
  currency: string;
  /** What one coin cost in the currency, a decimal. */
  rate: string;
  /** When, in Unix milliseconds. */
  rateAt: string;
}

/** A decimal above 0 such as "12.50", or an integer; a number with a fraction is refused, because it is rounded. */
export type Price = string | number;

/** Where a shop's rate of one currency comes from: made by `fixed`, `function` or `url`. */
export class RateSource {
  private constructor();
  readonly currency: string;
  /** The same rate at any time. */
  static fixed(currency: string, price: Price): RateSource;
  /** What `read` gives or promises: the price of a coin, or an array of it and its time in Unix milliseconds.
   *
   * It is called again when its last rate is older than `maxAge` seconds.
   */
  static function(
    currency: string,
    read: () => Price | [Price, number] | Promise<Price | [Price, number]>,
    options: { maxAge: number },
  ): RateSource;
  /** The number at `path` in the JSON at `url`: names and places with dots between them, or an array of them.
   *
   * The server is asked again when its last rate is older than `maxAge` seconds. The URL must begin with https://, or
   * with http:// and a loopback address, and no redirect is followed.
   */
  static url(
    currency: string,
    url: string,
    path: string | readonly (string | number)[],
    options: { maxAge: number; fetch?: typeof globalThis.fetch },
  ): RateSource;
  /** The rate; `now` is the Unix time in seconds.
   *
   * Rejects with RateRefused if there is none that may be used now, and with what a function throws.
   */
  rate(options?: { now?: number }): Promise<Rate>;
}

/** The amount of an order for goods of a price, rounded up to 8 decimals of a coin; store all of it with the order.
 *
 * `now` is the Unix time in seconds. Throws RateRefused for a rate that may not be used, and InvalidInput for a price
 * that is not one, is in another currency, or is more than a payment can be.
 */
export function orderAmount(price: Price, currency: string, rate: Rate, options?: { now?: number }): Quote;

/** The checkout of a payment request at `node`, the URL under which buyers reach it. */
export function checkoutUrl(
  request: PaymentRequest,
  node: string,
  options?: { returnUrl?: string; until?: number | bigint },
): string;

// Payouts

/** Where payouts are stored: numbered entries, from 1 on without a gap, one journal for each key that pays.
 *
 * `FileJournal` of `svc-pay/file-journal` is one; a table of the shop's with the number as its primary key is another.
 */
export interface Journal {
  /** The entries after this number, in order. */
  read(after: number): Promise<string[]>;
  /** Store an entry under this number, durably before it resolves; false if the number is taken.
   *
   * Of all processes that append the same number, exactly one gets true.
   */
  append(sequence: number, entry: string): Promise<boolean>;
}

/** How far a payout is.
 *
 * `waiting`: signed and stored, in no block, sent again. `confirming`: in a block, not yet as deep as required. `paid`:
 * as deep as required. `conflicted`: another program has used its nonce, and a person has to decide.
 */
export type PayoutState = "waiting" | "confirming" | "paid" | "conflicted";

/** A payout, and what the node says of it now. */
export interface Payout {
  /** The shop's. */
  id: string;
  state: PayoutState;
  recipient: string;
  amount: string;
  reference: string | null;
  nonce: string;
  /** Of the transfer in a block, else of the one that was signed last. */
  txid: string;
  /** All that were signed for it; at most one of them can be paid. */
  transfers: readonly SignedTransfer[];
  confirmations: number;
  /** Why it is not further, in a sentence of the node or of this package; null if it only needs time. */
  problem: string | null;
}

/** Pays from one key; each payout is paid once, whatever the node answers. */
export class Payouts {
  /** All processes that sign with `key` use the same `journal`.
   *
   * A payout is paid when its transfer has `confirmations`, 12 by default; fees are at most `maximumFee` base units, by
   * default a hundred times the least one of the network; `now` gives the Unix milliseconds.
   */
  constructor(
    node: Client,
    journal: Journal,
    key: Key,
    network: Network,
    options?: { confirmations?: number; maximumFee?: Units; now?: () => number },
  );
  /** Pay `amount` base units once for the payout with this id: sign, store, then send.
   *
   * The same id again sends the same transfer again, and never pays twice; other terms under it reject with
   * PayoutRefused. A rejection means that this call has sent nothing. Once a payout is returned it is stored: what the
   * node refuses is in `problem`, and `advance` sends it again.
   */
  pay(id: string, wanted: { recipient: string; amount: Units; reference?: string | null }): Promise<Payout>;
  /** Ask about every payout that is not paid, send again those in no block, and return all of them.
   *
   * Call it at the start and then regularly, such as each minute. It signs a payout again, always under its nonce, if
   * no block can include its transfer any more, or if the suggested fee has risen by 10 %.
   */
  advance(): Promise<Payout[]>;
  /** Ask about one payout, even about one that was paid, and send it again if it is in no block. */
  check(id: string): Promise<Payout>;
  /** Every payout of the journal, without asking the node: `waiting` or `paid`, as was last stored. */
  stored(): Promise<Payout[]>;
  /** Pay a conflicted payout under a new nonce: the decision of a person, who has asked another node, too.
   *
   * Rejects with PayoutRefused unless the node shows a transfer that this key has signed, for something else, with the
   * nonce of the payout and as many confirmations as are required, and the time is over in which a block can include a
   * transfer of the payout.
   */
  reassign(id: string): Promise<Payout>;
}
