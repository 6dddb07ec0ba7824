// What the parts of the page share: drawing again, saying something, and who the caller is.

import { html, nothing } from './vendor/lit-html.js';

export const ui = {
  // 'operator', 'reader' or, before it is known, null.
  role: null,
  // Draws the page again before the next frame; set by app.js.
  draw: () => {},
  // Tells those who listen rather than look.
  say(text) {
    document.getElementById('said').textContent = text;
  },
};

export const operates = () => ui.role === 'operator';

// The address of a part of the page, which stands behind the #.
export function link(path, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const query = new URLSearchParams(kept).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${query && `?${query}`}`;
}

export const trouble = error =>
  error
    ? html`<div class="trouble" role="alert">
        <strong>${error.title ?? 'something in this page went wrong'}</strong>
        <span>${error.message}</span>${error.advice ? html`<span class="quiet">${error.advice}</span>` : nothing}
      </div>`
    : nothing;

const MARKS = {
  running: '●',
  parked: '■',
  paused: '‖',
  delayed: '◷',
  'not-registered': '▲',
  finished: '○',
  completed: '✓',
  failed: '✗',
  cancelled: '⊘',
  terminated: '⊗',
  'timed-out': '⧗',
  continued: '→',
};

// A status has a mark beside its colour and its word.
export const status = word =>
  html`<span class="status ${word}"><span aria-hidden="true">${MARKS[word] ?? '·'}</span> ${word}</span>`;

// Asks for something again and again while the page is looked at, and once at once. A call waits for the one before.
export class Repeat {
  constructor(ms, task) {
    this.ms = ms;
    this.task = task;
    this.over = false;
    this.onSeen = () => !document.hidden && this.now();
    document.addEventListener('visibilitychange', this.onSeen);
    this.now();
  }

  async now() {
    clearTimeout(this.timer);
    if (this.over || document.hidden) return;
    if (this.runs) {
      this.again = true;
      return;
    }
    this.runs = true;
    let pause = this.ms;
    try {
      await this.task();
    } catch (error) {
      if (error.name !== 'AbortError') pause = Math.max(pause, 3000);
    }
    this.runs = false;
    if (this.over) return;
    if (this.again) {
      this.again = false;
      this.timer = setTimeout(() => this.now(), Math.min(250, this.ms));
    } else this.timer = setTimeout(() => this.now(), pause);
  }

  stop() {
    this.over = true;
    clearTimeout(this.timer);
    document.removeEventListener('visibilitychange', this.onSeen);
  }
}
