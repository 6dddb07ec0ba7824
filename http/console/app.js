// The page: its head, which part of it is shown, and signing in. What is shown stands behind the # of the address.

import { html, nothing, render } from './vendor/lit-html.js';
import { BASE, post } from './api.js';
import { Broker } from './broker.js';
import { Bulk } from './bulk.js';
import { live } from './live.js';
import { Overview } from './overview.js';
import { Parts } from './parts.js';
import { Queues } from './queues.js';
import { Records } from './records.js';
import { Run } from './run.js';
import { Runs } from './runs.js';
import { Tail } from './tail.js';
import { trouble, ui } from './ui.js';

const PARTS = { '': Overview, runs: Runs, instances: Run, run: Run, topics: Broker, records: Records, queues: Queues, parts: Parts, bulk: Bulk };
const LINKS = [['', 'Overview'], ['runs', 'Runs'], ['topics', 'Topics'], ['queues', 'Queues'], ['parts', 'Supervision']];

let shown = null;
let first = '';
let waits = false;
let refusal = null;

function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const decoded = part => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return { path: path.split('/').map(decoded), parameters: new URLSearchParams(query) };
}

function go() {
  if (!ui.role) return;
  if (location.hash && !location.hash.startsWith('#/')) return;
  const to = route();
  const moved = first !== to.path.join('/');
  shown?.stop();
  first = to.path.join('/');
  const Part = to.path[0] === 'topics' && to.path[1] ? Tail : PARTS[to.path[0]] ?? Overview;
  shown = new Part(to);
  draw();
  if (moved) {
    scrollTo(0, 0);
    document.getElementById('page').focus({ preventScroll: true });
  }
}

function head() {
  const at = first.split('/')[0];
  const current = name => (at === name || (name === 'runs' && ['run', 'instances', 'bulk'].includes(at)) || (name === 'topics' && at === 'records') ? 'page' : nothing);
  const state = live.error ? ['bad', 'no answer'] : live.stats ? ['good', 'live'] : ['', 'asking'];
  return html`<a class="brand" href="#/" title=${BASE.href}><span class="logo" aria-hidden="true">m</span> millrun</a>
    ${ui.role
      ? html`<nav aria-label="Parts of the page">${LINKS.map(([name, label]) => html`<a href="#/${name}" aria-current=${current(name)}>${label}</a>`)}</nav>
        <span class="state"><span class="dot ${state[0]}" aria-hidden="true"></span> ${state[1]}<span class="role quiet">${ui.role}</span></span>`
      : nothing}`;
}

function draw() {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => {
    waits = false;
    render(head(), document.getElementById('head'));
    const page = document.getElementById('page');
    if (!ui.role) render(refusal ? signIn() : html`<p class="quiet">Asking the program…</p>`, page);
    else {
      render(html`${live.error && live.stats ? trouble(live.error) : nothing}${shown.view()}`, page);
      document.title = `${shown.title} · millrun`;
    }
  });
}

ui.draw = draw;

function signIn() {
  const wanted = refusal.code === 'token';
  return html`<section class="sign-in"><h1>${wanted ? 'Sign in' : 'millrun'}</h1>${trouble(refusal)}
    ${wanted
      ? html`<form @submit=${event => {
          event.preventDefault();
          enter(new FormData(event.target).get('token'));
        }}>
        <input name="username" autocomplete="username" value="millrun" hidden>
        <div class="field"><label for="token">Token</label><input id="token" name="token" type="password" required autocomplete="current-password" spellcheck="false"></div>
        <button type="submit" class="main">Sign in</button>
        <p class="quiet">The program was given it when it was started. It is traded for a cookie that scripts cannot read.</p>
      </form>`
      : html`<button type="button" @click=${() => enter()}>Try again</button>`}</section>`;
}

// Asks for the caller's role, which trades a token for a cookie.
async function enter(token) {
  try {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    ui.role = (await post('v1/session', {}, headers)).role;
    refusal = null;
    live.start();
    go();
  } catch (error) {
    refusal = error;
    if (error.code === 'unreachable') setTimeout(() => enter(), 3000);
    draw();
  }
}

live.on(what => what === 'stats' && draw());
addEventListener('hashchange', go);
document.querySelector('.skip').addEventListener('click', event => {
  // The # of the address is taken.
  event.preventDefault();
  document.getElementById('page').focus();
});
draw();
enter();
