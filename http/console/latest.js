// The latest of what comes, newest first, in rows: as many, and as large together, as is bounded here.

import { Rows } from './rows.js';

export const KEPT_LEN = 1000;
const KEPT_CHARS = 4_000_000;

export class Latest {
  // `row(item)` gives what stands in a row, `active(item)` is called when another one is active.
  constructor({ row, active, ...rows }) {
    this.clear();
    this.rows = new Rows({
      ...rows,
      row: index => row(this.items[index]),
      active: index => active(this.items[index]),
    });
  }

  // Adds an item, whose size is told by its `chars`.
  add(item) {
    this.items.unshift(item);
    this.chars += item.chars;
    while (this.items.length > KEPT_LEN || (this.chars > KEPT_CHARS && this.items.length > 1)) {
      this.chars -= this.items.pop().chars;
    }
    // The active row goes along with its item.
    if (this.rows.at >= 0) this.rows.at = Math.min(this.rows.at + 1, this.items.length - 1);
    this.rows.resize(this.items.length);
  }

  // Keeps the items of which this holds. No row is active then.
  keep(holds) {
    const kept = this.items.filter(holds);
    this.clear();
    this.items = kept;
    this.chars = kept.reduce((chars, item) => chars + item.chars, 0);
    this.rows.resize(kept.length);
  }

  clear() {
    this.items = [];
    this.chars = 0;
    if (!this.rows) return;
    this.rows.at = -1;
    this.rows.resize(0);
  }
}
