// Reads JSON without loss: integers beyond 2^53 become BigInt, and a payload (an object whose only field is `value`)
// keeps its source text, in which numbers of any size and the order of fields are as they were. JSON.parse rounds the
// former and sorts the latter.

// A value of the user's, as JSON.
export class Payload {
  constructor(text) {
    this.text = text;
  }
}

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

export function parse(text) {
  let at = 0;
  const wrong = () => {
    throw new SyntaxError(`no JSON at ${at}`);
  };
  const space = () => {
    for (;;) {
      const code = text.charCodeAt(at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      at++;
    }
  };
  const word = (name, value) => {
    if (!text.startsWith(name, at)) wrong();
    at += name.length;
    return value;
  };
  const string = () => {
    const from = at;
    at++;
    let plain = true;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code === 34) break;
      if (code === 92) {
        plain = false;
        at++;
      } else if (code !== code) wrong();
      at++;
    }
    at++;
    return plain ? text.slice(from + 1, at - 1) : JSON.parse(text.slice(from, at));
  };
  const number = () => {
    NUMBER.lastIndex = at;
    const found = NUMBER.exec(text);
    if (!found) wrong();
    at += found[0].length;
    const value = Number(found[0]);
    return Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(found[0])
      ? BigInt(found[0])
      : value;
  };
  const list = () => {
    const all = [];
    at++;
    space();
    if (text[at] === ']') return at++, all;
    for (;;) {
      all.push(value());
      space();
      if (text[at] === ']') return at++, all;
      if (text[at++] !== ',') wrong();
    }
  };
  const object = () => {
    const all = Object.create(null);
    let count = 0;
    let from = 0;
    let to = 0;
    at++;
    space();
    if (text[at] === '}') return at++, all;
    for (;;) {
      space();
      if (text[at] !== '"') wrong();
      const key = string();
      space();
      if (text[at++] !== ':') wrong();
      space();
      from = at;
      all[key] = value();
      to = at;
      count++;
      space();
      if (text[at] === '}') {
        at++;
        return count === 1 && key === 'value' ? new Payload(text.slice(from, to)) : all;
      }
      if (text[at++] !== ',') wrong();
    }
  };
  const value = () => {
    space();
    switch (text.charCodeAt(at)) {
      case 123: return object();
      case 91: return list();
      case 34: return string();
      case 116: return word('true', true);
      case 102: return word('false', false);
      case 110: return word('null', null);
      default: return number();
    }
  };
  const all = value();
  space();
  if (at !== text.length) wrong();
  return all;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// The same JSON on lines of its own, cut behind about so many characters.
export function pretty(text, most) {
  let out = '';
  let depth = 0;
  let open = false;
  const line = () => {
    out += `\n${'  '.repeat(depth)}`;
  };
  for (const [token] of text.matchAll(TOKEN)) {
    if (out.length > most) return { text: `${out.slice(0, most)}…`, cut: true };
    if (token === '}' || token === ']') {
      depth--;
      if (!open) line();
      out += token;
      open = false;
      continue;
    }
    if (open) line();
    open = token === '{' || token === '[';
    if (open) depth++;
    out += token === ':' ? ': ' : token;
    if (token === ',') line();
  }
  return out.length > most ? { text: `${out.slice(0, most)}…`, cut: true } : { text: out, cut: false };
}
