// The durable topics; the topics and subscriptions of the broker, and how they are connected.

import { html, nothing } from './vendor/lit-html.js';
import { get } from './api.js';
import { ago, bytes, count, span } from './format.js';
import { managing } from './managing.js';
import { KnownTopics, retention } from './records.js';
import { link, operates, Repeat, trouble, ui } from './ui.js';

// Names of millrun's own, which carry tasks, reports and dead letters.
const own = name => /^(millrun\.|\$)/.test(name);

// How many topics and subscriptions are shown; a program may have one for each of its users.
const SHOWN = 100;

export class Broker {
  title = 'Topics';
  filter = '';
  all = false;
  known = new KnownTopics();

  constructor(route) {
    this.filter = route.parameters.get('name') ?? '';
    this.repeat = new Repeat(2000, async () => {
      try {
        const [told] = await Promise.all([get('v1/topology'), this.known.renew()]);
        this.told = told;
        this.error = null;
      } catch (error) {
        this.error = error;
      }
      ui.draw();
    });
  }

  stop() {
    this.repeat.stop();
  }

  // A topic was purged or deleted.
  managed() {
    this.known.forget();
    this.repeat.now();
  }

  // The durable topics, if there are any.
  kept(more) {
    const durable = this.known.durable.filter(topic => topic.name.includes(this.filter));
    if (!this.known.durable.length) return nothing;
    return html`<section aria-labelledby="durable"><h2 id="durable">Durable <span class="quiet">${count(durable.length)}</span></h2>
      ${durable.length
        ? html`<table class="list"><thead><tr><th scope="col">Topic</th><th scope="col" class="number">Records</th><th scope="col" class="number">Size</th><th scope="col">Latest</th><th scope="col">Kept</th><th scope="col" class="wide">Payload</th>${operates() ? html`<th scope="col">Actions</th>` : nothing}</tr></thead>
          <tbody>${durable.slice(0, SHOWN).map(topic => html`<tr><td data-of="Topic"><a href=${link(['records', topic.name])}>${topic.name}</a></td>
            <td data-of="Records" class="number">${count(topic.records)}</td>
            <td data-of="Size" class="number">${bytes(topic.bytes)}</td>
            <td data-of="Latest">${ago(topic.last_at_us)}</td>
            <td data-of="Kept">${retention(topic.retention)}</td>
            <td class="wide">${topic.payload ? html`<code>${topic.payload}</code>` : html`<span class="quiet">not exposed</span>`}</td>
            ${operates() ? html`<td data-of="Actions"><span class="buttons">${managing(topic, () => this.managed(), 'small')}</span></td>` : nothing}</tr>`)}</tbody></table>${more(durable, 'durable topics')}`
        : html`<p class="empty">No durable topic has such a name.</p>`}</section>`;
  }

  view() {
    const { told } = this;
    const head = html`<h1>Topics</h1>
      <form class="bar-line" role="search" @submit=${event => event.preventDefault()}>
        <label for="topic-name">Name has</label><input id="topic-name" spellcheck="false" autocomplete="off" .value=${this.filter}
          @input=${event => {
            this.filter = event.target.value;
            ui.draw();
          }}>
        <label><input type="checkbox" .checked=${this.all} @change=${event => {
          this.all = event.target.checked;
          ui.draw();
        }}> also those of millrun itself</label>
      </form>${trouble(this.error)}`;
    if (!told) return html`${head}<p class="quiet">Asking the program…</p>`;
    const shown = name => this.all || !own(name);
    const topics = told.topics.filter(topic => topic.name.includes(this.filter) && shown(topic.name));
    const by = new Map(told.subscriptions.map(one => [one.id, one]));
    const reached = new Set(topics.flatMap(topic => topic.subscriptions));
    const subscriptions = told.subscriptions.filter(
      one => shown(one.filter) && (one.name.includes(this.filter) || reached.has(one.id)),
    );
    const more = (list, what) => (list.length > SHOWN ? html`<p class="quiet">${count(list.length - SHOWN)} more ${what}: name one above.</p>` : nothing);
    const given = Object.entries(told.given_up).filter(([, n]) => n);
    return html`${head}
      ${told.waiting ? html`<p class="trouble"><strong>${count(told.waiting)} publishes wait for room</strong></p>` : nothing}
      ${told.long_waits.length
        ? html`<section class="why bad" aria-label="Long waits"><ul>${told.long_waits.slice(0, SHOWN).map(
            wait => html`<li>${wait.held_up === null ? 'a publisher' : by.get(wait.held_up)?.name ?? `subscription ${wait.held_up}`} waits for ${wait.waits_for
              .map(id => by.get(id)?.name ?? id)
              .join(', ')}${wait.cycle.length ? ', which waits for it: a cycle' : ''}</li>`,
          )}</ul></section>`
        : nothing}
      ${this.kept(more)}
      <section aria-labelledby="topics"><h2 id="topics">In memory <span class="quiet">${count(topics.length)}</span></h2>
      ${topics.length
        ? html`<table class="list"><thead><tr><th scope="col">Topic</th><th scope="col">Payload</th><th scope="col" class="number">Published</th><th scope="col">Goes to</th></tr></thead>
          <tbody>${topics.slice(0, SHOWN).map(topic => html`<tr><td data-of="Topic">${this.known.exposed.has(topic.name) ? html`<a href=${link(['topics', topic.name])}>${topic.name}</a>` : topic.name}</td><td data-of="Payload"><code>${topic.payload}</code></td>
            <td data-of="Published" class="number">${count(topic.published)}</td>
            <td data-of="Goes to">${topic.subscriptions.length
              ? topic.subscriptions.slice(0, 8).map((id, i) => html`${i ? ', ' : ''}${by.get(id)?.name ?? id}`)
              : html`<span class="quiet">nobody</span>`}${topic.subscriptions.length > 8 ? html` <span class="quiet">and ${topic.subscriptions.length - 8} more</span>` : nothing}</td></tr>`)}</tbody></table>${more(topics, 'topics')}`
        : html`<p class="empty">Nothing has been published${this.filter ? ' to such a topic' : ''}.</p>`}</section>
      <section aria-labelledby="subscriptions"><h2 id="subscriptions">Subscriptions <span class="quiet">${count(subscriptions.length)}</span></h2>
      ${subscriptions.length
        ? html`<table class="list"><thead><tr><th scope="col">Name</th><th scope="col">Filter</th><th scope="col">Inbox</th><th scope="col" class="number">Taken</th><th scope="col" class="number">Dropped</th><th scope="col" class="number">Failed</th><th scope="col" class="wide">When full</th><th scope="col" class="wide number">Per envelope</th></tr></thead>
          <tbody>${subscriptions.slice(0, SHOWN).map(one => html`<tr><td data-of="Name">${one.name}${one.group ? html` <span class="quiet">group ${one.group}</span>` : nothing}</td>
            <td data-of="Filter"><code>${one.filter}</code></td>
            <td data-of="Inbox"><meter min="0" max=${Math.max(1, one.capacity)} high=${one.capacity * 0.8} value=${one.queued} aria-label="inbox of ${one.name}"></meter> ${count(one.queued)} of ${count(one.capacity)}</td>
            <td data-of="Taken" class="number">${count(one.taken)}</td>
            <td data-of="Dropped" class="number ${one.dropped ? 'bad' : ''}">${count(one.dropped)}</td>
            <td data-of="Failed" class="number ${one.failed ? 'bad' : ''}">${count(one.failed)}</td>
            <td class="wide">${one.overflow}</td>
            <td class="wide number">${one.handled ? span(Math.round(Number(one.handler_time_us) / Number(one.handled))) : '–'}</td></tr>`)}</tbody></table>${more(subscriptions, 'subscriptions')}`
        : html`<p class="empty">There are none.</p>`}</section>
      ${given.length ? html`<section aria-labelledby="given-up"><h2 id="given-up">Given up</h2><dl class="facts">${given.map(([why, n]) => html`<div><dt>${why}</dt><dd>${count(n)}</dd></div>`)}</dl></section>` : nothing}`;
  }
}
