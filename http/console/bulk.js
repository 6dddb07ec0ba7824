// Bulks: one thing done to all runs that a filter finds. A dialog that counts them first, the progress of those that
// run, and the list of all.
//
//   filter ──► dry run: how many ──► start, under a key that is sent again with the same request ──► progress

import { html, nothing, render } from './vendor/lit-html.js';
import { asWritten, get, post } from './api.js';
import { ask, opened } from './dialog.js';
import { toldOf } from './filter.js';
import { ago, count, exactTime } from './format.js';
import { link, operates, Repeat, status, trouble, ui } from './ui.js';

const ACTIONS = [
  ['cancel', 'Cancel', 'Asks them to end, with time to clean up.'],
  ['terminate', 'Terminate', 'Ends them without asking their code.'],
  ['resume', 'Resume', 'Takes paused and parked ones up again.'],
  ['signal', 'Signal', 'Sends each a signal, once.'],
  ['start-again', 'Start again', 'Starts instances that have finished again, with their input.'],
];

const bulkPath = name => `v1/bulk/${encodeURIComponent(name)}`;
const LISTED = 50;
// How many stand above the runs, and how long one stays there that has ended.
const SHOWN_MAX = 3;
const ENDED_SHOWN_MS = 60_000;

// Asks what is to be done, tells how many runs it reaches, and starts it.
export function bulkDialog(filter, started) {
  const dialog = opened();
  // The runs that are meant do not change while the dialog is open, and the same request sent twice is one bulk.
  const body = filter.body();
  const name = `page-${[...crypto.getRandomValues(new Uint8Array(8))].map(byte => byte.toString(16).padStart(2, '0')).join('')}`;
  let action = 'cancel';
  let counted = null;
  let error = null;
  let busy = false;
  const fields = form => ({
    action,
    filter: body,
    ...(['cancel', 'terminate'].includes(action) && { reason: form?.get('reason') || 'asked for on the page' }),
    ...(action === 'signal' && { signal: form?.get('signal') || 'signal', value: asWritten(form?.get('value') || 'null') }),
  });
  async function weigh() {
    const asked = action;
    [counted, error] = [null, null];
    draw();
    try {
      const answer = await post('v1/bulk', { ...fields(), dry_run: true });
      if (asked === action) counted = answer.reached;
    } catch (wrong) {
      if (asked === action) error = wrong;
    }
    draw();
  }
  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const form = new FormData(event.target);
    [busy, error] = [true, null];
    draw();
    try {
      const per_second = Number(form.get('per_second'));
      await post('v1/bulk', { ...fields(form), per_second }, { 'idempotency-key': name });
      dialog.close();
      ui.say('The bulk has begun');
      started(name);
    } catch (wrong) {
      [busy, error] = [false, wrong];
      draw();
    }
  }
  const mayStart = () => counted > 0 || (counted === null && error?.code === 'timeout');
  const field = (id, label, control) => html`<div class="field"><label for=${id}>${label}</label>${control}</div>`;
  const input = (name, initial, type = 'text') => html`<input id="bulk-${name}" name=${name} type=${type} required min="1"
    spellcheck="false" autocomplete="off" .defaultValue=${initial}>`;
  const draw = () => {
    const [, label, about] = ACTIONS.find(([one]) => one === action);
    render(
      html`<form method="dialog" @submit=${submit}>
        <h2 id="dialog-title">Do to all of these</h2>
        <p>Runs: ${filter.told}</p>
        ${field('bulk-action', 'What', html`<select id="bulk-action" aria-describedby="bulk-about" @change=${event => {
          action = event.target.value;
          weigh();
        }}>${ACTIONS.map(([one, label]) => html`<option value=${one} ?selected=${one === action}>${label}</option>`)}</select>
        <span class="quiet" id="bulk-about">${about}</span>`)}
        ${['cancel', 'terminate'].includes(action) ? field('bulk-reason', 'Reason', input('reason', 'asked for on the page')) : nothing}
        ${action === 'signal'
          ? html`${field('bulk-signal', 'Name of the signal', input('signal', ''))}
            ${field('bulk-value', 'Value, as JSON', html`<textarea id="bulk-value" name="value" rows="3" spellcheck="false"></textarea>`)}`
          : nothing}
        ${field('bulk-per_second', 'How many in a second, at most', input('per_second', '100', 'number'))}
        <p role="status">${counted === null
          ? error ? (mayStart() ? 'They are too many to be counted in time; the bulk counts them when it begins.' : nothing) : 'Counting…'
          : counted ? html`<strong>${count(counted)} ${counted === 1 ? 'run' : 'runs'}</strong> would be reached now; those that begin later are left alone.`
          : 'There is no run to which it applies.'}</p>
        ${trouble(error)}
        <div class="buttons">
          <button type="button" @click=${() => dialog.close()}>Close</button>
          <button type="submit" class="danger" ?disabled=${busy || !mayStart()}>${label} ${counted ? count(counted) : ''}</button>
        </div>
      </form>`,
      dialog,
    );
  };
  draw();
  weigh();
  dialog.showModal();
  dialog.querySelector('select').focus();
}

// Bulks that were seen running in this tab.
const seen = new Set();

// The bulks that run, and those that have ended a moment ago. While there are none, nothing is asked for.
export class Progress {
  running = 0;
  bulks = [];

  constructor() {
    this.repeat = new Repeat(1000, () => this.load());
  }

  // Takes how many run, as the counts tell.
  see(running) {
    const has = this.running;
    this.running = running;
    if (running !== has) this.repeat.now();
  }

  add(name) {
    seen.add(name);
    this.repeat.now();
  }

  async load() {
    if (this.running) {
      const { bulks } = await get(`v1/bulk?limit=${Math.min(this.running, SHOWN_MAX)}`);
      for (const bulk of bulks) if (bulk.ended_at_us === null) seen.add(bulk.name);
    }
    const asked = [...seen].slice(-SHOWN_MAX).map(name =>
      get(bulkPath(name)).catch(error => {
        // Retention has dropped it, or it was in another store.
        if (error.code !== 'not-found') throw error;
        seen.delete(name);
      }),
    );
    const shown = (await Promise.all(asked)).filter(Boolean);
    this.bulks = shown.toReversed();
    const since = (Date.now() - ENDED_SHOWN_MS) * 1000;
    for (const bulk of shown) if (bulk.ended_at_us !== null && bulk.ended_at_us < since) seen.delete(bulk.name);
    this.repeat.ms = shown.length ? 1000 : 10_000;
    ui.draw();
  }

  stop() {
    this.repeat.stop();
  }

  view() {
    if (!this.bulks.length) return nothing;
    return html`<section class="bulks" aria-label="Bulks">${this.bulks.map(bulk => html`<div class="bulk">${course(bulk)}</div>`)}</section>`;
  }
}

const labelOf = action => ACTIONS.find(([one]) => one === action)?.[1] ?? action;

// What a bulk does, and how far it has come.
function course(bulk) {
  const seen = bulk.done + bulk.passed_over + bulk.failed;
  const runs = bulk.status === 'running';
  return html`<div class="bar-line"><span><a href=${link(['bulk', bulk.name])}>${labelOf(bulk.action)}</a>
        <span class="quiet">${[bulk.about, toldOf(bulk.filter), bulk.ids ? `${count(bulk.ids)} ${bulk.ids === 1 ? 'id' : 'ids'}` : ''].filter(Boolean).join(' · ')}</span></span>
      ${status(bulk.status)}
      ${runs && operates() ? html`<button type="button" class="small" @click=${() => stopDialog(bulk.name)}>Stop…</button>` : nothing}</div>
    <progress max=${Math.max(1, bulk.selected)} .value=${seen} aria-label="How far ${bulk.name} has come"></progress>
    <p class="quiet">${count(seen)} of ${count(bulk.selected)}: ${count(bulk.done)} done, ${count(bulk.passed_over)} passed over, ${count(bulk.failed)} failed</p>`;
}

function stopDialog(name) {
  ask({
    title: 'Stop the bulk',
    about: 'What it has done stays done.',
    fields: [{ name: 'reason', label: 'Reason', initial: 'asked for on the page' }],
    button: 'Stop',
    danger: true,
    perform: fields => post(`${bulkPath(name)}/stop`, fields),
  });
}

// All bulks, or one of them.
export class Bulk {
  title = 'Bulk';

  constructor(route) {
    [, this.name] = route.path;
    this.after = route.parameters.get('after') ?? '';
    this.repeat = new Repeat(2000, () => this.load());
  }

  async load() {
    try {
      if (this.name) this.told = await get(bulkPath(this.name));
      else {
        const after = this.after && `&after=${encodeURIComponent(this.after)}`;
        const page = await get(`v1/bulk?limit=${LISTED}${after}`);
        this.rows = page.bulks;
        this.next = page.next ? new URLSearchParams(page.next.slice(1)).get('after') : null;
      }
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    ui.draw();
  }

  stop() {
    this.repeat.stop();
  }

  view() {
    return html`<p class="quiet up"><a href="#/runs">Runs</a>${this.name ? html` · <a href="#/bulk">Bulks</a>` : nothing}</p>
      <h1 class="id">${this.name ?? 'Bulks'}</h1>${trouble(this.error)} ${this.name ? this.one() : this.list()}`;
  }

  one() {
    const { told } = this;
    if (!told) return nothing;
    return html`<section class="bulks"><div class="bulk">${course(told)}</div></section>
      <dl class="facts">
        <div><dt>Began</dt><dd title=${exactTime(told.started_at_us)}>${ago(told.started_at_us)}</dd></div>
        <div><dt>Ended</dt><dd title=${exactTime(told.ended_at_us)}>${ago(told.ended_at_us)}</dd></div>
        <div><dt>At most</dt><dd>${count(told.per_second)} a second</dd></div>
        <div><dt>Run</dt><dd><a class="mono" href=${link(['run', told.run])}>${told.run}</a></dd></div>
      </dl>
      ${told.failures.length
        ? html`<section><h2>Failures${told.failed > told.failures.length ? html` <span class="quiet">the first ${told.failures.length}</span>` : nothing}</h2>
            <table class="list"><thead><tr><th scope="col">Instance</th><th scope="col">Why</th></tr></thead>
            <tbody>${told.failures.map(failure => html`<tr><td data-of="Instance"><a href=${link(['instances', failure.id])}>${failure.id}</a></td>
              <td data-of="Why">${failure.message}</td></tr>`)}</tbody></table></section>`
        : nothing}`;
  }

  list() {
    if (!this.rows) return html`<p class="quiet">Asking the program…</p>`;
    return html`${this.rows.length
        ? html`<table class="list">
            <thead><tr><th scope="col">Bulk</th><th scope="col">Status</th><th scope="col">Began</th><th scope="col">Ended</th></tr></thead>
            <tbody>${this.rows.map(row => html`<tr><td data-of="Bulk"><a href=${link(['bulk', row.name])}>${row.name}</a></td>
              <td data-of="Status">${status(row.status)}</td>
              <td data-of="Began" title=${exactTime(row.started_at_us)}>${ago(row.started_at_us)}</td>
              <td data-of="Ended" title=${exactTime(row.ended_at_us)}>${ago(row.ended_at_us)}</td></tr>`)}</tbody>
          </table>`
        : html`<p class="empty">${this.next ? 'None so far: there are older runs to look at.' : 'There are none.'}</p>`}
      <nav class="bar-line" aria-label="Pages">
        ${this.after ? html`<a class="button" href="#/bulk">Newest</a>` : nothing}
        ${this.next ? html`<a class="button" href=${link(['bulk'], { after: this.next })}>Older</a>` : nothing}</nav>`;
  }
}
