// What an operator does to a durable topic: purge it, delete it, remove one of its subscriptions, send its undelivered records
// back. None can be undone, so each asks first, in a dialog that names what goes.

import { html, nothing } from './vendor/lit-html.js';
import { asWritten, post } from './api.js';
import { ask } from './dialog.js';
import { count } from './format.js';
import { operates } from './ui.js';

const path = topic => `v1/topics/${encodeURIComponent(topic)}`;
const records = n => `${count(n)} ${n === 1 ? 'record' : 'records'}`;

// The buttons for a topic that the program has told of. `done` gets the answer, and what was done: 'purged' or 'deleted'.
export function managing(told, done, className = '') {
  if (!operates()) return nothing;
  const button = (label, perform) => html`<button type="button" class="danger ${className}" aria-label="${label}… ${told.name}" @click=${perform}>${label}…</button>`;
  return html`${button('Purge', () => purge(told, answer => done(answer, 'purged')))} ${button('Delete', () => remove(told, answer => done(answer, 'deleted')))}`;
}

function purge(told, done) {
  ask({
    title: `Purge ${told.name}`,
    about: `It has ${records(told.records)}. What is purged is gone, also for subscriptions that have not read it; the numbers of records go on.`,
    fields: [{ name: 'before', label: 'Before number', kind: 'number', optional: true, hint: 'the first record that stays; without a number all go' }],
    button: 'Purge',
    danger: true,
    perform: ({ before }) => post(`${path(told.name)}/purge`, { before: asWritten(before) }),
    done,
  });
}

function remove(told, done) {
  ask({
    title: `Delete ${told.name}`,
    about: `Its ${records(told.records)} and all of its subscriptions go with it. A program that uses it can publish to it again only after a restart.`,
    fields: [],
    button: 'Delete',
    danger: true,
    perform: () => post(`${path(told.name)}/delete`, {}),
    done,
  });
}

// Whether a topic has undelivered records, by the type of what it carries.
export const isOfUndelivered = told => Boolean(told?.payload?.endsWith('UndeliveredRecord'));

// The button that sends one undelivered record back, by its token, or all of a topic.
export function sendingBack(topic, token, done) {
  if (!operates()) return nothing;
  const asked = () =>
    ask({
      title: token ? 'Send it back' : `Send back all of ${topic}`,
      about: `${token ? 'It is' : 'Up to 1,000 records are'} published to ${token ? 'its' : 'their'} own topic again, at the end: all subscriptions get ${token ? 'it' : 'them'}. What was sent back before is not sent again.`,
      fields: [],
      button: 'Send back',
      perform: () => post(`${path(topic)}/send_back`, token ? { token } : { limit: 1000 }),
      done,
    });
  return html`<button type="button" class=${token ? 'small' : ''} @click=${asked}>${token ? 'Send back…' : 'Send all back…'}</button>`;
}

// The button for one subscription of a topic.
export function removing(topic, { name, lag }, done) {
  if (!operates()) return nothing;
  const asked = () =>
    ask({
      title: `Remove ${name}`,
      about: `Its place in ${topic} is forgotten: it has not read ${records(lag)}. Consumers that are open end; opened again, it is a new subscription.`,
      fields: [],
      button: 'Remove',
      danger: true,
      perform: () => post(`${path(topic)}/remove_subscription`, { name }),
      done,
    });
  return html`<button type="button" class="danger small" aria-label="Remove… ${name}" @click=${asked}>Remove…</button>`;
}
