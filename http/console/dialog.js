// Asks the caller for what an operation needs, performs it, and says how it went.

import { html, nothing, render } from './vendor/lit-html.js';
import { asWritten } from './api.js';
import { pretty } from './exact.js';
import { trouble, ui } from './ui.js';
import { save, SHOWN } from './value.js';

// Opens a dialog. Each field has `name`, `label`, and may have `kind` ('text', 'json' or 'choice' with `choices`),
// `initial`, `hint`, `suggestions` and `optional`. `perform` gets the values, those of JSON as they were written.
export function ask({ title, about, fields, button, danger = false, perform, done = () => {} }) {
  const dialog = opened();
  let error = null;
  let busy = false;
  const field = one => {
    const id = `field-${one.name}`;
    const hint = one.hint ? `${id}-hint` : nothing;
    const control =
      one.kind === 'json'
        ? html`<textarea id=${id} name=${one.name} rows="5" spellcheck="false" autocomplete="off" aria-describedby=${hint}
            .value=${one.initial ?? ''}></textarea>`
        : one.kind === 'choice'
          ? html`<select id=${id} name=${one.name} aria-describedby=${hint}>
              ${one.choices.map(choice => html`<option ?selected=${choice === one.initial}>${choice}</option>`)}
            </select>`
          : html`<input id=${id} name=${one.name} type=${one.kind ?? 'text'} spellcheck="false" autocomplete="off" aria-describedby=${hint}
                list=${one.suggestions?.length ? `${id}-list` : nothing} ?required=${!one.optional} .value=${one.initial ?? ''}>
              ${one.suggestions?.length
                ? html`<datalist id="${id}-list">${one.suggestions.map(text => html`<option value=${text}></option>`)}</datalist>`
                : nothing}`;
    return html`<div class="field"><label for=${id}>${one.label}</label>${control}
      ${one.hint ? html`<span class="quiet" id=${hint}>${one.hint}</span>` : nothing}</div>`;
  };
  const draw = () =>
    render(
      html`<form method="dialog" @submit=${submit}>
        <h2 id="dialog-title">${title}</h2>
        ${about ? html`<p>${about}</p>` : nothing} ${fields.map(field)} ${trouble(error)}
        <div class="buttons">
          <button type="button" @click=${() => dialog.close()}>Close</button>
          <button type="submit" class=${danger ? 'danger' : 'main'} ?disabled=${busy}>${button}</button>
        </div>
      </form>`,
      dialog,
    );
  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const form = new FormData(event.target);
    const values = {};
    try {
      for (const { name, kind, label } of fields) {
        const text = String(form.get(name));
        try {
          values[name] = kind === 'json' ? asWritten(text) : text;
        } catch (wrong) {
          throw Object.assign(new Error(wrong.message), { title: `${label}: this is no JSON` });
        }
      }
      busy = true;
      draw();
      const answer = await perform(values);
      dialog.close();
      ui.say(`${title}: done`);
      done(answer);
    } catch (wrong) {
      busy = false;
      error = wrong;
      draw();
    }
  }
  draw();
  dialog.showModal();
  dialog.querySelector('input, textarea, select, button')?.focus();
}

// Shows a payload that an operation has answered.
export function show(title, payload) {
  const dialog = opened();
  const { text, cut } = pretty(payload?.text ?? JSON.stringify(payload), SHOWN);
  render(
    html`<h2 id="dialog-title">${title}</h2>
      <pre class="value" tabindex="0" aria-label="answer">${text}</pre>
      ${cut ? html`<p class="quiet">Cut here; the file has all of it.</p>` : nothing}
      <div class="buttons">
        <button type="button" @click=${() => save(payload.text, title)}>Download</button>
        <button type="button" class="main" @click=${() => dialog.close()}>Close</button>
      </div>`,
    dialog,
  );
  dialog.showModal();
}

// A dialog that gives the focus back when it is closed.
export function opened() {
  const dialog = document.createElement('dialog');
  const before = document.activeElement;
  dialog.setAttribute('aria-labelledby', 'dialog-title');
  dialog.addEventListener('close', () => {
    dialog.remove();
    before?.focus?.();
  });
  document.getElementById('dialogs').append(dialog);
  return dialog;
}
