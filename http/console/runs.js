// Runs that a filter finds, newest first, by pages of bounded length. What is shown stands in the address.

import { html, nothing } from './vendor/lit-html.js';
import { asWritten, get, instancePath, post } from './api.js';
import { bulkDialog, Progress } from './bulk.js';
import { ask } from './dialog.js';
import { counted, Filter, LIVE, SINCE, STATUSES, workflowsOf } from './filter.js';
import { ago, count, exactTime } from './format.js';
import { live } from './live.js';
import { link, operates, Repeat, status, trouble, ui } from './ui.js';

const PAGE = 50;
// A page may be empty and have a next one: so often that is asked for at once.
const PAGES_MAX = 10;
// Between two readings of what has changed: some times as long as a reading takes, so that a program in which much
// changes has most of its time for that, and so much at least and at most.
const PAUSE_TIMES = 3;
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 500;
// Statuses that have a tab only where there are such runs.
const SELDOM = ['delayed', 'not-registered', 'continued'];
const ENDED = STATUSES.filter(status => !LIVE.includes(status));

export class Runs {
  title = 'Runs';

  constructor(route) {
    this.filter = new Filter(route.parameters);
    this.after = route.parameters.get('after') ?? '';
    this.repeat = new Repeat(10_000, () => this.load());
    this.progress = new Progress();
    const ends = [
      live.want(),
      live.on((what, changes) => {
        if (what === 'changes' && changes.some(change => this.filter.matters(change))) this.soon();
        else if (what === 'runs') this.soon();
      }),
    ];
    this.end = () => ends.forEach(end => end());
  }

  // Reads again at once, or when the last reading is some time ago.
  soon() {
    if (this.waits) return;
    const pause = Math.max(0, (this.mayLoadFrom ?? 0) - Date.now());
    this.waits = setTimeout(() => {
      this.waits = null;
      this.repeat.now();
    }, pause);
  }

  async load() {
    const began = Date.now();
    try {
      const [page, counts] = await Promise.all([this.page(), get('v1/counts')]);
      [this.rows, this.next, this.unreadable] = page;
      this.counts = counts;
      this.error = null;
      this.progress.see(counts.bulks_running);
      remember(this.next, this.after);
    } catch (error) {
      this.error = error;
    }
    const now = Date.now();
    this.mayLoadFrom = now + Math.min(PAUSE_MS_MAX, Math.max(PAUSE_MS_MIN, PAUSE_TIMES * (now - began)));
    ui.draw();
    // On a phone the tabs are scrolled.
    if (!this.drawn) requestAnimationFrame(() => document.querySelector('.tab[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' }));
    this.drawn = true;
  }

  async page() {
    const rows = [];
    let after = this.after;
    let unreadable = 0;
    for (let pages = 0; pages < PAGES_MAX && rows.length < PAGE; pages++) {
      const page = await get(`v1/runs?${this.filter.query({ limit: PAGE - rows.length, ...(after && { after }) })}`);
      rows.push(...page.runs);
      unreadable += page.unreadable;
      after = page.next ? new URLSearchParams(page.next.slice(1)).get('after') : null;
      if (!after) break;
    }
    return [rows, after, unreadable];
  }

  stop() {
    this.end();
    clearTimeout(this.waits);
    this.repeat.stop();
    this.progress.stop();
  }

  to(changes) {
    return link(['runs'], this.filter.parameters(changes));
  }

  view() {
    const { filter } = this;
    return html`<div class="title"><h1>Runs</h1>
        <div class="buttons"><a class="button" href="#/bulk">Bulks</a>
          ${operates()
            ? html`<button type="button" @click=${() => bulkDialog(filter, name => this.progress.add(name))}>Do to all of these…</button>
              <button type="button" class="main" @click=${begin}>Start a run…</button>`
            : nothing}</div></div>
      ${this.progress.view()} ${this.tabs()} ${this.form()} ${trouble(this.error)}
      ${this.unreadable ? html`<p class="trouble">${count(this.unreadable)} finished runs cannot be read</p>` : nothing}
      ${this.rows ? this.table() : html`<p class="quiet">Asking the program…</p>`}
      <nav class="bar-line" aria-label="Pages">
        ${this.after ? html`<a class="button" href=${this.to()}>Newest</a><a class="button" href=${this.to({ after: newer(this.after) })}>Newer</a>` : nothing}
        ${this.next ? html`<a class="button" href=${this.to({ after: this.next })}>Older</a>` : nothing}
      </nav>`;
  }

  tabs() {
    const { filter, counts } = this;
    const at = filter.statuses.join(',');
    const tab = (to, label, n) => html`<a class="tab" href=${this.to({ status: to })} aria-current=${at === to ? 'page' : nothing}
      title=${ENDED.includes(to) ? 'since the program was started' : nothing}>${label}${n === undefined ? nothing : html` <span class="quiet">${count(n)}</span>`}</a>`;
    return html`<nav class="tabs" aria-label="By status">${tab('', 'all')}
      ${STATUSES.map(one => {
        const n = counted(counts, one, filter.workflow);
        return SELDOM.includes(one) && !n && at !== one ? nothing : tab(one, one, n);
      })}</nav>`;
  }

  form() {
    const { filter } = this;
    const apply = event => {
      event.preventDefault();
      const form = new FormData(event.target.form ?? event.target);
      location.hash = this.to(Object.fromEntries(['workflow', 'prefix', 'since'].map(name => [name, form.get(name)])));
    };
    const option = ([value, label], chosen) => html`<option value=${value} .selected=${value === chosen}>${label}</option>`;
    return html`<form class="bar-line filter" role="search" @submit=${apply} @change=${apply}>
        <span><label for="filter-workflow">Workflow</label> <select id="filter-workflow" name="workflow">
          ${[['', 'any'], ...workflowsOf(this.counts, filter.workflow)].map(one => option(one, filter.workflow))}</select></span>
        <span><label for="filter-prefix">Id begins with</label> <input id="filter-prefix" name="prefix" .value=${filter.prefix}
          spellcheck="false" autocomplete="off" size="14"></span>
        <span><label for="filter-since">Began</label> <select id="filter-since" name="since">${SINCE.map(one => option(one, filter.since))}</select></span>
        <button type="submit">Find</button>
        ${filter.prefix ? html`<a href=${link(['instances', filter.prefix])}>Open the instance ${filter.prefix}</a>` : nothing}
      </form>`;
  }

  table() {
    if (!this.rows.length) {
      return html`<p class="empty">${this.next ? 'None so far: there are older ones to look at.' : 'There are none here.'}</p>`;
    }
    return html`<table class="list">
      <thead><tr><th scope="col">Instance</th><th scope="col">Workflow</th><th scope="col">Status</th><th scope="col">Began</th
        ><th scope="col">Ended</th><th scope="col" class="wide">Run</th></tr></thead>
      <tbody>${this.rows.map(row => html`<tr>
        <td data-of="Instance"><a href=${row.ended_at_us === null ? link(['instances', row.id]) : link(['run', row.run])}>${row.id}</a></td>
        <td data-of="Workflow">${row.workflow}</td><td data-of="Status">${status(row.status)}</td>
        <td data-of="Began" title=${exactTime(row.started_at_us)}>${ago(row.started_at_us)}</td>
        <td data-of="Ended" class=${row.ended_at_us === null ? 'none' : nothing} title=${exactTime(row.ended_at_us)}>${ago(row.ended_at_us)}</td>
        <td class="wide"><a class="quiet mono" href=${link(['run', row.run])}>${row.run.slice(0, 12)}…</a></td>
      </tr>`)}</tbody>
    </table>`;
  }
}

// Cursors lead to older runs alone, so the tab remembers from where it came.
function remember(next, after) {
  if (next) sessionStorage.setItem(`newer than ${next}`, after);
}

const newer = after => sessionStorage.getItem(`newer than ${after}`) ?? '';

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
