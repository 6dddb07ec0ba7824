// How the program does: rates, what waits, what the disk does, and what wants to be looked at.

import { html, nothing } from './vendor/lit-html.js';
import { get } from './api.js';
import { Chart } from './chart.js';
import { brief, bytes, count, short } from './format.js';
import { live } from './live.js';
import { Repeat, trouble, ui } from './ui.js';

const perSecond = name => (now, before) => ((now[name] - before[name]) * 1000) / Math.max(1, now.at - before.at);
const level = name => now => now[name];
// How long things took: half of them, and 99 of a hundred, no longer than this.
const times = (label, name) =>
  new Chart(label, [
    { label: 'p50', colour: 'c1', of: now => now[name].p50_us },
    { label: 'p99', colour: 'c2', of: now => now[name].p99_us },
  ], brief, true);

const drawn = (chart, samples) => {
  const figures = chart.last(samples);
  return html`<figure>
    <figcaption><span class="name">${chart.label}</span>${chart.series.map(
      (one, s) => html`<span class="key"><i class=${one.colour} aria-hidden="true"></i>${one.label} <b>${chart.shown(figures[s])}</b></span>`,
    )}</figcaption>
    ${chart.element}
  </figure>`;
};

export class Overview {
  title = 'Overview';

  constructor() {
    this.charts = [
      new Chart('Runs per second', [
        { label: 'started', colour: 'c1', of: perSecond('started') },
        { label: 'finished', colour: 'c2', of: perSecond('finished') },
      ], short),
      new Chart('Events and attempts per second', [
        { label: 'events', colour: 'c1', of: perSecond('events') },
        { label: 'attempts', colour: 'c2', of: perSecond('attempts') },
      ], short),
      new Chart('Commits per second', [
        { label: 'commits', colour: 'c1', of: perSecond('commits') },
        { label: 'turns', colour: 'c2', of: perSecond('turns') },
      ], short),
      new Chart('Live runs', [
        { label: 'live', colour: 'c1', of: level('live') },
        { label: 'parked', colour: 'c3', of: level('parked') },
      ], short),
      new Chart('Activities that wait in queues', [{ label: 'waiting', colour: 'c1', of: level('waiting') }], short),
    ];
    // Of these the program keeps samples, if it does; without them there is the last commit.
    this.times = [
      times('Time of runs', 'run_times'),
      times('Time of attempts', 'attempt_times'),
      times('Waits in queues', 'wait_times'),
      times('Time of commits', 'commit_times'),
    ];
    this.lastCommit = new Chart('Time of the last commit', [{ label: 'commit', colour: 'c1', of: level('commit_ms') }], ms => `${short(ms)} ms`);
    this.end = live.on(what => what === 'stats' && this.redraw());
    this.repeat = new Repeat(5000, async () => {
      const [parts, topology] = await Promise.all([get('v1/parts'), get('v1/topology')]);
      this.down = parts.parts.filter(part => !part.is_running);
      this.full = topology.subscriptions.filter(one => one.capacity && one.queued >= one.capacity);
      ui.draw();
    });
    requestAnimationFrame(() => this.redraw());
  }

  redraw() {
    for (const chart of [...this.charts, this.lastCommit]) chart.draw(live.samples);
    for (const chart of this.times) chart.draw(live.past.samples);
    ui.draw();
  }

  stop() {
    this.end();
    this.repeat.stop();
    for (const chart of [...this.charts, ...this.times, this.lastCommit]) chart.stop();
  }

  // What somebody has to look at, as sentences with links.
  wanting() {
    const { stats } = live;
    const all = [];
    if (stats.parked) all.push(html`<a href="#/runs?status=parked">${count(stats.parked)} parked</a>: their code does not run until somebody has looked at them`);
    for (const part of this.down ?? []) all.push(html`the part <a href="#/parts">${part.name}</a> does not run`);
    for (const one of this.full ?? []) all.push(html`the inbox of <a href="#/topics">${one.name}</a> is full`);
    const { journal } = stats;
    if (journal.is_disk_full) all.push('the disk is full: a commit waits for room');
    if (journal.is_archive_failing) all.push('the archive cannot be written, so that nothing is dropped');
    if (journal.is_retention_stopped) all.push('retention has stopped at a row that cannot be read');
    if (stats.replay_differences) all.push(`${count(stats.replay_differences)} finished runs did not replay as they ran`);
    return all;
  }

  view() {
    const { stats } = live;
    if (!stats) return live.error ? trouble(live.error) : html`<h1>Overview</h1><p class="quiet">Asking the program…</p>`;
    const tile = (label, figure, more = nothing, href) => html`<div class="tile">
      <dt>${href ? html`<a href=${href}>${label}</a>` : label}</dt><dd><strong>${figure}</strong> <span class="quiet">${more}</span></dd>
    </div>`;
    const rate = name => (live.rate(name) === undefined ? '–' : `${short(live.rate(name))}/s`);
    const { journal } = stats;
    const wanting = this.wanting();
    const waiting = stats.queues.reduce((sum, queue) => sum + queue.waiting, 0);
    return html`<h1>Overview</h1>
      ${wanting.length
        ? html`<section class="wanting" aria-label="To look at"><ul>${wanting.map(one => html`<li>${one}</li>`)}</ul></section>`
        : nothing}
      <dl class="tiles">
        ${tile('Live runs', short(stats.live), `${short(stats.hot)} in memory`, '#/runs')}
        ${tile('Parked', short(stats.parked), '', '#/runs?status=parked')}
        ${tile('Started', rate('started'), `${short(stats.started)} in all`)}
        ${tile('Finished', rate('finished'), `${short(stats.finished)} in all`)}
        ${tile('Events', rate('events'), `${short(stats.events)} in all`)}
        ${tile('Attempts', short(stats.attempts_running), `running, ${rate('attempts')}`, '#/queues')}
        ${tile('Waiting', short(waiting), 'activities in queues', '#/queues')}
        ${tile('Commits', rate('commits'), `${short(stats.journal.last_commit_us / 1000)} ms the last`)}
        ${tile('To be committed', bytes(journal.queued_bytes), live.rate('bytes') === undefined ? '' : `${bytes(Math.round(live.rate('bytes')))}/s`)}
        ${tile('Store', bytes(journal.file_bytes), `${short(journal.finished_runs)} finished runs${journal.is_compacting ? ', compacting' : ''}`)}
      </dl>
      <div class="charts">${this.charts.map(chart => drawn(chart, live.samples))}
        ${live.past.samples.length ? this.times.map(chart => drawn(chart, live.past.samples)) : drawn(this.lastCommit, live.samples)}</div>`;
  }
}
