// The minutes before the page was opened, and how long things take: what the program keeps of them, if it does.
//
//   GET v1/past?after=.. ──► Past: samples of the program, one each 5 s ──► live, charts

import { get } from './api.js';

// How much of the past a tab keeps.
export const PAST_MS = 900_000;

// How often the program is asked for what is new.
const ASK_MS = 5000;

// Samples of a tab, one a second, that are further apart have a gap between them.
const GAP_MS = 5000;

// Drops the samples that are older than the past that a tab keeps.
export function forget(samples, now) {
  const kept = samples.findIndex(one => one.at >= now - PAST_MS);
  samples.splice(0, kept < 0 ? samples.length : kept);
}

// The samples of a tab with those of the program in its gaps, which are longer than the program's interval: before the
// first, and between two. Those of another process have counted less, or more, than their neighbours.
export function filled(samples, kept) {
  const all = [];
  let next = 0;
  samples.forEach((one, i) => {
    const from = i ? samples[i - 1] : { at: -Infinity, events: 0 };
    const isGap = one.at - from.at > GAP_MS;
    for (; next < kept.length && kept[next].at < one.at; next++) {
      const { at, events } = kept[next];
      if (isGap && at > from.at && events >= from.events && events <= one.events) all.push(kept[next]);
    }
    all.push(one);
  });
  return all;
}

export class Past {
  samples = [];
  asked = 0;
  // The program's time of the last sample.
  last = 0;

  // Asks for what is new, if it is time to. Gives it, with times as the clock of the browser has them.
  async more() {
    if (Date.now() < this.asked + ASK_MS) return [];
    this.asked = Date.now();
    const { now_us: now, samples } = await get(`v1/past?after=${this.last}`);
    if (!samples.length) return [];
    this.last = samples.at(-1).at_us;
    const ahead = Date.now() - now / 1000;
    return samples.map(one => ({ ...one, at: one.at_us / 1000 + ahead, commit_ms: one.last_commit_us / 1000 }));
  }

  take(samples, now) {
    this.samples.push(...samples);
    forget(this.samples, now);
  }

  // What was before another process began is not its past.
  clear() {
    this.samples = [];
    this.last = 0;
  }
}
