// What a run has done and does, a row for each operation, as bars over time: of the events of one window.

import { html, nothing, svg } from './vendor/lit-html.js';
import { get } from './api.js';
import { ends } from './events.js';
import { span, time } from './format.js';
import { Rows } from './rows.js';

// Events in a window: a page of the program's.
const WINDOW = 1000;

// The operations of these events. Each has a `label`, `kind`, where it begins (`from`) and ends (`to`, if it has), and
// `parts` of it: attempts and pauses.
function operations(events) {
  const all = new Map();
  const list = [];
  const begin = (event, kind, label, more = {}) => {
    const one = { kind, label, from: event.at_us, parts: [], sequence: event.sequence, ...more };
    list.push(one);
    if (event.operation !== undefined) all.set(event.operation, one);
    return one;
  };
  // An operation that was begun before the window.
  const known = event => all.get(event.operation) ?? begin(event, 'earlier', `operation ${event.operation}`, { earlier: true });
  const point = (event, kind, label) => Object.assign(begin(event, kind, label), { to: event.at_us, point: true });
  const end = (event, tone) => Object.assign(known(event), { to: event.at_us, tone });
  let parked = null;
  for (const event of events) {
    switch (event.kind) {
      case 'Started':
        point(event, 'start', `start · ${event.workflow}`);
        break;
      case 'ActivityScheduled':
        begin(event, 'activity', event.activity);
        break;
      case 'AttemptStarted':
        known(event).parts.push({ from: event.at_us, attempt: event.attempt });
        break;
      case 'AttemptHeartbeat':
        known(event);
        break;
      case 'AttemptFailed': {
        const one = known(event);
        const part = one.parts.at(-1);
        if (part && part.to === undefined && part.attempt === event.attempt) Object.assign(part, { to: event.at_us, tone: 'bad' });
        else one.parts.push({ from: part?.pause ?? one.from, to: event.at_us, tone: 'bad', attempt: event.attempt });
        one.parts.at(-1).pause = event.retry_at_us ?? undefined;
        one.failures = (one.failures ?? 0) + 1;
        break;
      }
      case 'ActivityCompleted':
      case 'ActivityFailed': {
        const one = end(event, event.kind === 'ActivityFailed' ? 'bad' : 'good');
        const part = one.parts.at(-1);
        if (part && part.to === undefined) Object.assign(part, { to: event.at_us, tone: one.tone });
        else if (part) one.parts.push({ from: part.pause ?? part.to, to: event.at_us, tone: one.tone });
        break;
      }
      case 'TimerStarted':
        begin(event, 'timer', `timer until ${time(event.deadline_us)}`);
        break;
      case 'ChildScheduled':
        begin(event, 'child', event.workflow, { child: event.id });
        break;
      case 'ChildStarted':
        known(event).run = event.run;
        break;
      case 'ChildCancelRequested':
        // Without its operation, which is the child's.
        point({ ...event, operation: undefined }, 'warn', `cancel of ${known(event).label} · ${event.reason}`);
        break;
      case 'ChildEnded':
      case 'SignalSent':
      case 'Published':
      case 'PromiseSettled':
        end(event, event.failure || event.error ? 'bad' : 'good');
        break;
      case 'TimerFired':
        end(event, 'good');
        break;
      case 'OperationCancelled':
        end(event, 'warn');
        break;
      case 'SignalScheduled':
        begin(event, 'signal', `signal ${event.name} to ${event.id}`);
        break;
      case 'PublishScheduled':
        begin(event, 'publish', `publish to ${event.topic}`);
        break;
      case 'PromiseMade':
        begin(event, 'promise', 'promise');
        break;
      case 'SignalReceived':
      case 'RunSignalReceived':
        point(event, 'told', `signal ${event.name}`);
        break;
      case 'UpdateAccepted':
        all.set(`update ${event.request}`, begin(event, 'told', `update ${event.name}`));
        break;
      case 'UpdateAnswered': {
        const one = all.get(`update ${event.request}`);
        if (one) Object.assign(one, { to: event.at_us, tone: event.error ? 'bad' : 'good' });
        break;
      }
      case 'CancelRequested':
        point(event, 'warn', `cancel · ${event.reason}`);
        break;
      case 'Parked':
        if (parked && parked.to === undefined) parked.to = event.at_us;
        parked = begin(event, 'parked', `parked · ${event.reason?.kind}`);
        break;
      case 'Resumed':
        if (parked) Object.assign(parked, { to: event.at_us, tone: 'good' });
        break;
      case 'Checkpointed':
        point(event, 'note', 'checkpoint');
        break;
      default:
        if (ends(event.kind)) point(event, event.kind === 'Completed' ? 'good' : 'bad', event.kind.toLowerCase());
    }
  }
  return list;
}

const WORDS = {
  activity: 'activity',
  timer: 'timer',
  child: 'child',
  signal: 'signal',
  publish: 'publish',
  promise: 'promise',
  told: 'received',
  parked: 'parked',
  wait: 'waits',
};

export class Timeline {
  // `shared` are the events of the run, of which this knows how many there are; `active(sequence)` is told which is chosen.
  constructor(run, active) {
    this.run = run;
    this.after = null;
    this.events = [];
    this.list = [];
    this.waits = [];
    this.head = 0;
    this.rows = new Rows({
      label: 'Timeline of the run',
      className: 'lanes',
      row: index => this.row(this.list[index]),
      active: index => active(this.list[index].sequence),
    });
    this.stopping = new AbortController();
  }

  // Says how far the history goes, whether it goes on, and for what the run's code waits.
  async set(head, live, waits) {
    this.live = live;
    this.waits = waits;
    const newest = this.after === null;
    const moved = head !== this.head;
    this.head = head;
    if (newest && moved) await this.load();
    else this.build();
  }

  // Shows the window behind this sequence; null is the newest.
  async show(after) {
    this.after = after;
    this.events = [];
    await this.load();
  }

  get from() {
    return this.after ?? Math.max(0, this.head - WINDOW);
  }

  async load() {
    if (this.loads) {
      this.again = true;
      return;
    }
    this.loads = true;
    do {
      this.again = false;
      const from = this.from;
      this.events = this.events.filter(event => event.sequence > from);
      try {
        for (;;) {
          const after = Math.max(from, this.events.at(-1)?.sequence ?? 0);
          const left = from + WINDOW - after;
          if (left <= 0 || after >= this.head) break;
          const page = await get(`v1/runs/${this.run}/history?after=${after}&limit=${Math.min(left, WINDOW)}`, this.stopping.signal);
          if (!page.events.length) break;
          // Payloads are not shown here, and would fill the memory.
          for (const { input, result, value, state, details, answer, signals, ...event } of page.events) this.events.push(event);
        }
      } catch (error) {
        if (error.name !== 'AbortError') this.again = false;
      }
    } while (this.again);
    this.loads = false;
    this.build();
  }

  build() {
    this.list = operations(this.events);
    if (this.after === null) {
      for (const wait of this.waits) {
        this.list.push({ kind: 'wait', label: wait.name ? `signal ${wait.name}` : wait.kind.replace('-', ' '), from: wait.since_us, parts: [], sequence: this.head });
      }
    }
    this.begin = this.events[0]?.at_us ?? 0;
    const last = this.events.at(-1)?.at_us ?? 0;
    this.end = this.live && this.after === null ? Math.max(last, Date.now() * 1000) : last;
    if (this.end <= this.begin) this.end = this.begin + 1;
    this.rows.resize(this.list.length, true);
    this.rows.later();
  }

  x(at) {
    return Math.max(0, Math.min(1000, ((at - this.begin) / (this.end - this.begin)) * 1000));
  }

  bar(from, to, className) {
    const x = this.x(from);
    const width = Math.max(3, this.x(to ?? this.end) - x);
    return svg`<rect class=${className} x=${Math.min(x, 997)} y="5" width=${width} height="10" rx="1"></rect>`;
  }

  row(one) {
    if (!one) return nothing;
    const open = one.to === undefined;
    const length = one.point ? time(one.from) : span((one.to ?? this.end) - one.from);
    const word = WORDS[one.kind];
    return html`<span class="lane-label"><span class="lane-name">${one.label}${one.child ? ` ${one.child}` : ''}</span> <span class="quiet">${word && !one.label.startsWith(word) ? `${word} · ` : ''}${
      one.failures ? `${one.failures} failed · ` : ''
    }${length}${open ? ' …' : ''}</span></span>
    <svg class="bars" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">
      ${this.bar(one.from, one.to, `bar ${one.kind} ${one.parts.length ? 'faint' : one.tone ?? (open ? 'open' : '')}`)}
      ${one.parts.slice(-40).map(part => this.bar(part.from, part.to, `bar ${part.tone ?? 'open'}`))}
    </svg>`;
  }

  view() {
    const [from, to] = [this.from + 1, Math.min(this.head, this.from + WINDOW)];
    return html`<div class="bar-line">
        <span class="quiet">${
          this.begin ? html`${time(this.begin)} to ${this.live && this.after === null ? 'now' : time(this.end)}, ${span(this.end - this.begin)}` : nothing
        }</span>
        ${this.head > WINDOW
          ? html`<span class="buttons">
              <button type="button" class="small" ?disabled=${from <= 1} @click=${() => this.show(Math.max(0, this.from - WINDOW))}>Earlier</button>
              <span class="quiet">events ${from} to ${to} of ${this.head}</span>
              <button type="button" class="small" ?disabled=${to >= this.head} @click=${() =>
                this.show(this.from + 2 * WINDOW >= this.head ? null : this.from + WINDOW)}>Later</button>
            </span>`
          : nothing}
      </div>
      ${this.rows.element}`;
  }

  stop() {
    this.stopping.abort();
    this.rows.stop();
  }
}
