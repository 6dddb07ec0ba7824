// Shows a payload: a short one in the line, a long one folded, a very long one cut and as a file.

import { html, nothing } from './vendor/lit-html.js';
import { Payload, pretty } from './exact.js';
import { bytes } from './format.js';
import { ui } from './ui.js';

// Characters of a value that stands in the line, of its beginning when it is folded, and of it unfolded.
const LINE = 100;
const BEGINNING = 72;
export const SHOWN = 16 * 1024;

const unfolded = new WeakSet();

export function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = `${name}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// The payload, or what stands in its place; `name` is that of the file.
export function value(payload, name = 'value') {
  if (payload === null || payload === undefined) return nothing;
  if (!(payload instanceof Payload)) {
    return html`<span class="quiet">unreadable: ${payload.unreadable ?? 'unknown'}</span>`;
  }
  const { text } = payload;
  if (text.length <= LINE) return html`<code class="value">${text}</code>`;
  const toggled = event => {
    if (event.target.open === unfolded.has(payload)) return;
    if (event.target.open) unfolded.add(payload);
    else unfolded.delete(payload);
    ui.draw();
  };
  const open = unfolded.has(payload);
  const shown = open ? pretty(text, SHOWN) : nothing;
  return html`<details class="value" .open=${open} @toggle=${toggled}>
    <summary><code>${text.slice(0, BEGINNING)}…</code> <span class="quiet">${bytes(text.length)}</span></summary>
    ${open
      ? html`<pre tabindex="0" aria-label="value">${shown.text}</pre>
          ${shown.cut ? html`<p class="quiet">Cut here: the first ${bytes(SHOWN)} are shown.</p>` : nothing}
          <button type="button" class="small" @click=${() => save(text, name)}>Download</button>`
      : nothing}
  </details>`;
}
