// The task queues, what runs and waits in them, and the code that is registered.

import { html, nothing } from './vendor/lit-html.js';
import { get } from './api.js';
import { count } from './format.js';
import { live } from './live.js';
import { Repeat, trouble, ui } from './ui.js';

const SHOWN = 100;

export class Queues {
  title = 'Queues';

  constructor() {
    this.end = live.on(what => what === 'stats' && ui.draw());
    this.repeat = new Repeat(60_000, async () => {
      try {
        this.code = await get('v1/catalogue');
        this.error = null;
      } catch (error) {
        this.error = error;
      }
      ui.draw();
    });
  }

  stop() {
    this.end();
    this.repeat.stop();
  }

  view() {
    const queues = live.stats?.queues ?? [];
    const use = (value, most, label) => html`<meter min="0" max=${Math.max(1, most)} high=${most * 0.9} value=${value} aria-label=${label}></meter> ${count(value)} of ${count(most)}`;
    const more = list => (list.length > SHOWN ? html`<p class="quiet">${count(list.length - SHOWN)} more are not shown.</p>` : nothing);
    const { code } = this;
    return html`<h1>Queues</h1>${trouble(this.error)}
      <section aria-labelledby="queues"><h2 id="queues">Task queues</h2>
      ${queues.length
        ? html`<table class="list"><thead><tr><th scope="col">Queue</th><th scope="col">Attempts running</th><th scope="col">Activities waiting</th></tr></thead>
          <tbody>${queues.slice(0, SHOWN).map(queue => html`<tr><td data-of="Queue">${queue.name}</td>
            <td data-of="Running">${use(queue.running, queue.running_max, `running in ${queue.name}`)}</td>
            <td data-of="Waiting">${use(queue.waiting, queue.waiting_max, `waiting in ${queue.name}`)}</td></tr>`)}</tbody></table>${more(queues)}`
        : html`<p class="quiet">Asking the program…</p>`}</section>
      ${code
        ? html`<section aria-labelledby="workflows"><h2 id="workflows">Workflows</h2>
            <table class="list"><thead><tr><th scope="col">Workflow</th><th scope="col">Input</th><th scope="col">Result</th><th scope="col">Queries</th><th scope="col">Updates</th></tr></thead>
            <tbody>${code.workflows.slice(0, SHOWN).map(one => html`<tr><td data-of="Workflow">${one.name}</td><td data-of="Input"><code>${one.input}</code></td><td data-of="Result"><code>${one.result}</code></td>
              <td data-of="Queries">${one.queries.join(', ') || '–'}</td><td data-of="Updates">${one.updates.join(', ') || '–'}</td></tr>`)}</tbody></table>${more(code.workflows)}</section>
          <section aria-labelledby="activities"><h2 id="activities">Activities</h2>
            ${code.activities.length
              ? html`<table class="list"><thead><tr><th scope="col">Activity</th><th scope="col">Queue</th></tr></thead>
            <tbody>${code.activities.slice(0, SHOWN).map(one => html`<tr><td data-of="Activity">${one.name}</td><td data-of="Queue">${one.queue ?? '–'}</td></tr>`)}</tbody></table>${more(code.activities)}`
              : html`<p class="empty">There are none.</p>`}</section>`
        : nothing}`;
  }
}
