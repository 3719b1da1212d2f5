// Payouts of one key by any number of workers: each is paid once, whatever a node answers (docs/wallets.md).
//
// Two facts carry this. A chain executes one transfer for each nonce of an account, so that transfers of one nonce are
// never paid twice. And every transfer is an entry of the journal before it is sent; of all processes one gets each
// place in the journal, so that a payout has one nonce, and a nonce one payout.

import {
  checkAddress,
  checkConfirmations,
  checkNames,
  checkNetwork,
  checkReference,
  integer,
  must,
} from "./chain.js";
import { questionsOf } from "./client.js";
import { bytesOfSize } from "./encodings.js";
import { ApiError, InvalidAnswer, NodeUnreachable, PayoutRefused } from "./errors.js";
import {
  checkTerms,
  feeOf,
  givenUpAt,
  isVoid,
  Ledger,
  nonceOf,
  paidEntry,
  signedEntry,
  transferOf,
  validOf,
} from "./ledger.js";
import { hexOf } from "./light/bytes.mjs";
import { verify } from "./light/ed25519.mjs";
import { DEFAULT_CONFIRMATIONS } from "./light/orders.mjs";
import { wireNumber } from "./light/units.mjs";
import { signTransfer } from "./wallet.js";

/** Nonces of an account that a mempool holds. */
const WINDOW = 16n;
/** Transfers of one payout that are sent at once, if the node refuses the newest. */
const ATTEMPTS = 3;

const ofNode = (error) =>
  error instanceof ApiError || error instanceof NodeUnreachable || error instanceof InvalidAnswer;

/** A payout with what was found, or else with what the journal says. */
const payoutOf = ({ id, terms, nonce, paid, transfers }, found = {}) => ({
  id,
  state: paid === null ? "waiting" : "paid",
  ...terms,
  nonce: String(nonce),
  txid: paid ?? transfers.at(-1).txid,
  transfers,
  confirmations: 0,
  problem: null,
  ...found,
});

/** Pays from one key; each payout is paid once, whatever the node answers. */
export class Payouts {
  #node;
  #ask;
  #journal;
  #key;
  #network;
  #depth;
  #maximumFee;
  #clock;
  #opened = null;

  /** All processes that sign with `key` use the same `journal`.
   *
   * A payout is paid when its transfer has `confirmations`; fees are at most `maximumFee` base units, by default a
   * hundred times the least one of the network; `now` gives the Unix milliseconds.
   */
  constructor(node, journal, key, network, options = {}) {
    checkNames(options, "confirmations", "maximumFee", "now");
    const { confirmations = DEFAULT_CONFIRMATIONS, maximumFee = null, now = Date.now } = options;
    this.#node = node;
    this.#ask = questionsOf(node);
    this.#journal = journal;
    this.#key = key;
    this.#network = checkNetwork(network);
    this.#depth = checkConfirmations(confirmations);
    this.#maximumFee = maximumFee === null ? null : integer(maximumFee, "maximumFee");
    this.#clock = now;
  }

  // The journal

  /** The ledger with all entries of the journal. */
  async #ledger() {
    this.#opened ??= this.#key.address(this.#network).then((address) => new Ledger(address, this.#network));
    const ledger = await this.#opened;
    const after = ledger.sequence;
    await ledger.add(after, await this.#journal.read(after));
    return ledger;
  }

  /** Store an entry, unless another process was first. The ledger is up to date afterwards. */
  async #append(sequence, entry) {
    await this.#journal.append(sequence, entry);
    await this.#ledger();
  }

  async #known(id) {
    const stored = (await this.#ledger()).get(id);
    if (stored === null) throw new PayoutRefused(`there is no payout ${id}`);
    return stored;
  }

  async #sender() {
    return this.#ask.account(await this.#key.address(this.#network));
  }

  // A new payout

  /** Pay `amount` base units once for the payout with this id: sign, store, then send.
   *
   * The same id again sends the same transfer again, and never pays twice; other terms under it reject with
   * PayoutRefused. A rejection means that this call has sent nothing. Once a payout is returned it is stored: what the
   * node refuses is in `problem`, and `advance` sends it again.
   */
  async pay(id, wanted) {
    const form = "the id of a payout is 1 to 200 printable characters";
    must(typeof id === "string" && /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(id), form);
    checkNames(wanted, "recipient", "amount", "reference");
    const { recipient, amount, reference = null } = wanted;
    if (reference !== null) checkReference(reference);
    const units = integer(amount, "amount", 1n);
    const terms = { recipient: checkAddress(recipient, this.#network), amount: String(units), reference };
    const stored = (await this.#ledger()).get(id) ?? (await this.#begin(id, terms));
    checkTerms(stored, terms);
    return (await this.#settle([stored]))[0];
  }

  /** The first transfer of a payout, stored, unless another process has stored one. */
  async #begin(id, terms) {
    const minimum = await this.#ask.accountMinimum(this.#network);
    const fee = await this.#ask.suggestedFee(this.#network, this.#maximumFee);
    const sender = await this.#sender();
    const ledger = await this.#ledger();
    const first = await this.#firstFree(ledger, sender);
    const pending = BigInt(sender.pendingBalance);
    const unreserved = BigInt(sender.balance) - ledger.reserved(BigInt(sender.nonce));
    const available = pending < unreserved ? pending : unreserved;
    const { recipient } = terms;
    await this.#ask.checkRecipient(sender, { recipient, units: BigInt(terms.amount), minimum, fee, available });
    for (;;) {
      const { sequence } = ledger;
      const stored = ledger.get(id);
      if (stored !== null) return stored;
      const transfer = await this.#sign(terms, ledger.freeNonce(first), fee);
      await this.#append(sequence + 1, signedEntry(id, transfer));
    }
  }

  /** The nonce from which on the node says that they are free.
   *
   * It has to show the transfer before that one, unless the ledger has it: a nonce that is far too high would leave a
   * gap, behind which every payout waits. Nobody else can sign that transfer.
   */
  async #firstFree(ledger, { nonce, pendingNonce }) {
    const [used, pending] = [BigInt(nonce), BigInt(pendingNonce)];
    const first = pending > used ? pending : used;
    if (first > 0n && !ledger.hasNonce(first - 1n)) {
      const shown = await this.#signedWith(first - 1n, first > used);
      const says = `the node says that the next nonce is ${first}`;
      if (shown === null)
        throw new InvalidAnswer(`${says}, and shows no transfer of this key with nonce ${first - 1n}`);
    }
    return first;
  }

  #sign(terms, nonce, fee) {
    return signTransfer(this.#key, this.#network, { ...terms, nonce, fee, timestamp: this.#now() });
  }

  #now() {
    return BigInt(Math.floor(this.#clock()));
  }

  // What becomes of payouts

  /** Ask about every payout that is not paid, send again those in no block, and return all of them.
   *
   * Call it at the start and then regularly, such as each minute. It signs a payout again, always under its nonce, if
   * no block can include its transfer any more, or if the suggested fee has risen by 10 %.
   */
  async advance() {
    await this.#ledger();
    return this.#settle(null);
  }

  /** Ask about one payout, even about one that was paid, and send it again if it is in no block. */
  async check(id) {
    return (await this.#settle([await this.#known(id)]))[0];
  }

  /** Every payout of the journal, without asking the node: `waiting` or `paid`, as was last stored. */
  async stored() {
    return (await this.#ledger()).all().map((each) => payoutOf(each));
  }

  /** What the node says of these payouts, after those in no block were sent again; null for all that are open. */
  async #settle(chosen) {
    const ledger = await this.#opened;
    const open = ({ paid }) => paid === null;
    let sender;
    try {
      sender = await this.#sender();
    } catch (error) {
      if (!ofNode(error)) throw error;
      return (chosen ?? ledger.all().filter(open)).map((each) => payoutOf(each, { problem: error.message }));
    }
    // A reorganisation has undone a payout that was paid, if its nonce is free again.
    const first = BigInt(sender.nonce);
    const undone = ({ nonce }) => nonce >= first && nonce < first + WINDOW;
    const listed = chosen ?? ledger.all().filter((each) => open(each) || undone(each));
    if (listed.length === 0) return [];
    const fee = await this.#ask.suggestedFee(this.#network, this.#maximumFee).catch((error) => {
      if (ofNode(error)) return null;
      throw error;
    });
    const found = [];
    let lost = null;
    for (const each of listed) {
      try {
        if (lost !== null) throw lost;
        found.push(await this.#settleOne(ledger, each, { sender, fee }));
      } catch (error) {
        if (!ofNode(error)) throw error;
        if (error instanceof NodeUnreachable) lost = error;
        const state = each.nonce < first ? {} : { state: "waiting" };
        found.push(payoutOf(ledger.get(each.id), { ...state, problem: error.message }));
      }
    }
    return found;
  }

  async #settleOne(ledger, stored, { sender, fee }) {
    let used = BigInt(sender.nonce);
    for (const transfer of [...stored.transfers].reverse()) {
      const { txid } = transfer;
      const confirmations = nonceOf(transfer) < used ? await this.#ask.confirmations(txid) : null;
      if (confirmations === null) continue;
      if (confirmations < this.#depth) return payoutOf(stored, { state: "confirming", txid, confirmations });
      await this.#recordPaid(ledger, stored, txid);
      return payoutOf(stored, { state: "paid", txid, confirmations });
    }
    if (stored.nonce < used) {
      // A block may have been undone between the two questions.
      used = BigInt((await this.#sender()).nonce);
      const problem = `the node says that another transfer of this key has used nonce ${stored.nonce}: decide`;
      if (stored.nonce < used) return payoutOf(stored, { state: "conflicted", problem });
    }
    if (stored.nonce >= used + WINDOW) return payoutOf(stored, { state: "waiting" });
    const renewed = await this.#renew(ledger, stored, fee);
    return payoutOf(renewed, { state: "waiting", problem: await this.#send(renewed) });
  }

  async #recordPaid(ledger, { id }, txid) {
    for (;;) {
      const { sequence } = ledger;
      if (ledger.get(id).paid !== null) return;
      await this.#append(sequence + 1, paidEntry(id, txid));
    }
  }

  /** The payout, signed again under its nonce if no block can include its transfer, or if its fee is too low. */
  async #renew(ledger, stored, suggested) {
    const newest = stored.transfers.at(-1);
    const low = suggested !== null && 10n * suggested >= 11n * feeOf(newest);
    if (!low && !isVoid(newest, this.#now(), this.#network)) return stored;
    for (;;) {
      const { sequence } = ledger;
      const known = ledger.get(stored.id);
      if (known.transfers.length > stored.transfers.length) return known;
      const transfer = await this.#sign(stored.terms, stored.nonce, suggested ?? feeOf(newest));
      await this.#append(sequence + 1, signedEntry(stored.id, transfer));
    }
  }

  /** Send the newest transfer, or, where the node refuses it, one before it; the first refusal, or null. */
  async #send(stored) {
    let refusal = null;
    for (const transfer of validOf(stored, this.#now(), this.#network).slice(0, ATTEMPTS)) {
      try {
        await this.#node.broadcast(transfer);
        return null;
      } catch (error) {
        // The node may have relayed it all the same, so it is kept.
        if (!(error instanceof ApiError && error.status === 400)) throw error;
        refusal ??= error.message;
      }
    }
    return refusal;
  }

  // A nonce that another program has used

  /** Pay a conflicted payout under a new nonce: the decision of a person, who has asked another node, too.
   *
   * Rejects with PayoutRefused unless the node shows a transfer that this key has signed, for something else, with the
   * nonce of the payout and as many confirmations as are required, and the time is over in which a block can include a
   * transfer of the payout, and an hour more, by which clocks may differ.
   */
  async reassign(id) {
    const refuse = (sentence) => {
      throw new PayoutRefused(sentence);
    };
    const stored = await this.#known(id);
    const ledger = await this.#opened;
    const { nonce, transfers } = stored;
    const sender = await this.#sender();
    if (nonce >= BigInt(sender.nonce))
      refuse(`nonce ${nonce} of payout ${id} is not used: its transfer can be included`);
    for (const { txid } of transfers)
      if ((await this.#ask.confirmations(txid)) !== null) refuse(`payout ${id} is on the chain as ${txid}`);
    const ends = transfers.map((each) => givenUpAt(each, this.#network));
    const end = ends.reduce((one, other) => (one > other ? one : other));
    if (end > this.#now()) refuse(`until ${end} ms (Unix time) a block can include a transfer of payout ${id}`);
    const shown = await this.#signedWith(nonce, false);
    if (shown === null || transfers.some(({ txid }) => txid === shown.txid))
      refuse(`the node shows no other transfer of this key with nonce ${nonce}`);
    const short = `has ${shown.confirmations} of ${this.#depth} confirmations`;
    if (!(shown.confirmations >= this.#depth)) refuse(`the transfer that has used nonce ${nonce} ${short}`);
    const fee = await this.#ask.suggestedFee(this.#network, this.#maximumFee);
    const first = await this.#firstFree(ledger, sender);
    for (;;) {
      const { sequence } = ledger;
      const known = ledger.get(id);
      if (known.transfers.length > transfers.length) return (await this.#settle([known]))[0];
      const transfer = await this.#sign(stored.terms, ledger.freeNonce(first), fee);
      await this.#append(sequence + 1, signedEntry(id, transfer, { reassigned: true }));
    }
  }

  /** Txid and confirmations of a transfer with this nonce that the key has signed, as the node shows it, or null. */
  async #signedWith(nonce, waiting) {
    const address = await this.#key.address(this.#network);
    for await (const record of this.#ask.transfersOf(address, waiting)) {
      const transfer = await this.#own(record);
      if (transfer === null) continue;
      const confirmations = Number.isSafeInteger(record.confirmations) ? record.confirmations : 0;
      if (nonceOf(transfer) === nonce) return { txid: transfer.txid, confirmations };
      if (nonceOf(transfer) < nonce && !waiting) return null;
    }
    return null;
  }

  /** The transfer in a record, if this key has signed it; else null. */
  async #own(record) {
    const { version, networkId, type, senderPublicKey, senderAddress, nonce, fee, timestamp, payload, signature } =
      record;
    const fields = { version, networkId, type, senderPublicKey, senderAddress, nonce, fee, timestamp, payload };
    const signed = bytesOfSize(signature, 64);
    const formed = signed !== null && senderPublicKey === hexOf(this.#key.publicKey) && wireNumber(nonce) !== null;
    if (!formed || Object.values(fields).includes(undefined)) return null;
    const transfer = await transferOf({ ...fields, signature }, this.#network);
    const right = await verify(this.#key.publicKey, bytesOfSize(transfer.txid, 32), signed);
    return right ? transfer : null;
  }
}
