// A list of any length of which only the visible rows exist. All rows have one height, `--row` of the style sheet. It
// is a listbox: arrows, page keys, Home and End move the active row.

import { html, render } from './vendor/lit-html.js';

// Browsers bound how high an element may be; beyond this a step of the scroll bar is more than one row.
const HEIGHT_MAX = 8_000_000;
// Rows above and below the visible ones.
const MORE = 6;

let made = 0;

export class Rows {
  // `row(index)` gives what stands in a row, `active(index)` is called when another row is active, and
  // `seen(first, last)` before rows are drawn.
  constructor({ label, className = '', row, active = () => {}, seen = () => {} }) {
    this.row = row;
    this.onActive = active;
    this.seen = seen;
    this.len = 0;
    this.at = -1;
    this.name = `rows-${made++}`;
    this.element = document.createElement('div');
    this.element.className = `rows ${className}`;
    this.element.tabIndex = 0;
    this.element.setAttribute('role', 'listbox');
    this.element.setAttribute('aria-label', label);
    this.space = document.createElement('div');
    this.window = document.createElement('div');
    this.window.className = 'window';
    for (const part of [this.space, this.window]) part.setAttribute('role', 'presentation');
    this.space.append(this.window);
    this.element.append(this.space);
    this.element.addEventListener('scroll', () => this.later(), { passive: true });
    this.element.addEventListener('keydown', event => this.key(event));
    this.element.addEventListener('click', event => this.click(event));
    this.sizes = new ResizeObserver(() => this.later());
    this.sizes.observe(this.element);
  }

  // Sets how many rows there are. A list that stands at its end stays there.
  resize(len, follow = false) {
    if (len === this.len) return this.later();
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    const atEnd = this.len === 0 || scrollTop + clientHeight >= scrollHeight - 4;
    this.len = len;
    this.measure();
    if (follow && atEnd) this.element.scrollTop = this.element.scrollHeight;
    this.later();
  }

  measure() {
    this.height = parseFloat(getComputedStyle(this.element).getPropertyValue('--row')) || 32;
    this.total = Math.min(this.len * this.height, HEIGHT_MAX);
    this.space.style.height = `${this.total}px`;
    this.element.style.height = `${Math.max(this.height, this.total) + 2}px`;
  }

  later() {
    if (this.waits || this.over) return;
    this.waits = requestAnimationFrame(() => {
      this.waits = null;
      this.draw();
    });
  }

  // The first visible row, in parts of a row.
  first() {
    const { scrollTop, clientHeight } = this.element;
    if (this.total < HEIGHT_MAX) return scrollTop / this.height;
    const scrolled = scrollTop / Math.max(1, this.total - clientHeight);
    return scrolled * Math.max(0, this.len - clientHeight / this.height);
  }

  draw() {
    if (!this.element.isConnected) return;
    this.measure();
    const { clientHeight, scrollTop } = this.element;
    const first = this.first();
    const from = Math.max(0, Math.floor(first) - MORE);
    const to = Math.min(this.len, Math.ceil(first + clientHeight / this.height) + MORE);
    this.seen(from, to);
    this.window.style.transform = `translateY(${scrollTop - (first - from) * this.height}px)`;
    const drawn = [];
    for (let index = from; index < to; index++) {
      drawn.push(html`<div class="row ${index === this.at ? 'active' : ''}" role="option" id="${this.name}-${index}"
        aria-posinset=${index + 1} aria-setsize=${this.len} aria-selected=${index === this.at ? 'true' : 'false'}
        >${this.row(index)}</div>`);
    }
    render(drawn, this.window);
    if (this.at >= from && this.at < to) this.element.setAttribute('aria-activedescendant', `${this.name}-${this.at}`);
    else this.element.removeAttribute('aria-activedescendant');
  }

  move(index) {
    if (!this.len) return;
    this.at = Math.max(0, Math.min(this.len - 1, index));
    const visible = this.element.clientHeight / this.height;
    const first = this.first();
    const step = this.total < HEIGHT_MAX ? this.height : this.total / this.len;
    if (this.at < first) this.element.scrollTop = this.at * step;
    else if (this.at + 1 > first + visible) this.element.scrollTop = (this.at + 1 - visible) * step;
    this.onActive(this.at);
    this.later();
  }

  key(event) {
    if (event.target !== this.element || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const to = {
      ArrowDown: this.at + 1,
      ArrowUp: this.at - 1,
      PageDown: this.at + page,
      PageUp: this.at - page,
      Home: 0,
      End: this.len - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(to);
  }

  click(event) {
    const row = event.target.closest('[role=option]');
    if (row && !event.target.closest('a, button')) this.move(Number(row.id.slice(this.name.length + 1)));
  }

  stop() {
    this.over = true;
    this.sizes.disconnect();
  }
}
