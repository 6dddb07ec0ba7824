// What led to something and what came of it: asked for when somebody wants to know, link by link.

import { html, nothing } from './vendor/lit-html.js';
import { get } from './api.js';
import { count, exactTime, time } from './format.js';
import { link, trouble, ui } from './ui.js';

// How many links a page has, and how many are shown of one thing.
const PAGE = 50;
export const SHOWN = 500;
const DIRECTIONS = [
  ['causes', 'What led to it', 'Nothing is known of what led to it.'],
  ['effects', 'What came of it', 'Nothing has come of it yet.'],
];

export class Trace {
  // The address of what is traced, below v1/; and in which direction, if that is not both.
  constructor(address, direction) {
    [this.address] = address.split('?');
    this.query = address.slice(this.address.length).replace('?', '&');
    this.direction = direction;
    this.links = { causes: [], effects: [] };
  }

  get len() {
    return this.links.causes.length + this.links.effects.length;
  }

  // Opens or closes it. What is opened is asked for anew, since a run that goes on gets more.
  toggle(open) {
    if (open === Boolean(this.open)) return;
    this.open = open;
    if (open) {
      this.loaded = false;
      this.next = null;
      this.links = { causes: [], effects: [] };
      this.load();
    }
    ui.draw();
  }

  // Asks for the first page, or the next.
  async load() {
    if (this.asks) return;
    this.asks = true;
    this.error = null;
    ui.draw();
    const first = `?limit=${PAGE}${this.direction ? `&direction=${this.direction}` : ''}${this.query}`;
    try {
      const page = await get(`v1/${this.address}${this.next ?? first}`);
      for (const [direction] of DIRECTIONS) this.links[direction].push(...page[direction]);
      this.next = page.next;
      this.trimmed = page.trimmed_before;
      this.loaded = true;
      ui.say(`${count(this.len)} links`);
    } catch (error) {
      this.error = error;
    }
    this.asks = false;
    ui.draw();
  }

  // Closed at first; `label` says what is opened.
  view(label, name = label) {
    return html`<details .open=${Boolean(this.open)} @toggle=${event => this.toggle(event.target.open)}>
      <summary aria-label=${name}>${label}</summary>${this.open ? this.opened() : nothing}</details>`;
  }

  opened() {
    if (!this.loaded) return this.error ? trouble(this.error) : html`<p class="quiet">Asking the program…</p>`;
    return html`${this.trimmed ? html`<p class="quiet">Its history is trimmed before event ${count(this.trimmed)}: what is older is not told any more.</p>` : nothing}
      ${DIRECTIONS.filter(([direction]) => (this.direction ?? direction) === direction).map(
        ([direction, title, none]) => html`${this.direction ? nothing : html`<h3>${title}</h3>`}
          ${this.links[direction].length
            ? html`<ul>${this.links[direction].map(one => html`<li>${this.one(one, direction)}</li>`)}</ul>`
            : html`<p class="quiet">${this.next ? 'Nothing was found where was looked.' : none}</p>`}`,
      )}
      ${trouble(this.error)}
      ${this.next && this.len < SHOWN
        ? html`<button type="button" class="small" ?disabled=${this.asks} @click=${() => this.load()}>Look further</button>`
        : nothing}
      ${this.next && this.len >= SHOWN ? html`<p class="quiet">There are more than ${count(SHOWN)}: <code>millrun trace</code> tells them.</p>` : nothing}`;
  }

  one(one, direction) {
    const [name, address] = end(one);
    const words = [one.relation.replaceAll('-', ' '), one.name].filter(Boolean).join(' ');
    const notes = [
      one.attempts > 1 && `${count(one.attempts)} attempts`,
      one.outcome !== 'done' && (one.detail ? `${one.outcome}: ${one.detail}` : one.outcome),
    ].filter(Boolean);
    if (one.to?.trace) one.below ??= new Trace(one.to.trace, direction);
    return html`<span class="sentence">${words}</span>
      ${name ? html`<a href=${address}>${name}</a>` : nothing}
      ${notes.length ? html`<span class=${['failed', 'returned', 'unknown'].includes(one.outcome) ? 'bad' : 'quiet'}>${notes.join(', ')}</span>` : nothing}
      ${one.at_us ? html`<span class="quiet" title=${exactTime(one.at_us)}>${time(one.at_us)}</span>` : nothing}
      ${one.below ? one.below.view('Follow', `Follow ${words}, ${name}`) : nothing}`;
  }
}

// What a link leads to, in words, and where the page shows it.
function end({ to, instance }) {
  switch (to?.kind) {
    case 'run':
      return [instance ?? to.run, link(['run', to.run])];
    case 'operation':
      return [`operation ${to.operation} of ${to.run}`, link(['run', to.run])];
    case 'instance':
      return [to.id, link(['instances', to.id])];
    case 'record':
      return [`record ${to.sequence} of ${to.topic}`, link(['records', to.topic])];
    default:
      return instance ? [instance, link(['instances', instance])] : [];
  }
}
