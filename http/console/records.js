// One durable topic: its latest records and those that come, newest first, and how far behind its subscriptions are.

import { html, nothing } from './vendor/lit-html.js';
import { asWritten, BASE, get, post } from './api.js';
import { ask } from './dialog.js';
import { parse } from './exact.js';
import { ago, bytes, count, exactTime, span, time } from './format.js';
import { Latest } from './latest.js';
import { live } from './live.js';
import { isOfUndelivered, managing, removing, sendingBack } from './managing.js';
import { Trace } from './trace.js';
import { link, operates, Repeat, trouble, ui } from './ui.js';
import { value } from './value.js';

// How many records are read when the page is opened.
const BEGIN_LEN = 200;
// How many subscriptions are shown.
const SHOWN = 100;
// The topics are asked for when the size of their records has changed, and every 15th time at least: the program reads
// its store for their times.
const ASK_EACH = 15;
// When a stream that was refused is asked for again.
const REFUSED_MS = 3000;

// What is kept of a durable topic, in a few words. The largest numbers are told for what has no bound.
export function retention({ age_max_us, bytes_max, len_max, unread_bytes_max }) {
  const is = bound => Number(bound) < 1e18;
  const bounds = [is(age_max_us) && span(age_max_us), is(bytes_max) && bytes(bytes_max), is(len_max) && `${count(len_max)} records`];
  const kept = bounds.filter(Boolean).join(', ');
  if (!kept) return 'no bound';
  if (unread_bytes_max === 0) return kept;
  return `${kept}; what subscriptions have not read, ${is(unread_bytes_max) ? `up to ${bytes(unread_bytes_max)}` : 'without a bound'}`;
}

// What the program has told of its topics.
export class KnownTopics {
  // Has them asked for the next time, whatever the size.
  forget() {
    this.size = undefined;
  }

  // Asks for them, if they may have changed.
  async renew() {
    const size = live.stats?.journal.topic_bytes;
    if (this.durable && size === this.size && this.asked < ASK_EACH) return void this.asked++;
    const { topics, durable } = await get('v1/topics');
    this.size = size;
    this.asked = 0;
    this.durable = durable;
    this.exposed = new Set(topics.map(topic => topic.name));
  }
}

export class Records {
  constructor(route) {
    [, this.topic] = route.path;
    this.title = this.topic;
    this.lost = 0;
    this.known = new KnownTopics();
    this.path = `v1/topics/${encodeURIComponent(this.topic)}`;
    this.records = new Latest({
      label: `Records of ${this.topic}`,
      className: 'events',
      row: record => this.row(record),
      active: record => this.choose(record),
    });
    this.end = live.on(what => what === 'leads' && this.follow());
    this.repeat = new Repeat(2000, () => this.load());
  }

  async load() {
    try {
      const [{ subscriptions, next }] = await Promise.all([get(`${this.path}/subscriptions?limit=${SHOWN}`), this.known.renew()]);
      if (this.over) return;
      this.told = this.known.durable.find(topic => topic.name === this.topic);
      this.subscriptions = subscriptions;
      this.more = Boolean(next);
      this.error = null;
      this.follow();
    } catch (error) {
      this.error = error;
    }
    ui.draw();
  }

  // The tab that leads has the stream. It begins with the latest records, and goes on behind the last that was seen.
  follow() {
    if (!live.leads) return this.close();
    if (this.stream || this.over || !this.told?.is_exposed) return;
    const from = this.last === undefined ? `from=last:${BEGIN_LEN}` : `after=${encodeURIComponent(this.last)}`;
    const stream = (this.stream = new EventSource(new URL(`${this.path}/tail?${from}`, BASE)));
    stream.onopen = () => this.say(null);
    stream.onmessage = event => this.take(event);
    stream.addEventListener('gap', ({ data, lastEventId }) => {
      this.last = lastEventId || this.last;
      this.lost += Number(parse(data).lost);
      ui.draw();
    });
    stream.addEventListener('problem', ({ data }) => this.say(parse(data).detail));
    stream.onerror = () => {
      this.say('The program does not answer.');
      if (stream.readyState === EventSource.CLOSED) this.begin();
    };
    ui.draw();
  }

  // The stream was refused, as behind the last record of a store that was in memory: it begins anew, a while later.
  begin() {
    this.last = undefined;
    this.records.clear();
    clearTimeout(this.refused);
    this.refused = setTimeout(() => {
      this.stream = null;
      this.follow();
    }, REFUSED_MS);
  }

  say(trouble) {
    this.trouble = trouble;
    ui.draw();
  }

  take({ data, lastEventId }) {
    const record = { ...parse(data), chars: data.length };
    this.last = lastEventId;
    this.records.add(record);
    ui.draw();
  }

  choose(record) {
    this.chosen = record;
    this.trace = record && new Trace(`topics/${encodeURIComponent(this.topic)}/trace?token=${encodeURIComponent(record.token)}`);
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
    this.repeat.stop();
    clearTimeout(this.refused);
    this.stream?.close();
    this.records.rows.stop();
  }

  row(record) {
    if (!record) return nothing;
    return html`<span class="sequence">${record.sequence}</span><span class="at">${time(record.at_us)}</span><span class="kind">${record.key ?? ''}</span
      ><span class="gist">${record.payload?.text?.slice(0, 200) ?? record.payload?.unreadable}</span>`;
  }

  view() {
    const { told } = this;
    return html`<p class="quiet up"><a href="#/topics">Topics</a></p>
      <div class="title"><h1 class="id">${this.topic}</h1>
        ${operates() && told?.is_exposed ? html`<button type="button" @click=${() => this.publish()}>Publish…</button>` : nothing}
        ${isOfUndelivered(told) ? sendingBack(this.topic, null, () => this.repeat.now()) : nothing}
        ${told ? managing(told, (answer, what) => this.managed(answer, what)) : nothing}</div>
      ${trouble(this.error)}
      ${told
        ? html`<p class="quiet">${count(told.records)} ${told.records === 1 ? 'record' : 'records'}, ${bytes(told.bytes)}${told.last_at_us === null ? '' : `, the last ${ago(told.last_at_us)}`}; kept: ${retention(told.retention)}</p>${this.behind()}${this.latest()}`
        : this.error
          ? nothing
          : html`<p class="quiet">Asking the program…</p>`}`;
  }

  behind() {
    const cell = (name, shown, is_bad = false) => html`<td data-of=${name} class="number ${is_bad ? 'bad' : ''}">${shown}</td>`;
    return html`<section aria-labelledby="subscriptions"><h2 id="subscriptions">Subscriptions <span class="quiet">${count(this.subscriptions.length)}${this.more ? ' and more' : ''}</span></h2>
      ${this.subscriptions.length
        ? html`<table class="list"><thead><tr><th scope="col">Name</th><th scope="col" class="number">Lag</th><th scope="col">Oldest</th><th scope="col" class="number">In hand</th><th scope="col" class="number">Given</th><th scope="col" class="number">Returned</th><th scope="col" class="number">Missed</th><th scope="col" class="number">Undelivered</th>${operates() ? html`<th scope="col">Actions</th>` : nothing}</tr></thead>
          <tbody>${this.subscriptions.map(one => html`<tr><td data-of="Name">${one.name}${one.is_open ? nothing : html` <span class="quiet">not open here</span>`}${one.problem ? html` <span class="bad">${one.problem}</span>` : nothing}</td>
            ${cell('Lag', html`${count(one.lag)}${one.dropped ? html` <span class="bad">(${count(one.dropped)} dropped)</span>` : nothing}`)}
            <td data-of="Oldest">${one.oldest === null ? '–' : html`<span title=${exactTime(one.oldest_at_us)}>${count(one.oldest)}, ${ago(one.oldest_at_us)}</span>`}</td>
            ${cell('In hand', count(one.in_hand))}${cell('Given', count(one.leased))}
            ${cell('Returned', count(one.returned), one.returned)}${cell('Missed', count(one.missed), one.missed)}
            ${cell('Undelivered', html`${count(one.undelivered)}${one.undelivered_to ? html` to <a href=${link(['records', one.undelivered_to])}>${one.undelivered_to}</a>` : nothing}${one.held_keys ? html`; ${count(one.held_keys)} ${one.held_keys === 1 ? 'key waits' : 'keys wait'}` : nothing}`, one.undelivered)}
            ${operates() ? html`<td data-of="Actions">${removing(this.topic, one, () => this.repeat.now())}</td>` : nothing}</tr>`)}</tbody></table>`
        : html`<p class="empty">It has none.</p>`}</section>`;
  }

  latest() {
    const { chosen } = this;
    if (!this.told.is_exposed) {
      return html`<section aria-labelledby="records"><h2 id="records">Records</h2><p class="empty">The program does not expose what this topic carries.</p></section>`;
    }
    return html`<section aria-labelledby="records"><h2 id="records">Records</h2>
      ${this.trouble ? html`<p class="trouble" role="alert">${this.trouble}</p>` : nothing}
      <p class="quiet" role="status">${this.stream
        ? html`the latest ${count(this.records.items.length)}, newest first${this.lost ? `; ${count(this.lost)} were dropped before they could be shown` : ''}`
        : 'Another tab reads now; this one goes on when it is looked at.'}</p>
      ${this.records.items.length ? this.records.rows.element : html`<p class="empty">There are no records yet.</p>`}
      ${chosen
        ? html`<div class="detail" aria-live="polite"><dl class="facts">
            <div><dt>Record</dt><dd>${chosen.sequence}</dd></div>
            <div><dt>At</dt><dd>${exactTime(chosen.at_us)}</dd></div>
            ${[['Key', chosen.key], ['Correlation', chosen.correlation], ['Content type', chosen.content_type], ['Trace', chosen.trace?.trace_id]].map(([name, text]) =>
              text ? html`<div><dt>${name}</dt><dd>${text}</dd></div>` : nothing,
            )}
            ${chosen.cause ? html`<div><dt>Caused by</dt><dd><a class="mono" href=${link(['run', chosen.cause.run])}>${chosen.cause.run}</a></dd></div>` : nothing}
            <div><dt>Token</dt><dd class="mono">${chosen.token}</dd></div>
            <div><dt>Payload</dt><dd>${value(chosen.payload, this.topic)}</dd></div>
          </dl>
          ${isOfUndelivered(this.told) ? sendingBack(this.topic, chosen.token, () => this.repeat.now()) : nothing}</div>
          <div class="trace">${this.trace.view('What led to it, and what came of it')}</div>`
        : nothing}</section>`;
  }

  // The topic was purged, and its records before `first` are shown no more; or it was deleted, and this page has no topic.
  managed({ first }, what) {
    if (what === 'deleted') {
      location.hash = link(['topics']);
      return;
    }
    this.records.keep(record => record.sequence >= first);
    if (this.chosen?.sequence < first) this.choose(null);
    this.known.forget();
    this.repeat.now();
  }

  publish() {
    ask({
      title: `Publish to ${this.topic}`,
      fields: [
        { name: 'value', label: 'Value, as JSON', kind: 'json' },
        { name: 'key', label: 'Key', optional: true, hint: 'records of one key keep their order' },
        { name: 'id', label: 'Id', optional: true, hint: 'published again under it, the topic has it once' },
      ],
      button: 'Publish',
      perform: ({ value: written, key, id }) =>
        post(`${this.path}/publish`, { value: written ?? asWritten('null'), key: key || undefined, id: id || undefined }),
    });
  }
}
