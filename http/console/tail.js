// What is published to one topic that the program exposes, as it comes, newest first.

import { html, nothing } from './vendor/lit-html.js';
import { BASE, post } from './api.js';
import { ask } from './dialog.js';
import { parse } from './exact.js';
import { count, exactTime, time } from './format.js';
import { KEPT_LEN, Latest } from './latest.js';
import { live } from './live.js';
import { link, operates, ui } from './ui.js';
import { value } from './value.js';

export class Tail {
  constructor(route) {
    [, this.topic] = route.path;
    this.title = this.topic;
    this.seen = 0;
    this.lost = 0;
    this.messages = new Latest({
      label: `Messages of ${this.topic}`,
      className: 'events',
      row: message => this.row(message),
      active: message => this.choose(message),
    });
    this.end = live.on(what => what === 'leads' && this.follow());
    this.follow();
  }

  // The tab that leads has the stream. It begins with what is published from now on.
  follow() {
    if (!live.leads) return this.close();
    if (this.stream) return;
    const after = this.last === undefined ? '' : `?after=${encodeURIComponent(this.last)}`;
    this.stream = new EventSource(new URL(`v1/topics/${encodeURIComponent(this.topic)}/tail${after}`, BASE));
    this.stream.onopen = () => this.say(null);
    this.stream.onmessage = event => this.take(event);
    this.stream.addEventListener('gap', ({ data }) => {
      this.lost += Number(parse(data).lost);
      ui.draw();
    });
    this.stream.addEventListener('problem', ({ data }) => this.say(parse(data).detail));
    this.stream.onerror = () => this.say(this.stream?.readyState === EventSource.CLOSED ? 'The program does not expose this topic.' : 'The program does not answer.');
    ui.draw();
  }

  say(trouble) {
    this.trouble = trouble;
    ui.draw();
  }

  take({ data, lastEventId }) {
    const message = { ...parse(data), chars: data.length };
    this.last = lastEventId;
    this.seen++;
    this.messages.add(message);
    ui.draw();
  }

  choose(message) {
    this.chosen = message;
    ui.draw();
  }

  close() {
    this.stream?.close();
    this.stream = null;
    ui.draw();
  }

  stop() {
    this.end();
    this.stream?.close();
    this.messages.rows.stop();
  }

  row(message) {
    if (!message) return nothing;
    return html`<span class="at">${time(message.at_us)}</span><span class="kind">${message.key ?? ''}</span
      ><span class="gist">${message.payload?.text?.slice(0, 200) ?? message.payload?.unreadable}</span>`;
  }

  view() {
    const { chosen } = this;
    return html`<p class="quiet up"><a href="#/topics">Topics</a></p>
      <div class="title"><h1 class="id">${this.topic}</h1>
        ${operates() ? html`<button type="button" @click=${() => this.publish()}>Publish…</button>` : nothing}</div>
      ${this.trouble ? html`<p class="trouble" role="alert">${this.trouble}</p>` : nothing}
      <p class="quiet" role="status">${this.stream
        ? html`${count(this.seen)} since this page was opened${this.lost ? `, ${count(this.lost)} more were missed` : ''}; the latest ${KEPT_LEN} are kept`
        : 'Another tab reads now; this one goes on when it is looked at.'}</p>
      ${this.messages.items.length ? this.messages.rows.element : html`<p class="empty">Nothing has been published yet.</p>`}
      ${chosen
        ? html`<div class="detail" aria-live="polite"><dl class="facts">
            <div><dt>At</dt><dd>${exactTime(chosen.at_us)}</dd></div>
            <div><dt>Envelope</dt><dd>${chosen.envelope}</dd></div>
            ${chosen.key === null ? nothing : html`<div><dt>Key</dt><dd>${chosen.key}</dd></div>`}
            ${chosen.cause ? html`<div><dt>Caused by</dt><dd><a class="mono" href=${link(['run', chosen.cause.run])}>${chosen.cause.run}</a></dd></div>` : nothing}
            <div><dt>Payload</dt><dd>${value(chosen.payload, this.topic)}</dd></div>
          </dl></div>`
        : nothing}`;
  }

  publish() {
    ask({
      title: `Publish to ${this.topic}`,
      fields: [{ name: 'value', label: 'Value, as JSON', kind: 'json' }],
      button: 'Publish',
      perform: fields => post(`v1/topics/${encodeURIComponent(this.topic)}/publish`, fields),
    });
  }
}
