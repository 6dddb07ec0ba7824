// What goes on in the program, asked for once per browser: of all tabs that are looked at, one leads. It asks, and
// tells the others. A browser has about six connections to a program, and eight tabs with a stream each would leave
// none for requests.
//
//   leader ── v1/stats, each second ──► program
//     │   v1/past, each five seconds
//     │   v1/changes, a stream while some tab looks at runs
//     └── BroadcastChannel ──► the other tabs
//
// The lock passes on when the leading tab is closed or hidden, and when the user turns to another one. Where the browser has no locks (a page that came
// neither by https nor from this machine), each tab asks for itself.

import { BASE, get } from './api.js';
import { parse } from './exact.js';
import { Past, filled, forget } from './past.js';

// Changes are told together: what came within so long, and no more than so many; beyond that all is read again.
const GATHER_MS = 50;
const GATHERED_MAX = 200;
// How long the wish of another tab counts. It is repeated with each sample.
const WISH_MS = 4000;
// How long a stream that was refused is not asked for again.
const REFUSED_MS = 5000;
const NAME = `millrun ${BASE.href}`;

class Live {
  samples = [];
  past = new Past();
  stats = null;
  error = null;
  leads = false;
  wants = 0;
  wantedUntil = 0;
  refusedUntil = 0;
  gathered = [];
  listeners = new Set();
  channel = new BroadcastChannel(NAME);

  start() {
    this.channel.onmessage = ({ data }) => this.hear(data);
    this.channel.postMessage({ kind: 'hello' });
    document.addEventListener('visibilitychange', () => this.seek());
    addEventListener('pagehide', () => this.rest());
    addEventListener('pageshow', event => event.persisted && this.seek());
    addEventListener('focus', () => this.seek(true));
    this.seek(document.hasFocus());
  }

  // Calls `listener` with 'stats' at each sample, with 'runs' when by the counts a run has begun, ended or been parked or
  // resumed, with 'changes' and a list of those that the program has told (see `want`), and with 'leads' when this tab
  // begins or ceases to lead. Gives what ends it.
  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(what, detail) {
    for (const listener of this.listeners) listener(what, detail);
  }

  // Has changes of runs told as soon as they are durable. Gives what ends it.
  want() {
    this.wants++;
    if (this.leads) this.reach();
    else this.channel.postMessage({ kind: 'want' });
    return () => this.wants--;
  }

  // Opens the stream of changes, or closes it when no tab looks at runs any more.
  reach(over = false) {
    const now = Date.now();
    if (over || (!this.wants && now > this.wantedUntil)) {
      this.stream?.close();
      this.stream = null;
      return;
    }
    if (this.stream?.readyState === EventSource.CLOSED) {
      this.stream = null;
      this.refusedUntil = now + REFUSED_MS;
    }
    if (this.stream || now < this.refusedUntil) return;
    this.stream = new EventSource(new URL('v1/changes', BASE));
    this.stream.onmessage = ({ data }) => this.gather(parse(data));
    this.stream.addEventListener('gap', () => this.gather({ kind: 'gap' }));
  }

  gather(change) {
    if (this.gathered.length >= GATHERED_MAX) this.gathered = [{ kind: 'gap' }];
    this.gathered.push(change);
    this.gathering ??= setTimeout(() => {
      const changes = this.gathered;
      this.gathered = [];
      this.gathering = null;
      this.channel.postMessage({ kind: 'changes', changes });
      this.tell('changes', changes);
    }, GATHER_MS);
  }

  hear(data) {
    if (data.kind === 'hello' && this.leads && this.samples.length) {
      this.channel.postMessage({ kind: 'past', samples: this.samples, stats: this.stats, past: this.past.samples, last: this.past.last });
    } else if (data.kind === 'past' && this.samples.length < data.samples.length) {
      this.samples = data.samples;
      this.stats = data.stats;
      this.past.samples = data.past;
      this.past.last = data.last;
      this.tell('stats');
    } else if (data.kind === 'stats') {
      if (this.wants && !document.hidden) this.channel.postMessage({ kind: 'want' });
      this.take(data.stats, data.at);
    } else if (data.kind === 'want' && this.leads) {
      this.wantedUntil = Date.now() + WISH_MS;
      this.reach();
    } else if (data.kind === 'more') {
      this.past.last = data.last;
      this.recall(data.samples);
    } else if (data.kind === 'changes') this.tell('changes', data.changes);
    else if (data.kind === 'error') this.fail(data.error);
  }

  // Waits for its turn to lead; the tab that the user turns to takes it at once.
  async seek(takes = false) {
    if (document.hidden) return this.rest();
    const lead = () => this.lead(new Promise(done => (this.release = done)));
    if (!navigator.locks) return lead();
    if (this.leads || (this.seeking && !takes)) return;
    this.seeking?.abort();
    const seeking = (this.seeking = new AbortController());
    const { signal } = seeking;
    try {
      await navigator.locks.request(NAME, takes ? { steal: true } : { signal }, () =>
        document.hidden || signal.aborted ? undefined : lead(),
      );
    } catch (error) {
      if (error.name !== 'AbortError') throw error;
      // Another tab has taken the turn, or this one is hidden.
      if (this.seeking === seeking) this.release?.();
    }
    if (this.seeking !== seeking) return;
    this.seeking = null;
    this.seek();
  }

  rest() {
    this.seeking?.abort();
    this.release?.();
  }

  async lead(end) {
    if (this.leads) return;
    let over = false;
    this.leads = true;
    this.tell('leads');
    end.then(() => (over = true));
    while (!over) {
      this.reach();
      try {
        const stats = await get('v1/stats');
        const at = Date.now();
        this.channel.postMessage({ kind: 'stats', stats, at });
        this.take(stats, at);
        const samples = await this.past.more();
        if (samples.length) {
          this.channel.postMessage({ kind: 'more', samples, last: this.past.last });
          this.recall(samples);
        }
      } catch (error) {
        const { code, title, message, advice } = error;
        this.channel.postMessage({ kind: 'error', error: { code, title, message, advice } });
        this.fail(error);
      }
      await Promise.race([end, new Promise(wake => setTimeout(wake, this.error ? 3000 : 1000))]);
    }
    this.leads = false;
    this.reach(true);
    this.tell('leads');
  }

  take(stats, at) {
    const before = this.stats;
    this.stats = stats;
    this.error = null;
    const last = this.samples.at(-1);
    const sample = {
      at,
      started: stats.started,
      finished: stats.finished,
      events: stats.events,
      attempts: stats.attempts,
      commits: stats.journal.commits,
      turns: stats.journal.turns,
      bytes: stats.journal.bytes,
      live: stats.live,
      parked: stats.parked,
      waiting: stats.queues.reduce((sum, queue) => sum + queue.waiting, 0),
      queued_bytes: stats.journal.queued_bytes,
      commit_ms: stats.journal.last_commit_us / 1000,
    };
    // A counter that has gone back is that of another process.
    if (last && sample.events < last.events) {
      this.samples = [];
      this.past.clear();
    }
    this.samples.push(sample);
    forget(this.samples, at);
    this.tell('stats');
    const moved = ['started', 'finished', 'parked', 'live'].some(name => before?.[name] !== stats[name]);
    if (moved) this.tell('runs');
  }

  // Takes in what the program has kept. It also fills what this tab has missed: what was before its first sample, and
  // while no tab was looked at.
  recall(samples) {
    this.past.take(samples, Date.now());
    this.samples = filled(this.samples, samples);
    this.tell('stats');
  }

  fail(error) {
    this.error = error;
    this.tell('stats');
  }

  // How fast a counter has grown lately, per second.
  rate(name) {
    const last = this.samples.at(-1);
    const before = this.samples.at(-6) ?? this.samples[0];
    if (!last || last === before) return undefined;
    return ((last[name] - before[name]) * 1000) / (last.at - before.at);
  }
}

export const live = new Live();
