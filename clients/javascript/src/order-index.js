// The rows of a store of open orders in memory, found by reference, by a height and by a time.

/** A binary heap of rows by a number, the least first, from which any row can be taken out. */
class Heap {
  #items = [];
  #places = new Map();

  #put(place, item) {
    this.#items[place] = item;
    this.#places.set(item.row.reference, place);
  }

  delete(reference) {
    const place = this.#places.get(reference);
    if (place === undefined) return;
    this.#places.delete(reference);
    const last = this.#items.pop();
    if (place < this.#items.length) this.#settle(place, last);
  }

  set(key, row) {
    this.delete(row.reference);
    if (key !== null) this.#settle(this.#items.length, { key, row });
  }

  /** Put an item where it belongs, from a place that is free. */
  #settle(start, item) {
    let place = start;
    for (let above; place > 0 && this.#items[(above = (place - 1) >> 1)].key > item.key; place = above)
      this.#put(place, this.#items[above]);
    for (let below; (below = this.#lesserBelow(place)) < this.#items.length; place = below) {
      if (this.#items[below].key >= item.key) break;
      this.#put(place, this.#items[below]);
    }
    this.#put(place, item);
  }

  #lesserBelow(place) {
    const [left, right] = [2 * place + 1, 2 * place + 2];
    return this.#items[right]?.key < this.#items[left]?.key ? right : left;
  }

  /** The rows whose number is at most this. */
  *upTo(most) {
    const places = [0];
    for (let place; (place = places.pop()) !== undefined; ) {
      const item = this.#items[place];
      if (item === undefined || item.key > most) continue;
      yield item.row;
      places.push(2 * place + 1, 2 * place + 2);
    }
  }
}

/** Rows by reference; no question looks at more of them than it gives. */
export class OrderIndex {
  #rows = new Map();
  #awaits = new Heap();
  #due = new Heap();
  /** By the negative height of the highest transfer. */
  #top = new Heap();

  get size() {
    return this.#rows.size;
  }

  all() {
    return this.#rows.values();
  }

  has(reference) {
    return this.#rows.has(reference);
  }

  get(reference) {
    return this.#rows.get(reference);
  }

  set(row) {
    this.#rows.set(row.reference, row);
    this.#awaits.set(row.awaits, row);
    this.#due.set(row.due, row);
    this.#top.set(row.top === null ? null : -row.top, row);
  }

  delete(reference) {
    this.#rows.delete(reference);
    for (const heap of [this.#awaits, this.#due, this.#top]) heap.delete(reference);
  }

  /** The first rows by reference of those to be looked at, behind the reference `after`. */
  affected({ height, now, above, after, limit }) {
    const found = new Map();
    for (const rows of [this.#awaits.upTo(height), this.#due.upTo(now), this.#top.upTo(-above - 1)])
      for (const row of rows) if (row.reference > after) found.set(row.reference, row);
    const rows = [...found.values()].sort((one, other) => (one.reference < other.reference ? -1 : 1));
    return rows.slice(0, limit);
  }
}
