// A devnet of one node in memory, reached through `fetch`: enough of docs/http.md to pay on it.

import { hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { txidOf } from "../../../svcd/pages/static/transaction.mjs";

export const NOW = 1_795_170_187_000;
const { networkId, chainId, genesisHash, rules } = NETWORKS.devnet;
const genesisTime = Number(rules.genesisTime);
const slotMilliseconds = 1000 * Number(rules.slotSeconds);
const refusal = (error) => [400, { ok: false, error }];

const termsOf = (reference, query) => ({
  reference,
  recipient: query.get("recipient"),
  amount: query.get("amountBaseUnits"),
  requiredConfirmations: Number(query.get("confirmations")),
});

/** What a record says that it is about, when it answers this question. */
export function about(path) {
  const { pathname, searchParams } = new URL(path, "http://node.example");
  const last = pathname.split("/").at(-1);
  if (pathname.startsWith("/rpc/balance/")) return { address: last };
  if (pathname.startsWith("/rpc/mempool/")) return { address: last };
  if (pathname.startsWith("/rpc/address/")) return { address: pathname.split("/").at(-2) };
  if (pathname.startsWith("/rpc/transaction/")) return { txid: last };
  if (pathname.startsWith("/rpc/commerce/payment/")) return termsOf(last, searchParams);
  throw new RangeError(`a record that answers ${path} is about nothing`);
}

export class Devnet {
  now = NOW;
  height = 0;
  status = { networkId, chainId, genesisHash, hash: "aa", syncState: "synced", pruneHeight: "0" };
  consensus = { networkId, chainId, genesisHash, minimumFee: "10000", accountMinimum: "1000000" };
  rules = null;
  fees = { suggestedFee: "10000" };
  balances = new Map();
  nonces = new Map();
  pool = new Map();
  chain = new Map();
  /** Of the statement of any address; a page has two. */
  entries = [];
  asked = [];
  /** The slot of the first block that is here whole. */
  firstSlot = 0;
  /** What stands between the page and the node: given path and body, it may throw or give a Response. */
  between = () => null;

  fetch = async (path, { body } = {}) => {
    this.asked.push(path);
    const instead = await this.between(path, body);
    if (instead) return instead;
    const [status, told] = await this.#answer(new URL(path, "http://node"), body && JSON.parse(body));
    const listed = status === 200 && /^\/rpc\/(?:address|mempool)\//.test(path);
    const answer = listed ? { ...about(path), ...told } : told;
    return new Response(JSON.stringify(answer), { status });
  };

  /** Put what waits into a block, in the order of the nonces, and `more` empty ones on top. */
  mine(more = 0) {
    this.height += 1;
    const waiting = [...this.pool].sort(([, one], [, other]) => Number(one.nonce) - Number(other.nonce));
    for (const [txid, transfer] of waiting) {
      const { senderAddress: sender, payload } = transfer;
      if (transfer.nonce !== `${this.nonces.get(sender) ?? 0n}`) continue;
      this.balances.set(sender, this.balances.get(sender) - BigInt(payload.amount) - BigInt(transfer.fee));
      this.nonces.set(sender, BigInt(transfer.nonce) + 1n);
      this.chain.set(txid, { ...transfer, txid, blockHeight: `${this.height}`, blockTime: `${this.now}` });
    }
    this.pool.clear();
    this.height += more;
  }

  /** Delete all blocks so far; the next one begins now. */
  prune() {
    this.status.pruneHeight = `${this.height + 1}`;
    this.firstSlot = this.#slot();
    this.chain.clear();
  }

  #slot = () => Math.floor((this.now - genesisTime) / slotMilliseconds);

  #confirmations = ({ blockHeight }) => (blockHeight ? this.height - Number(blockHeight) + 1 : 0);

  #answer({ pathname, searchParams }, body) {
    const last = pathname.split("/").at(-1);
    if (pathname === "/rpc/status")
      return [200, { status: { slot: `${this.#slot()}`, ...this.status, height: `${this.height}`, time: `${this.now}` } }];
    if (pathname.startsWith("/rpc/block/")) return this.#block(Number(last));
    if (pathname === "/rpc/consensus") return [200, { consensus: this.consensus }];
    if (pathname === "/rpc/rules") return this.rules ? [200, { rules: this.rules, changes: [] }] : [404, { ok: false, error: "no such path" }];
    if (pathname === "/rpc/fees") return [200, { fees: this.fees }];
    if (pathname === "/rpc/broadcast") return this.#take(body.transaction);
    if (pathname.startsWith("/rpc/balance/")) return [200, { account: this.#account(last) }];
    if (last === "statement") return this.#statement(Number(searchParams.get("from")), Number(searchParams.get("after")));
    if (pathname.startsWith("/rpc/address/")) return [200, { transactions: this.#records(), next: null }];
    if (pathname.startsWith("/rpc/transaction/")) return this.#transaction(last);
    if (pathname.startsWith("/rpc/commerce/payment/")) return this.#payment(last, searchParams);
    return [404, { ok: false, error: "no such path" }];
  }

  #here = (height) => height >= Number(this.status.pruneHeight);

  #gone() {
    const { pruneHeight } = this.status;
    return [410, { ok: false, error: `this node has only blocks from height ${pruneHeight} on`, pruneHeight }];
  }

  #block(height) {
    return this.#here(height) ? [200, { block: { height: `${height}`, slot: `${this.firstSlot}` } }] : this.#gone();
  }

  #statement(from, after) {
    const began = genesisTime + this.firstSlot * slotMilliseconds;
    if (this.status.pruneHeight !== "0" && from !== began) return this.#gone();
    const kept = this.entries.filter(({ height }) => this.#here(Number(height)));
    return [200, { entries: kept.slice(after, after + 2), next: after + 2 < kept.length ? `${after + 2}` : null }];
  }

  #records() {
    return [...this.chain.values()].map((found) => ({ ...found, confirmations: this.#confirmations(found) }));
  }

  #account(address) {
    const nonce = this.nonces.get(address) ?? 0n;
    const waiting = [...this.pool.values()].filter(({ senderAddress }) => senderAddress === address);
    const balance = this.balances.get(address) ?? 0n;
    const left = waiting.reduce((sum, { fee, payload }) => sum - BigInt(fee) - BigInt(payload.amount), balance);
    const numbers = new Set(waiting.map((transfer) => transfer.nonce));
    let next = nonce;
    while (numbers.has(`${next}`)) next += 1n;
    return { address, balance: `${balance}`, pendingBalance: `${left}`, nonce: `${nonce}`, pendingNonce: `${next}` };
  }

  #transaction(txid) {
    const found = this.chain.get(txid);
    if (!found) return [404, { ok: false, error: "no block holds it" }];
    return [200, { transaction: { ...found, confirmations: this.#confirmations(found) } }];
  }

  #payment(reference, query) {
    const all = [...this.chain.values(), ...[...this.pool].map(([txid, transfer]) => ({ ...transfer, txid }))];
    const found = all.find(
      ({ payload }) =>
        payload.paymentReference === reference &&
        payload.recipient === query.get("recipient") &&
        payload.amount === query.get("amountBaseUnits"),
    );
    const terms = termsOf(reference, query);
    if (!found)
      return this.#here(Number(query.get("sinceHeight"))) ? [200, { payment: { ...terms, state: "unpaid" } }] : this.#gone();
    const confirmations = this.#confirmations(found);
    const state =
      confirmations >= Number(query.get("confirmations")) ? "confirmed" : confirmations ? "confirming" : "pending";
    return [200, { payment: { ...terms, state, txid: found.txid } }];
  }

  async #take(transfer) {
    const txid = hexOf(await txidOf(transfer, NETWORKS.devnet));
    if (this.chain.has(txid) || this.pool.has(txid)) return [200, { txid, state: "known" }];
    const { balance, nonce } = this.#account(transfer.senderAddress);
    if (BigInt(transfer.nonce) < BigInt(nonce))
      return refusal(`nonce ${transfer.nonce} is already used; the next one is ${nonce}`);
    const [replaced, other] = [...this.pool].find(
      ([, { senderAddress, nonce }]) => senderAddress === transfer.senderAddress && nonce === transfer.nonce,
    ) ?? [];
    if (other !== undefined && 10n * BigInt(transfer.fee) < 11n * BigInt(other.fee))
      return refusal(`nonce ${transfer.nonce} is taken by a waiting transfer`);
    if (BigInt(transfer.payload.amount) + BigInt(transfer.fee) > BigInt(balance))
      return refusal("the balance is short");
    const [least, amount] = [BigInt(this.consensus.accountMinimum), BigInt(transfer.payload.amount)];
    if (BigInt(balance) - amount - BigInt(transfer.fee) < least) return refusal("the sender keeps too little");
    if (BigInt(this.#account(transfer.payload.recipient).balance) + amount < least)
      return refusal("the recipient gets too little");
    if (replaced !== undefined) this.pool.delete(replaced);
    this.pool.set(txid, transfer);
    return [200, { txid, state: "accepted" }];
  }
}
