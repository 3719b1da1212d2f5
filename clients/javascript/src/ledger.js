// The payouts that the entries of a journal describe: no input and output.

import { JournalError, PayoutRefused } from "./errors.js";
import { hexOf } from "./light/bytes.mjs";
import { MARGIN, txidOf, voidAt } from "./light/transaction.mjs";

const FUTURE_MILLISECONDS = 600_000n;

export const nonceOf = ({ transaction }) => BigInt(transaction.nonce);
export const feeOf = ({ transaction }) => BigInt(transaction.fee);
/** How old a transfer can be at the time of its block, in milliseconds. */
const lifetime = ({ rules }) => 1000n * rules.transactionPastSeconds;

/** From when on another nonce may be used, in Unix milliseconds: clocks of blocks and of this computer differ. */
export const givenUpAt = ({ transaction }, network) => voidAt(transaction, network) + MARGIN;

/** Whether a transfer has to be signed again at `now`: its time is over, or it is dated into the future. */
export function isVoid({ transaction }, now, network) {
  const left = voidAt(transaction, network) - now;
  return left <= 0n || left > lifetime(network) + FUTURE_MILLISECONDS;
}

/** What a transfer pays, as strings. */
function termsOf({ transaction }) {
  const { recipient, amount, paymentReference = null } = transaction.payload;
  return { recipient, amount, reference: paymentReference };
}

const same = (one, other) => ["recipient", "amount", "reference"].every((name) => one[name] === other[name]);

function described({ recipient, amount, reference }) {
  const named = reference === null ? "without a reference" : `with the reference ${reference}`;
  return `${amount} base units to ${recipient} ${named}`;
}

/** The transfers of a payout with its present nonce that a block can still include, the newest first. */
export const validOf = ({ transfers, nonce }, now, network) =>
  transfers.filter((each) => nonceOf(each) === nonce && !isVoid(each, now, network)).reverse();

/** Throws PayoutRefused unless the payout has these terms. */
export function checkTerms(stored, asked) {
  if (same(stored.terms, asked)) return;
  const pays = `payout ${stored.id} pays ${described(stored.terms)}`;
  throw new PayoutRefused(`${pays}; to pay ${described(asked)}, give it another id`);
}

/** The entry for a transfer that was signed for a payout. */
export const signedEntry = (id, { transaction }, more = {}) => JSON.stringify({ id, transaction, ...more });
/** The entry for a payout whose transfer is as deep as required. */
export const paidEntry = (id, paid) => JSON.stringify({ id, paid });

/** The signed transfer of a transaction, with its txid computed. */
export async function transferOf(transaction, network) {
  return { txid: hexOf(await txidOf(transaction, network)), transaction };
}

/** All payouts of one key. Each is `{ id, terms, transfers, nonce, paid }`, and never changes. */
export class Ledger {
  #payouts = new Map();
  #owners = new Map();
  #address;
  #network;
  /** The number of entries that were read. */
  sequence = 0;

  constructor(address, network) {
    this.#address = address;
    this.#network = network;
  }

  /** Takes the entries that follow number `after`, without those that are known; rejects with JournalError. */
  async add(after, entries) {
    const read = await Promise.all(entries.map((entry) => this.#read(entry)));
    for (const [place, given] of read.entries()) {
      const number = after + place + 1;
      if (number !== this.sequence + 1) continue;
      if (given === null || !this.#take(given))
        throw new JournalError(`entry ${number} of the journal is damaged: restore it`);
      this.sequence = number;
    }
  }

  async #read(entry) {
    try {
      const { id, transaction, paid, reassigned = false } = JSON.parse(entry);
      if (typeof id !== "string") return null;
      if (transaction === undefined) return { id, paid };
      const transfer = await transferOf(transaction, this.#network);
      return { id, transfer, terms: termsOf(transfer), nonce: nonceOf(transfer), reassigned };
    } catch {
      // What is no JSON or no transfer is damaged.
      return null;
    }
  }

  #take({ id, transfer, terms, nonce, paid, reassigned }) {
    const known = this.#payouts.get(id);
    if (transfer === undefined) {
      if (!known?.transfers.some(({ txid }) => txid === paid)) return false;
      this.#payouts.set(id, Object.freeze({ ...known, paid }));
      return true;
    }
    if (transfer.transaction.senderAddress !== this.#address)
      throw new JournalError(`the journal has payouts of another key than that of ${this.#address}`);
    if (known && (!same(known.terms, terms) || (known.nonce !== nonce && reassigned !== true))) return false;
    if ((this.#owners.get(nonce) ?? id) !== id) return false;
    this.#owners.set(nonce, id);
    const { paid: before = null, transfers = [] } = known ?? {};
    this.#payouts.set(id, Object.freeze({ id, terms, nonce, paid: before, transfers: [...transfers, transfer] }));
    return true;
  }

  /** A payout, or null. */
  get(id) {
    return this.#payouts.get(id) ?? null;
  }

  /** Every payout, the lowest nonce first. */
  all() {
    return [...this.#payouts.values()].sort((one, other) => (one.nonce < other.nonce ? -1 : 1));
  }

  /** Whether a transfer with this nonce was signed for a payout. */
  hasNonce(nonce) {
    return this.#owners.has(nonce);
  }

  /** The lowest nonce for a new payout, from `first` on and behind those of payouts that were paid. */
  freeNonce(first) {
    let nonce = first;
    for (const each of this.#payouts.values()) if (each.paid !== null && each.nonce >= nonce) nonce = each.nonce + 1n;
    while (this.#owners.has(nonce)) nonce++;
    return nonce;
  }

  /** What the payouts cost whose nonces, from `nonce` on, no block has used, in base units. */
  reserved(nonce) {
    let sum = 0n;
    for (const { terms, transfers, nonce: own } of this.#payouts.values())
      if (own >= nonce) sum += BigInt(terms.amount) + transfers.map(feeOf).reduce((a, b) => (a > b ? a : b));
    return sum;
  }
}
