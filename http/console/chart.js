// A chart of the past, drawn by uPlot, which is a script of its own beside this module.

import { time } from './format.js';

const dark = matchMedia('(prefers-color-scheme: dark)');

export class Chart {
  // Each series has a `label`, a `colour` (the name of a custom property) and `of`, which gives its value from a
  // sample and the one before.
  // With `dots`, each value has a dot, and the last one counts: for what is `null` at times.
  constructor(label, series, unit = value => value, dots = false) {
    this.label = label;
    this.series = series;
    this.unit = unit;
    this.dots = dots;
    this.element = document.createElement('div');
    this.element.className = 'chart';
    this.element.setAttribute('role', 'img');
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.element);
    this.onScheme = () => this.make();
    dark.addEventListener('change', this.onScheme);
  }

  // The figures of all series, beside which the picture is for the eye alone.
  last(samples) {
    if (this.dots) return this.series.map(one => samples.map(now => one.of(now)).findLast(value => value !== null));
    const [before, now] = [samples.at(-2), samples.at(-1)];
    return this.series.map(one => (before ? one.of(now, before) : undefined));
  }

  shown(value) {
    return value === undefined || value === null ? '–' : this.unit(value);
  }

  draw(samples) {
    const data = [[], ...this.series.map(() => [])];
    for (let i = 1; i < samples.length; i++) {
      const gap = samples[i].at - samples[i - 1].at > 10_000;
      data[0].push(samples[i].at / 1000);
      this.series.forEach((one, s) => data[s + 1].push(gap ? null : one.of(samples[i], samples[i - 1])));
    }
    this.data = data;
    const figures = this.last(samples).map((value, s) => `${this.series[s].label} ${this.shown(value)}`);
    this.element.setAttribute('aria-label', `${this.label}: ${figures.join(', ')}`);
    if (this.plot) this.plot.setData(data);
    else this.make();
  }

  make() {
    if (!this.data || !this.element.clientWidth) return;
    this.plot?.destroy();
    const style = getComputedStyle(this.element);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
    const options = {
      width: this.element.clientWidth,
      height: 150,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, space: 80, size: 24, values: (_, ticks) => ticks.map(tick => time(tick * 1e6)) },
        { ...axis, size: 48, values: (_, ticks) => ticks.map(tick => this.unit(tick)) },
      ],
      series: [{}, ...this.series.map(one => ({ stroke: colour(one.colour), width: 1.5, points: { show: this.dots, size: 4, fill: colour(one.colour) } }))],
    };
    this.plot = new globalThis.uPlot(options, this.data, this.element);
  }

  fit() {
    if (!this.plot) return this.make();
    const width = this.element.clientWidth;
    if (width && width !== this.plot.width) this.plot.setSize({ width, height: 150 });
  }

  stop() {
    this.sizes.disconnect();
    dark.removeEventListener('change', this.onScheme);
    this.plot?.destroy();
  }
}
