// Numbers and times for people.

const GROUPED = new Intl.NumberFormat('en');
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

export const count = n => (n === undefined || n === null ? '–' : GROUPED.format(n));

export function short(n) {
  if (n === undefined || n === null || Number.isNaN(n)) return '–';
  const number = Number(n);
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (Math.abs(number) >= size) return `${(number / (unit === 'k' ? 1e3 : size)).toFixed(1)} ${unit}`;
  }
  return Number.isInteger(number) ? GROUPED.format(number) : number.toFixed(number < 10 ? 1 : 0);
}

export function bytes(n) {
  if (n === undefined || n === null) return '–';
  let number = Number(n);
  if (number < 1024) return `${number} B`;
  for (const unit of ['KiB', 'MiB', 'GiB', 'TiB']) {
    number /= 1024;
    if (number < 1024 || unit === 'TiB') return `${number.toFixed(number < 10 ? 1 : 0)} ${unit}`;
  }
}

// Microseconds as a length of time.
export function span(us) {
  if (us === undefined || us === null) return '–';
  const sign = us < 0 ? '−' : '';
  const micros = Math.abs(Number(us));
  if (micros < 1000) return `${sign}${micros} µs`;
  if (micros < 1e6) return `${sign}${(micros / 1000).toFixed(micros < 1e4 ? 1 : 0)} ms`;
  const seconds = micros / 1e6;
  if (seconds < 60) return `${sign}${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${sign}${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${sign}${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// The same in few letters, for an axis.
export function brief(us) {
  if (us === undefined || us === null) return '–';
  let number = Number(us);
  if (!number) return '0';
  for (const [size, unit] of [[1000, 'µs'], [1000, 'ms'], [60, 's'], [60, 'min'], [24, 'h'], [Infinity, 'd']]) {
    if (number < size) return `${Number.isInteger(number) ? number : number.toFixed(number < 10 ? 1 : 0)} ${unit}`;
    number /= size;
  }
}

// A time of day, with the day if it is another one.
export function time(us) {
  if (us === undefined || us === null) return '–';
  const date = new Date(Number(us) / 1000);
  const today = new Date().toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)} ${CLOCK.format(date)}`;
}

export const exactTime = us => (us === undefined || us === null ? '' : new Date(Number(us) / 1000).toISOString());

export const ago = us => (us === undefined || us === null ? '–' : `${span(Math.max(0, Date.now() * 1000 - Number(us)))} ago`);
