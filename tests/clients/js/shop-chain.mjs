// A chain and a mempool without a node, and the feed of a shop's address as svcd tells it, for the tests of `Orders`.

import { createHash } from "node:crypto";

export const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
export const BUYER = "svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt";
export const START = 1_795_170_000_000;

const SVC = 100_000_000n;
const coins = (amount) => {
  const rest = (BigInt(amount) % SVC).toString().padStart(8, "0").replace(/0+$/, "");
  return `${BigInt(amount) / SVC}${rest && "."}${rest}`;
};
const hashOf = (number) => number.toString(16).padStart(64, "0");

/** The chain of the stories in tests/vectors/order_events.json, and what its feed tells. */
export class ShopChain {
  now = START;
  /** By how many milliseconds the clock of the shop is wrong. */
  ahead = 0;
  /** Blocks by height: `{ hash, time, transfers }`, of which the first is the genesis block. */
  blocks = [];
  /** Waiting transfers by name, in the order of their arrival. */
  mempool = new Map();
  synced = true;
  /** At most so many transfers are looked at for one answer. */
  rows = Infinity;
  #given;
  #made = new Map();
  #count = 0;

  /** `given` has the transfers of a story by name. */
  constructor(given = {}) {
    this.#given = given;
    this.add([], this.now - 2000);
  }

  get height() {
    return this.blocks.length - 1;
  }

  /** The transfer of this name. */
  transfer(name) {
    if (!this.#made.has(name)) {
      const { reference = null, amount = "1", elsewhere = false, replaces = null } = this.#given[name];
      const txid = hashOf(2 ** 40 + this.#made.size);
      this.#made.set(name, { name, txid, reference, amount, elsewhere: elsewhere || replaces !== null, replaces });
    }
    return this.#made.get(name);
  }

  given(name) {
    return this.#given[name];
  }

  /** What only one transfer on the chain can have. */
  nonce(name) {
    return this.transfer(name).replaces ?? name;
  }

  give(name, transfer) {
    this.#given[name] = transfer;
  }

  /** The name of the transfer with this txid. */
  name(txid) {
    return [...this.#made.values()].find((each) => each.txid === txid).name;
  }

  add(names, time = this.now) {
    this.blocks.push({ hash: hashOf(++this.#count), time, names });
    for (const name of names) this.#spend(name);
  }

  /** What has the nonce of a transfer leaves the mempool. */
  #spend(name) {
    const spender = this.nonce(name);
    for (const other of this.mempool.keys())
      if ((this.nonce(other)) === spender) this.mempool.delete(other);
  }

  wait(name) {
    this.#spend(name);
    this.mempool.set(name, this.now);
  }

  /** Replace the newest blocks by others; their transfers go back to the mempool unless their nonce is used. */
  reorganise(count, blocks) {
    const undone = this.blocks.splice(-count);
    const last = this.blocks.at(-1).time;
    for (const [place, names] of blocks.entries()) this.add(names, last + 1000 * (place + 1));
    const spent = new Set(this.blocks.flatMap(({ names }) => names).map((name) => this.nonce(name)));
    for (const name of undone.flatMap(({ names }) => names))
      if (!spent.has(this.nonce(name))) this.mempool.set(name, this.now);
  }

  #told(name) {
    const { txid, reference, amount } = this.transfer(name);
    return { txid, reference, amount, amountSvc: coins(amount), sender: BUYER };
  }

  /** The transfers in the blocks from a height on, each with its place. */
  #transfers(from) {
    return this.blocks.slice(Math.max(from, 0)).flatMap(({ hash, time, names }, at) =>
      names.map((name, position) => {
        const block = { height: String(Math.max(from, 0) + at), hash, time: String(time) };
        return { type: "payment", ...this.#told(name), ...block, position };
      }),
    );
  }

  /** The answer of the feed; a cursor has height, position and the hashes of the blocks up to there. */
  feed({ after = null, limit = 100, sinceHeight = 0 } = {}) {
    let [height, position, entries] = [-1, Infinity, []];
    if (after !== null) {
      const [at, hashes] = [after.split(" ")[0].split("."), after.split(" ")[1].split(",")];
      [height, position] = [Number(at[0]), Number(at[1])];
      const fork = hashes.findLastIndex((part, place) => this.blocks[place]?.hash.endsWith(part));
      if (fork < height) {
        [height, position] = [fork, 65_535];
        entries = [{ type: "rewind", height: String(fork), hash: this.blocks[fork].hash }];
      }
    }
    if (height < sinceHeight - 1) [height, position] = [sinceHeight - 1, 65_535];
    const further = this.#transfers(height).filter((each) => Number(each.height) > height || each.position > position);
    const found = further.slice(0, Math.min(limit - entries.length, this.rows));
    let end = [this.height, 65_535];
    if (found.length < further.length) end = [Number(found.at(-1).height), found.at(-1).position];
    entries.push(...found.filter(({ txid }) => !this.transfer(this.name(txid)).elsewhere));
    const told = new Set(entries.map(({ txid }) => txid));
    const pending = [...this.mempool]
      .filter(([name]) => !this.transfer(name).elsewhere && !told.has(this.transfer(name).txid))
      .map(([name, arrival]) => ({ ...this.#told(name), arrivalTime: String(arrival) }))
      .slice(0, 1000);
    const hashes = this.blocks.slice(0, end[0] + 1).map(({ hash }) => hash.slice(-8));
    const waiting = createHash("sha256").update(pending.map(({ txid }) => txid).join()).digest("hex");
    const tip = { height: String(this.height), hash: this.blocks.at(-1).hash };
    const next = `${end.join(".")} ${hashes.join(",")} ${waiting}`;
    return { entries, pending, next, tip, node: { ...tip, synced: this.synced } };
  }
}
