// The events of a run, read by pages as they are looked at and forgotten again. Sequences are gapless, so that the
// place of an event in the list is its sequence.

import { getSized } from './api.js';

// Events in a page, and the most characters of JSON that stay in memory.
const PAGE = 200;
const KEPT_CHARS = 8_000_000;

export class Events {
  // `changed` is called when more is known.
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.head = 0;
    this.trimmed = 0;
    this.pages = new Map();
    this.chars = 0;
    this.stopping = new AbortController();
  }

  // The event of this sequence if it is in memory.
  at(sequence) {
    const page = this.pages.get(Math.floor((sequence - 1) / PAGE));
    return page?.events[(sequence - 1) % PAGE];
  }

  // Sets how far the history goes.
  grow(head) {
    if (head <= this.head) return;
    this.head = head;
    this.changed();
  }

  // Takes an event as it became durable.
  push(event, chars) {
    const index = Math.floor((event.sequence - 1) / PAGE);
    const page = this.pages.get(index);
    if (page && !page.loads) {
      page.events[(event.sequence - 1) % PAGE] = event;
      page.chars += chars;
      this.chars += chars;
    }
    this.grow(event.sequence);
  }

  // Sees to it that these sequences are read.
  need(from, to) {
    for (let index = Math.floor((from - 1) / PAGE); index * PAGE < Math.min(to, this.head); index++) {
      const page = this.pages.get(index);
      const end = Math.min(this.head - index * PAGE, PAGE);
      if (page?.loads || page?.failed) continue;
      if (page) {
        // The one that was looked at last is forgotten last.
        this.pages.delete(index);
        this.pages.set(index, page);
        if (page.events.length >= end) continue;
      }
      this.load(index, page ?? { events: [], chars: 0 });
    }
  }

  async load(index, page) {
    page.loads = true;
    this.pages.set(index, page);
    try {
      // A page of long events is given in several parts.
      for (;;) {
        const after = index * PAGE + page.events.length;
        const left = PAGE - page.events.length;
        if (left <= 0) break;
        const path = `v1/runs/${this.run}/history?after=${after}&limit=${left}`;
        const [answer, chars] = await getSized(path, this.stopping.signal);
        this.trimmed = answer.trimmed_before ?? 0;
        for (const event of answer.events) page.events[event.sequence - 1 - index * PAGE] = event;
        page.chars += chars;
        this.chars += chars;
        if (answer.head > this.head) this.head = answer.head;
        if (!answer.events.length || !answer.next || answer.events.at(-1).sequence >= (index + 1) * PAGE) break;
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
      page.failed = error;
      setTimeout(() => {
        page.failed = null;
        this.changed();
      }, 3000);
    }
    page.loads = false;
    for (const [old, kept] of this.pages) {
      if (this.chars <= KEPT_CHARS || this.pages.size <= 2) break;
      if (kept.loads || old === index) continue;
      this.pages.delete(old);
      this.chars -= kept.chars;
    }
    this.changed();
  }

  stop() {
    this.stopping.abort();
    this.pages.clear();
  }
}

// What an event says in a line.
export function gist(event) {
  const name =
    event.activity ?? event.name ?? event.topic ?? event.workflow ?? event.change ?? event.request ?? undefined;
  const parts = [name];
  if (event.attempt) parts.push(`attempt ${event.attempt}`);
  if (event.id) parts.push(event.id);
  const wrong = event.failure?.message ?? event.failure?.kind ?? event.error?.message ?? event.error ?? event.reason;
  if (wrong) parts.push(typeof wrong === 'string' ? wrong : wrong.message ?? wrong.kind);
  for (const payload of [event.input, event.result, event.value, event.answer, event.details, event.state]) {
    if (payload?.text) parts.push(payload.text.slice(0, 80));
  }
  return parts.filter(part => part !== undefined && part !== null).join(' · ');
}

// Whether an event ends a run.
export const ends = kind => ['Completed', 'Failed', 'Cancelled', 'Terminated', 'TimedOut', 'ContinuedAsNew', 'Reset'].includes(kind);

// What colour an event's kind has.
export function tone(kind) {
  if (/Failed|Terminated|TimedOut|Parked/.test(kind)) return 'bad';
  if (/Cancel/.test(kind)) return 'warn';
  if (/Completed|Fired|Ended|Published|Settled|Sent|Resumed/.test(kind)) return 'good';
  if (/Signal|Update/.test(kind)) return 'told';
  return '';
}
