// One output stream of a run: what its activities send while they work, newest first, with the beginning and the end of
// each attempt.

import { html, nothing } from './vendor/lit-html.js';
import { BASE, get } from './api.js';
import { parse } from './exact.js';
import { count } from './format.js';
import { KEPT_LEN, Latest } from './latest.js';
import { live } from './live.js';
import { ui } from './ui.js';
import { value } from './value.js';

// When a stream that was refused is asked for again.
const REFUSED_MS = 3000;
const TONES = { began: 'told', succeeded: 'good', failed: 'bad', lost: 'bad', gap: 'bad', cancelled: 'warn' };

export class Output {
  constructor(run, name) {
    this.run = run;
    this.name = name;
    this.chunks = 0;
    this.attempts = 0;
    this.items = new Latest({
      label: `Output ${name}`,
      className: 'events output',
      row: item => this.row(item),
      active: item => this.choose(item),
    });
    this.end = live.on(what => what === 'leads' && this.follow());
    this.onSeen = () => this.follow();
    document.addEventListener('visibilitychange', this.onSeen);
    this.follow();
  }

  get address() {
    const after = this.last === undefined ? '' : `?after=${encodeURIComponent(this.last)}`;
    return new URL(`v1/runs/${this.run}/streams/${encodeURIComponent(this.name)}${after}`, BASE);
  }

  // The tab that leads has the stream while it is looked at. It begins with what is kept, and goes on behind the last item.
  follow() {
    if (document.hidden || !live.leads) return this.close();
    if (this.stream || this.asks || this.ended || this.over) return;
    clearTimeout(this.later);
    const stream = (this.stream = new EventSource(this.address));
    stream.onopen = () => this.say(null);
    stream.onmessage = event => this.take('chunk', event);
    for (const kind of ['began', 'ended', 'gap']) stream.addEventListener(kind, event => this.take(kind, event));
    stream.addEventListener('end', () => this.finish());
    stream.addEventListener('problem', ({ data }) => this.say(parse(data).detail));
    stream.onerror = () => {
      this.say('The program does not answer.');
      if (stream.readyState === EventSource.CLOSED) this.ask();
    };
    ui.draw();
  }

  // A browser does not tell why it was given no stream: asked again by other means, the program does.
  async ask() {
    this.close();
    const asks = (this.asks = new AbortController());
    try {
      const response = await fetch(this.address, { cache: 'no-store', credentials: 'same-origin', signal: asks.signal });
      if (response.status === 204) return this.finish();
      if (!response.ok) this.say(parse(await response.text()).detail);
    } catch {
      // That there is no answer has been said.
    } finally {
      // A stream that is given after all is not read here.
      asks.abort();
      this.asks = null;
    }
    if (!this.over) this.later = setTimeout(() => this.follow(), REFUSED_MS);
  }

  // There will be no more.
  finish() {
    this.ended = true;
    this.trouble = null;
    this.close();
  }

  say(trouble) {
    this.trouble = trouble;
    ui.draw();
  }

  take(kind, { data, lastEventId }) {
    this.last = lastEventId || this.last;
    if (kind === 'chunk') this.chunks++;
    if (kind === 'began') this.attempts++;
    this.items.add({ ...parse(data), kind, chars: data.length });
    ui.draw();
  }

  choose(item) {
    this.chosen = item;
    ui.draw();
  }

  close() {
    this.stream?.close();
    this.stream = null;
    ui.draw();
  }

  stop() {
    this.over = true;
    this.end();
    document.removeEventListener('visibilitychange', this.onSeen);
    clearTimeout(this.later);
    this.asks?.abort();
    this.stream?.close();
    this.items.rows.stop();
  }

  row(item) {
    if (!item) return nothing;
    const { kind, operation, attempt, ended } = item;
    const by = kind === 'gap' ? '' : `operation ${operation}, attempt ${attempt}`;
    return html`<span class="attempt">${by}</span><span class="kind ${TONES[ended ?? kind] ?? ''}">${ended ?? (kind === 'chunk' ? '' : kind)}</span
      ><span class="gist">${this.gist(item)}</span>`;
  }

  gist({ kind, attempt, chunk, lost }) {
    if (kind === 'chunk') return chunk?.text?.slice(0, 200) ?? chunk?.unreadable;
    if (kind === 'gap') return lost === null ? 'items are missing, it is not known how many' : `${count(lost)} items are missing`;
    if (kind === 'began' && attempt > 1) return 'the step is tried again: what earlier attempts have sent led to nothing';
    return '';
  }

  view() {
    const { chosen } = this;
    const state = this.ended ? 'It has ended.' : this.stream ? 'It is read as it comes.' : live.leads ? '' : 'Another tab reads now; this one goes on when it is looked at.';
    return html`${this.trouble ? html`<p class="trouble" role="alert">${this.trouble}</p>` : nothing}
      <p class="quiet" role="status">${count(this.chunks)} ${this.chunks === 1 ? 'chunk' : 'chunks'} of ${count(this.attempts)} ${this.attempts === 1 ? 'attempt' : 'attempts'}, newest first; the latest ${count(KEPT_LEN)} are kept. ${state}</p>
      ${this.items.items.length ? this.items.rows.element : html`<p class="empty">Nothing has been sent to ${this.name}, or nothing is kept of it.</p>`}
      ${chosen?.kind === 'chunk'
        ? html`<div class="detail" aria-live="polite"><dl class="facts">
            <div><dt>Operation</dt><dd>${chosen.operation}</dd></div>
            <div><dt>Attempt</dt><dd>${chosen.attempt}</dd></div>
            <div><dt>Chunk</dt><dd>${value(chosen.chunk, `${this.name}-${chosen.position}`)}</dd></div>
          </dl></div>`
        : nothing}`;
  }
}

// The part of a run's page that shows one of its output streams, once one is chosen, or named before anything is sent to it.
// `shown` is told which stream is shown, or `null`.
export class Outputs {
  constructor(run, name, shown) {
    this.run = run;
    this.shown = shown;
    this.names = [];
    this.look();
    if (name) this.open(name);
  }

  // Which streams there are. More may come while the run goes on: then it is looked again.
  async look() {
    try {
      const { streams } = await get(`v1/runs/${this.run}/streams`);
      this.names = streams;
      this.trouble = null;
    } catch (error) {
      this.trouble = error.message;
    }
    ui.draw();
  }

  choice({ name, durable, sent_to }) {
    const about = [durable ? 'durable' : 'in memory', ...(sent_to ? ['being sent'] : [])].join(', ');
    return html`<li><button type="button" aria-pressed=${this.output?.name === name ? 'true' : 'false'} @click=${() => this.open(name)}>${name}</button> <span class="quiet">${about}</span></li>`;
  }

  open(name) {
    this.output?.stop();
    this.output = name ? new Output(this.run, name) : null;
    this.shown(name);
    ui.draw();
  }

  stop() {
    this.output?.stop();
    this.output = null;
  }

  view() {
    const { output, names, trouble } = this;
    return html`${trouble ? html`<p class="trouble" role="alert">${trouble}</p>` : nothing}
      ${names.length ? html`<ul class="streams" aria-label="Output streams that were sent to">${names.map(one => this.choice(one))}</ul>` : nothing}
      <form class="bar-line" @submit=${event => {
        event.preventDefault();
        this.open(new FormData(event.target).get('stream'));
      }}><span><label for="stream-name">Stream</label> <input id="stream-name" name="stream" required maxlength="255" spellcheck="false" autocomplete="off" value=${output?.name ?? ''}>
        <button type="submit">Follow</button> <button type="button" @click=${() => this.look()}>Look again</button>${output ? html` <button type="button" @click=${() => this.open(null)}>Leave</button>` : nothing}</span></form>
      ${output ? output.view() : html`<p class="quiet">${names.length ? 'Choose a stream, or name one,' : 'Nothing has been sent yet. Name a stream'} to see what activities send to it while they work.</p>`}`;
  }
}
