// One run: what it waits for first, then what it has done.

import { html, nothing } from './vendor/lit-html.js';
import { BASE, get, instancePath, post } from './api.js';
import { ask, show } from './dialog.js';
import { Events, gist, tone } from './events.js';
import { parse } from './exact.js';
import { ago, count, exactTime, span, time } from './format.js';
import { live } from './live.js';
import { Outputs } from './output.js';
import { Rows } from './rows.js';
import { startDialog } from './runs.js';
import { Timeline } from './timeline.js';
import { Trace } from './trace.js';
import { link, operates, Repeat, status, trouble, ui } from './ui.js';
import { value } from './value.js';

export class Run {
  // The route names an instance, whose latest run is shown, or a run.
  constructor(route) {
    [this.by, this.name] = route.path;
    this.streamed = route.parameters.get('stream');
    this.title = this.name;
    this.repeat = new Repeat(2000, () => this.load());
    this.end = live.on(what => what === 'leads' && this.follow());
    this.rows = new Rows({
      label: 'Events of the run',
      className: 'events',
      row: index => this.row(index + 1),
      active: index => this.choose(index + 1),
      seen: (from, to) => this.events?.need(from + 1, to + 1),
    });
    this.onSeen = () => this.follow();
    document.addEventListener('visibilitychange', this.onSeen);
  }

  get path() {
    return this.by === 'run' ? `v1/runs/${this.name}` : instancePath(this.name);
  }

  async load() {
    try {
      const told = await get(this.path);
      if (this.over) return;
      if (this.told?.run !== told.run) this.change(told);
      this.told = told;
      this.title = told.id;
      this.error = null;
      const finished = told.status === 'finished';
      this.events.grow(told.sequence);
      await Promise.all([
        finished ? (this.why = null) : this.askWhy(),
        this.timeline.set(told.sequence, !finished, told.awaited),
        finished && !this.ended ? this.askResult() : undefined,
        this.input === undefined ? this.askInput() : undefined,
        operates() && !this.code ? this.askCode() : undefined,
      ]);
      if (finished) {
        this.close();
        if (this.by === 'run') this.repeat.stop();
      } else this.follow();
    } catch (error) {
      this.error = error;
    }
    ui.draw();
  }

  // Another run than before: a new page, or an instance that was begun anew.
  change(told) {
    this.close();
    this.events?.stop();
    this.timeline?.stop();
    this.why = this.ended = this.chosen = null;
    this.input = undefined;
    this.rows.at = -1;
    this.rows.resize(0);
    this.events = new Events(told.run, () => {
      this.rows.resize(this.events.head, true);
      this.rows.later();
      if (this.chosen) ui.draw();
    });
    this.trace = new Trace(`runs/${told.run}/trace`);
    this.outputs?.stop();
    this.outputs = new Outputs(told.run, this.streamed, name => {
      this.streamed = name;
      history.replaceState(null, '', link([this.by, this.name], { stream: name }));
    });
    this.timeline = new Timeline(told.run, sequence => this.rows.move(sequence - 1));
  }

  async askWhy() {
    const why = await get(`${instancePath(this.told.id)}/why`);
    this.why = why.run === this.told.run ? why : null;
  }

  async askResult() {
    this.ended = await get(`v1/runs/${this.told.run}/result`);
  }

  async askCode() {
    const { workflows } = await get('v1/catalogue');
    this.code = workflows.find(one => one.name === this.told.workflow) ?? { queries: [], updates: [], signals: [], commands: [] };
  }

  async askInput() {
    const page = await get(`v1/runs/${this.told.run}/history?after=0&limit=1`);
    const first = page.events[0];
    this.input = first?.kind === 'Started' ? first.input : null;
  }

  // Lets the program tell each event when it is durable: in the tab that leads, so that a browser has one such stream.
  // The other tabs ask every two seconds.
  follow() {
    if (document.hidden || !live.leads) return this.close();
    if (this.stream || !this.events || this.told?.status === 'finished') return;
    this.stream = new EventSource(new URL(`v1/runs/${this.told.run}/events?after=${this.events.head}`, BASE));
    this.stream.onmessage = ({ data }) => {
      const event = parse(data);
      this.events.push(event, data.length);
      this.soon();
    };
    this.stream.addEventListener('end', () => {
      this.close();
      this.soon();
    });
    this.stream.addEventListener('problem', () => this.close());
  }

  // What is told of the run is asked for again, at most four times a second.
  soon() {
    clearTimeout(this.waits);
    const since = Date.now() - (this.asked ?? 0);
    this.waits = setTimeout(() => {
      this.asked = Date.now();
      this.repeat.now();
    }, Math.max(0, 250 - since));
  }

  close() {
    this.stream?.close();
    this.stream = null;
  }

  choose(sequence) {
    this.chosen = sequence;
    ui.draw();
  }

  stop() {
    this.over = true;
    clearTimeout(this.waits);
    document.removeEventListener('visibilitychange', this.onSeen);
    this.close();
    this.end();
    this.repeat.stop();
    this.rows.stop();
    this.events?.stop();
    this.timeline?.stop();
    this.outputs?.stop();
  }

  row(sequence) {
    const event = this.events?.at(sequence);
    if (!event) {
      const gone = sequence < (this.events?.trimmed ?? 0);
      return html`<span class="sequence">${sequence}</span><span class="quiet">${gone ? 'trimmed by a checkpoint' : '…'}</span>`;
    }
    return html`<span class="sequence">${sequence}</span><span class="at" title=${exactTime(event.at_us)}>${time(event.at_us)}</span
      ><span class="kind ${tone(event.kind)}">${event.kind}</span><span class="gist">${gist(event)}</span>`;
  }

  view() {
    const { told } = this;
    if (!told) return html`<h1 class="id">${this.name}</h1>${this.error ? trouble(this.error) : html`<p class="quiet">Asking the program…</p>`}`;
    const shown = told.status === 'finished' && this.ended ? this.ended.outcome : told.status;
    const fact = (label, what) => html`<div><dt>${label}</dt><dd>${what}</dd></div>`;
    return html`<p class="quiet up"><a href="#/runs">Runs</a> / ${told.workflow}</p>
      <div class="title"><h1 class="id">${told.id}</h1>${status(shown)}</div>
      ${this.buttons(told)} ${trouble(this.error)} ${this.reason(told)}
      <section aria-label="Facts"><dl class="facts">
        ${fact('Workflow', told.workflow)}
        ${fact('Run', html`<a class="mono" href=${link(['run', told.run])}>${told.run}</a>`)}
        ${fact('Started', html`<span title=${exactTime(told.started_at_us)}>${time(told.started_at_us)}, ${ago(told.started_at_us)}</span>`)}
        ${told.ended_at_us ? fact('Ended', html`<span title=${exactTime(told.ended_at_us)}>${time(told.ended_at_us)}, after ${span(told.ended_at_us - told.started_at_us)}</span>`) : nothing}
        ${told.deadline ? fact('Out of time', html`<span title=${exactTime(told.deadline.at_us)}>${time(told.deadline.at_us)}, by its ${told.deadline.timeout} timeout</span>`) : nothing}
        ${fact('Events', count(told.sequence))}
        ${told.status === 'finished' ? nothing : fact('Code', told.is_in_memory ? 'in memory' : 'on disk')}
        ${told.parent ? fact('Parent', html`<a class="mono" href=${link(['run', told.parent])}>${told.parent}</a>`) : nothing}
        ${told.cause ? fact('Caused by', html`<a class="mono" href=${link(['run', told.cause.run])}>${told.cause.run}</a>`) : nothing}
        ${told.is_cancel_requested && told.status !== 'finished' ? fact('Cancel', 'asked for') : nothing}
        ${this.input ? fact('Input', value(this.input, `${told.id}-input`)) : nothing}
        ${this.ended?.result ? fact('Result', value(this.ended.result, `${told.id}-result`)) : nothing}
      </dl></section>
      <section aria-labelledby="timeline"><h2 id="timeline">Timeline</h2>${this.timeline.view()}</section>
      <section aria-labelledby="output"><h2 id="output">Output streams</h2>${this.outputs.view()}</section>
      <section class="trace" aria-labelledby="trace"><h2 id="trace">What led to it, and what came of it</h2>${this.trace.view('Look for it')}</section>
      <section aria-labelledby="events"><h2 id="events">Events <span class="quiet">${count(told.sequence)}</span></h2>
        ${this.rows.element}
        <div class="detail" aria-live="polite">${this.detail()}</div>
      </section>`;
  }

  // Why the run is where it is: what holds it up, or how it has ended.
  reason(told) {
    if (told.status === 'finished') {
      const { ended } = this;
      if (told.timed_out) return html`<section class="why bad" aria-label="How it ended"><p>Its ${told.timed_out} timeout has passed.</p></section>`;
      return ended?.message ? html`<section class="why bad" aria-label="How it ended"><p>${ended.message}</p></section>` : nothing;
    }
    if (!this.why) return nothing;
    const { waits } = this.why;
    return html`<section class="why ${told.parked && told.status !== 'delayed' ? 'bad' : ''}" aria-labelledby="why"><h2 id="why">${'Why it does not go on'}</h2>
      ${waits.length ? this.waits_of(this.why, told, 0) : html`<p>It waits for nothing: its code runs, or has not run yet.</p>`}
    </section>`;
  }

  waits_of(why, told, depth) {
    return html`<ul>${why.waits.map(wait => html`<li>
        <span class="sentence">${wait.sentence}</span>
        ${depth === 0 && wait.kind === 'signal' && operates()
          ? html`<button type="button" class="small" @click=${() => this.signal(told, wait.name)}>Send ${wait.name}…</button>`
          : nothing}
        ${wait.kind === 'child' ? html`<a href=${link(['instances', wait.id])}>${wait.id}</a>` : nothing}
        ${wait.why && depth < 16 ? this.waits_of(wait.why, told, depth + 1) : nothing}
      </li>`)}
      ${why.more_len ? html`<li class="quiet">and ${count(why.more_len)} more</li>` : nothing}</ul>`;
  }

  detail() {
    const event = this.chosen && this.events?.at(this.chosen);
    if (!event) return html`<p class="quiet">Choose an event to see all of it.</p>`;
    const { sequence, at_us, kind, ...rest } = event;
    return html`<h3>${sequence} · ${kind}</h3><dl class="facts">
      <div><dt>At</dt><dd>${exactTime(at_us)}</dd></div>
      ${Object.entries(rest).filter(([, what]) => what !== null && !(Array.isArray(what) && !what.length)).map(
        ([name, what]) => html`<div><dt>${name.replace(/_us$/, '').replaceAll('_', ' ')}</dt><dd>${this.field(name, what, `${this.told.id}-${sequence}-${name}`)}</dd></div>`,
      )}</dl>`;
  }

  field(name, what, file) {
    if (name.endsWith('_us')) return exactTime(what);
    if (name === 'run' || name === 'parent') return html`<a class="mono" href=${link(['run', what])}>${what}</a>`;
    if (name === 'id') return html`<a href=${link(['instances', what])}>${what}</a>`;
    if (typeof what !== 'object') return String(what);
    if ('text' in what || 'unreadable' in what) return value(what, file);
    if (Array.isArray(what)) return html`<ul>${what.slice(0, 100).map((one, i) => html`<li>${this.field('', one, `${file}-${i}`)}</li>`)}</ul>`;
    return html`<dl class="facts">${Object.entries(what).filter(([, inner]) => inner !== null).map(
      ([key, inner]) => html`<div><dt>${key.replaceAll('_', ' ')}</dt><dd>${this.field(key, inner, `${file}-${key}`)}</dd></div>`,
    )}</dl>`;
  }

  buttons(told) {
    if (!operates()) return nothing;
    const again = html`<button type="button" ?disabled=${!this.input?.text} @click=${() => this.again(told)}>Start again with this input…</button>`;
    const asking = this.code?.queries.length
      ? html`<button type="button" @click=${() => this.query(told)}>Query…</button>`
      : nothing;
    const reset = html`<button type="button" class="danger" @click=${() => this.reset(told)}>Reset…</button>`;
    if (told.status === 'finished') return html`<div class="buttons">${asking}${again}${reset}</div>`;
    const parked = told.parked || told.status === 'parked';
    const delayed = told.status === 'delayed';
    const reasoned = (name, label, about, danger) => html`<button type="button" class=${danger ? 'danger' : ''}
      @click=${() => this.reasoned(told, name, label, about, danger)}>${label}…</button>`;
    return html`<div class="buttons">
      <button type="button" @click=${() => this.signal(told)}>Signal…</button>
      ${asking}
      ${this.code?.updates.length ? html`<button type="button" @click=${() => this.update(told)}>Update…</button>` : nothing}
      ${this.code?.commands.length ? html`<button type="button" @click=${() => this.command(told)}>Command…</button>` : nothing}
      ${parked ? html`<button type="button" @click=${() => this.resume(told)}>Resume…</button>` : nothing}
      ${parked && !delayed ? nothing : reasoned('pause', 'Pause', 'Its code stops; what it is sent is recorded.')}
      ${reasoned('cancel', 'Cancel', 'Its code is asked to end, and has time to clean up.')}
      ${reasoned('terminate', 'Terminate', 'It ends at once, without asking its code.', true)}
      ${again}
      ${reset}
    </div>`;
  }

  signal(told, name = '') {
    const waits = [...told.awaited, ...(this.why?.waits ?? [])].filter(wait => wait.kind === 'signal');
    const names = [...new Set([...waits, ...(this.code?.signals ?? [])].map(one => one.name))];
    this.dialog({
      title: `Signal ${told.id}`,
      fields: [
        { name: 'name', label: 'Name of the signal', initial: name || (names.length === 1 ? names[0] : ''), suggestions: names },
        { name: 'value', label: 'Value, as JSON', kind: 'json', hint: 'Left out, it is null. Numbers are sent to the digit.' },
      ],
      button: 'Send',
      perform: fields => post(`${instancePath(told.id)}/signal`, fields),
    });
  }

  query(told) {
    this.dialog({
      title: `Query ${told.id}`,
      about: 'It leaves no trace in the history.',
      fields: [
        { name: 'name', label: 'Query', kind: 'choice', choices: this.code.queries },
        { name: 'question', label: 'Question, as JSON', kind: 'json' },
      ],
      button: 'Ask',
      perform: fields => post(`${instancePath(told.id)}/query`, fields),
      done: ({ answer }) => show(`The answer of ${told.id}`, answer),
    });
  }

  update(told) {
    // Sent again after an error, it is performed once.
    const request = crypto.getRandomValues(new Uint32Array(4)).join('-');
    this.dialog({
      title: `Update ${told.id}`,
      fields: [
        { name: 'name', label: 'Update', kind: 'choice', choices: this.code.updates },
        { name: 'input', label: 'Input, as JSON', kind: 'json' },
      ],
      button: 'Update',
      perform: fields => post(`${instancePath(told.id)}/update`, { ...fields, request: `console-${request}` }),
      done: ({ answer }) => show(`The answer of ${told.id}`, answer),
    });
  }

  // Of an entity, whose id is its name, a slash and its key.
  command(told) {
    const request = crypto.getRandomValues(new Uint32Array(4)).join('-');
    const key = encodeURIComponent(told.id.slice(told.workflow.length + 1));
    this.dialog({
      title: `Command ${told.id}`,
      fields: [
        { name: 'name', label: 'Command', kind: 'choice', choices: this.code.commands },
        { name: 'input', label: 'Input, as JSON', kind: 'json' },
      ],
      button: 'Command',
      perform: fields =>
        post(`v1/entities/${encodeURIComponent(told.workflow)}/${key}/command`, { ...fields, request: `console-${request}` }),
      done: ({ answer }) => show(`The answer of ${told.id}`, answer),
    });
  }

  reasoned(told, name, label, about, danger) {
    this.dialog({
      title: `${label} ${told.id}`,
      about,
      fields: [{ name: 'reason', label: 'Reason', initial: 'from the console', hint: 'It stands in the history.' }],
      button: label,
      danger,
      perform: fields => post(`${instancePath(told.id)}/${name}`, fields),
    });
  }

  resume(told) {
    this.dialog({
      title: `Resume ${told.id}`,
      about: 'Its code runs again, from its history.',
      fields: [],
      button: 'Resume',
      perform: () => post(`${instancePath(told.id)}/resume`, {}),
    });
  }

  reset(told) {
    const [drop, keep] = ['drop them', 'keep them'];
    this.dialog({
      title: `Reset ${told.id}`,
      about: 'This run ends, and another begins with its history up to an event.',
      fields: [
        { name: 'event', label: 'Last event that is kept', kind: 'number', hint: 'By its number in the history below.' },
        { name: 'later', label: 'Signals and updates behind it', kind: 'choice', choices: [drop, keep], initial: drop },
        { name: 'reason', label: 'Reason', initial: 'from the console', hint: 'It stands in the history.' },
      ],
      button: 'Reset',
      danger: true,
      perform: ({ event, later, reason }) =>
        post(`${instancePath(told.id)}/reset`, { to_event: Number(event), keep_signals: later === keep, run: told.run, reason }),
    });
  }

  again(told) {
    startDialog({
      workflow: told.workflow,
      id: told.status === 'finished' ? told.id : `${told.id}-again`,
      input: this.input.text,
      title: 'Start again',
      about: 'A new run with the same input, which may be changed here.',
    });
  }

  dialog(what) {
    ask({
      ...what,
      done: answer => {
        this.repeat.now();
        what.done?.(answer);
      },
    });
  }
}


