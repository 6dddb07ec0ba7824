// Lists of runs, by pages of bounded length. What is shown stands in the address.

import { html, nothing } from './vendor/lit-html.js';
import { asWritten, get, instancePath, post } from './api.js';
import { ask } from './dialog.js';
import { ago, count, exactTime } from './format.js';
import { live } from './live.js';
import { link, operates, Repeat, status, trouble, ui } from './ui.js';

const PAGE = 50;

export class Runs {
  title = 'Runs';

  constructor(route) {
    this.what = route.parameters.get('show') === 'finished' ? 'finished' : 'live';
    this.after = route.parameters.get('after') ?? '';
    this.repeat = new Repeat(10_000, () => this.load());
    this.end = live.on(what => what === 'runs' && this.repeat.now());
  }

  async load() {
    try {
      const path = this.what === 'finished' ? 'v1/finished' : 'v1/instances';
      const page = await get(`${path}?limit=${PAGE}${this.after && `&after=${encodeURIComponent(this.after)}`}`);
      this.rows = page.runs ?? page.instances;
      this.next = page.next ? new URLSearchParams(page.next.slice(1)).get('after') : null;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    ui.draw();
  }

  stop() {
    this.end();
    this.repeat.stop();
  }

  view() {
    const { stats } = live;
    const tab = (what, label, n) => html`<a class="tab" href=${link(['runs'], { show: what === 'live' ? '' : what })}
      aria-current=${this.what === what ? 'page' : nothing}>${label} <span class="quiet">${n === undefined ? '' : count(n)}</span></a>`;
    return html`<div class="title"><h1>Runs</h1>
        ${operates() ? html`<button type="button" class="main" @click=${begin}>Start a run…</button>` : nothing}</div>
      <nav class="tabs" aria-label="Which runs">${tab('live', 'Live', stats?.live)}${tab('finished', 'Finished', stats?.journal.finished_runs)}</nav>
      <form class="bar-line" role="search" @submit=${open}>
        <label for="open-id">Instance</label><input id="open-id" name="id" required placeholder="its id" spellcheck="false" autocomplete="off">
        <button type="submit">Open</button>
      </form>
      ${trouble(this.error)} ${this.rows ? this.table() : html`<p class="quiet">Asking the program…</p>`}
      <nav class="bar-line" aria-label="Pages">
        ${this.after ? html`<a class="button" href=${link(['runs'], { show: this.what === 'live' ? '' : this.what })}>First page</a>` : nothing}
        ${this.next ? html`<a class="button" href=${link(['runs'], { show: this.what === 'live' ? '' : this.what, after: this.next })}>Next page</a>` : nothing}
      </nav>`;
  }

  table() {
    if (!this.rows.length) return html`<p class="empty">There are none here.</p>`;
    const finished = this.what === 'finished';
    return html`<table class="list">
      <thead><tr><th scope="col">Instance</th>${finished
        ? html`<th scope="col">Ended</th><th scope="col" class="number">Events</th>`
        : html`<th scope="col">Workflow</th><th scope="col">Status</th>`}<th scope="col" class="wide">Run</th></tr></thead>
      <tbody>${this.rows.map(row => html`<tr>
        <td data-of="Instance"><a href=${finished ? link(['run', row.run]) : link(['instances', row.id])}>${row.id}</a></td>
        ${finished
          ? html`<td data-of="Ended" title=${exactTime(row.ended_at_us)}>${ago(row.ended_at_us)}</td><td data-of="Events" class="number">${count(row.sequence)}</td>`
          : html`<td data-of="Workflow">${row.workflow}</td><td data-of="Status">${status(row.status)}</td>`}
        <td class="wide"><a class="quiet mono" href=${link(['run', row.run])}>${row.run.slice(0, 12)}…</a></td>
      </tr>`)}</tbody>
    </table>`;
  }
}

function open(event) {
  event.preventDefault();
  location.hash = link(['instances', new FormData(event.target).get('id').trim()]);
}

async function begin() {
  let workflows = [];
  try {
    ({ workflows } = await get('v1/catalogue'));
  } catch (error) {
    ui.say(error.message);
  }
  startDialog({ workflows: workflows.map(workflow => workflow.name) });
}

// Asks for what a run is started with. An id that is taken by a finished instance begins anew.
export function startDialog({ workflows, workflow, id = '', input = 'null', title = 'Start a run', about }) {
  ask({
    title,
    about,
    fields: [
      workflows?.length
        ? { name: 'workflow', label: 'Workflow', kind: 'choice', choices: workflows, initial: workflow }
        : { name: 'workflow', label: 'Workflow', initial: workflow },
      { name: 'id', label: 'Id of the instance', initial: id },
      { name: 'input', label: 'Input, as JSON', kind: 'json', initial: input },
    ],
    button: 'Start',
    perform: ({ workflow, id, input }) =>
      post(`${instancePath(id)}/start`, { workflow, input: input ?? asWritten('null'), on_conflict: 'restart-finished' }),
    done: answer => (location.hash = link(['instances', answer.id])),
  });
}
