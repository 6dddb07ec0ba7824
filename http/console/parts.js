// The supervision tree: the parts of the runtime, whether each runs, and how often it was restarted.

import { html } from './vendor/lit-html.js';
import { get } from './api.js';
import { count } from './format.js';
import { Repeat, trouble, ui } from './ui.js';

const SHOWN = 300;

export class Parts {
  title = 'Supervision';

  constructor() {
    this.repeat = new Repeat(2000, async () => {
      try {
        this.parts = (await get('v1/parts')).parts;
        this.error = null;
      } catch (error) {
        this.error = error;
      }
      ui.draw();
    });
  }

  stop() {
    this.repeat.stop();
  }

  view() {
    if (!this.parts) return html`<h1>Supervision</h1>${this.error ? trouble(this.error) : html`<p class="quiet">Asking the program…</p>`}`;
    const groups = new Map();
    for (const part of this.parts.slice(0, SHOWN)) {
      const [kind, ...rest] = part.name.split(' ');
      const name = rest.join(' ');
      if (!groups.has(kind)) groups.set(kind, []);
      groups.get(kind).push({ ...part, short: name || kind });
    }
    const leaf = part => html`<li class="part ${part.is_running ? '' : 'down'}"><span aria-hidden="true">${part.is_running ? '●' : '✗'}</span>
      <span class="name">${part.short}</span> <span class="quiet">${part.is_running ? 'runs' : 'does not run'}${part.restarts ? `, restarted ${count(part.restarts)} times` : ''}</span></li>`;
    return html`<h1>Supervision</h1>${trouble(this.error)}
      <ul class="tree"><li><span class="name">runtime</span> <span class="quiet">${count(this.parts.length)} parts</span>
        <ul>${[...groups].map(([kind, parts]) =>
          parts.length === 1 && parts[0].short === kind ? leaf(parts[0]) : html`<li><span class="name">${kind}</span> <span class="quiet">${count(parts.length)}</span><ul>${parts.map(leaf)}</ul></li>`,
        )}</ul></li></ul>
      ${this.parts.length > SHOWN ? html`<p class="quiet">${count(this.parts.length - SHOWN)} more are not shown.</p>` : ''}`;
  }
}
