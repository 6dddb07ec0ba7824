// Asks the program. The address of the page ends with `console`, and all else is beside it: any prefix works.

import { parse } from './exact.js';

export const BASE = new URL('.', document.baseURI);

// What the program says when it refuses: a problem of RFC 9457. Without an answer it has the code `unreachable`.
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title);
    this.code = String(problem.type).replace('urn:millrun:problem:', '');
    this.title = problem.title;
    this.advice = problem.advice;
    this.status = problem.status;
  }
}

async function ask(path, init) {
  let response;
  try {
    response = await fetch(new URL(path, BASE), { cache: 'no-store', credentials: 'same-origin', ...init });
  } catch {
    throw new Refused({
      type: 'unreachable',
      title: 'the program does not answer',
      advice: 'it may have stopped, or be starting again; this page asks again by itself',
      status: 0,
    });
  }
  const text = await response.text();
  let body;
  try {
    body = parse(text);
  } catch {
    body = { type: 'unknown', title: `the answer ${response.status} is no JSON`, advice: '', status: response.status };
    throw new Refused(body);
  }
  if (!response.ok) throw new Refused(body);
  return [body, text.length];
}

export const get = async (path, signal) => (await ask(path, { signal }))[0];

// The answer, and of how many characters it was.
export const getSized = (path, signal) => ask(path, { signal });

// Sends a body of fields; a field may be a text of JSON that is sent as it was written, see `asWritten`.
export async function post(path, fields, headers = {}) {
  const body = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${value instanceof Written ? value.text : JSON.stringify(value)}`)
    .join(',');
  const [answer] = await ask(path, {
    method: 'POST',
    body: `{${body}}`,
    headers: { 'content-type': 'application/json', ...headers },
  });
  return answer;
}

class Written {
  constructor(text) {
    this.text = text;
  }
}

// A text that is JSON, kept to the digit. Throws if it is none; an empty one is left out.
export function asWritten(text) {
  if (!text.trim()) return undefined;
  parse(text);
  return new Written(text);
}

export const instancePath = id => `v1/instances/${encodeURIComponent(id)}`;
