// Which runs are looked for: what stands in the address, and how the API is asked for it.

import { count } from './format.js';

export const STATUSES = ['running', 'parked', 'paused', 'delayed', 'not-registered', 'completed', 'failed', 'cancelled', 'terminated', 'timed-out', 'continued'];
export const LIVE = STATUSES.slice(0, 5);

// How long ago runs may have begun, in seconds.
export const SINCE = [
  ['', 'at any time'],
  ['15m', 'in the last 15 minutes', 900],
  ['1h', 'in the last hour', 3600],
  ['24h', 'in the last 24 hours', 86_400],
  ['7d', 'in the last 7 days', 604_800],
];

export class Filter {
  constructor(parameters) {
    const text = name => parameters.get(name) ?? '';
    this.workflow = text('workflow');
    this.statuses = text('status').split(',').filter(status => STATUSES.includes(status));
    this.prefix = text('prefix');
    this.since = SINCE.some(([since]) => since === text('since')) ? text('since') : '';
  }

  // As it stands in the address, with these changes.
  parameters(changes = {}) {
    return { workflow: this.workflow, status: this.statuses.join(','), prefix: this.prefix, since: this.since, ...changes };
  }

  // As a body has it. Without statuses it is for all.
  body() {
    const [, , seconds] = SINCE.find(([since]) => since === this.since);
    return {
      ...(this.workflow && { workflow: this.workflow }),
      ...(this.statuses.length && { status: this.statuses }),
      ...(this.prefix && { id_prefix: this.prefix }),
      ...(seconds && { started_from_us: (Date.now() - seconds * 1000) * 1000 }),
    };
  }

  // As parameters of `v1/runs`.
  query(more = {}) {
    const { status, ...rest } = this.body();
    return new URLSearchParams({ ...rest, ...(status && { status: status.join(',') }), ...more }).toString();
  }

  // Whether a change may add a run to those that are looked for, or take one away.
  matters(change) {
    if (change.kind === 'gap') return true;
    if (change.id === undefined) return false;
    return (!this.workflow || change.workflow === this.workflow) && change.id.startsWith(this.prefix);
  }

  // In words.
  get told() {
    const told = [
      this.statuses.length ? this.statuses.join(' or ') : 'all',
      this.workflow ? `of the workflow ${this.workflow}` : '',
      this.prefix ? `with ids that begin with ${this.prefix}` : '',
      this.since ? `that began ${SINCE.find(([since]) => since === this.since)[1]}` : '',
    ];
    return told.filter(Boolean).join(', ');
  }
}

// A filter in words, as the API gives it back.
export function toldOf(filter) {
  if (!filter) return '';
  const time = us => new Date(Number(us) / 1000).toLocaleString();
  const told = [
    filter.status.length ? filter.status.join(' or ') : 'all runs',
    filter.workflow && `of the workflow ${filter.workflow}`,
    filter.id_prefix && `with ids that begin with ${filter.id_prefix}`,
    filter.started_from_us !== null && `that began since ${time(filter.started_from_us)}`,
    filter.started_until_us !== null && `that began before ${time(filter.started_until_us)}`,
    filter.ended_from_us !== null && `that ended since ${time(filter.ended_from_us)}`,
    filter.ended_until_us !== null && `that ended before ${time(filter.ended_until_us)}`,
  ];
  return told.filter(Boolean).join(', ');
}

const field = status => status.replace('-', '_');

// How many runs of a status there are, as `v1/counts` tells: of one workflow, or of all.
export function counted(counts, status, workflow) {
  if (!counts) return undefined;
  const rows = workflow ? counts.workflows.filter(row => row.workflow === workflow) : [...counts.workflows, counts.others];
  return rows.reduce((sum, row) => sum + row[field(status)], 0);
}

// The workflows that have runs, each with how many are live.
export function workflowsOf(counts, chosen) {
  const rows = (counts?.workflows ?? []).map(row => {
    const live = LIVE.reduce((sum, status) => sum + row[field(status)], 0);
    return [row.workflow, `${row.workflow} (${count(live)} live)`];
  });
  if (chosen && !rows.some(([name]) => name === chosen)) rows.push([chosen, chosen]);
  return rows;
}
