// The two charts of service: the shares of it, and how far clients that wait are ahead of the least served one.

import uPlot from "/vendor/uplot/uPlot.esm.js";

import { brief, percent, seconds, time } from "./format.js";
import { cssColour } from "./palette.js";

const HEIGHT = 240;
const MOST_LINES = 12;

export class Charts {
  constructor(shares, ahead, palette) {
    this.shares = new Chart(shares, palette, shareOptions);
    this.ahead = new Chart(ahead, palette, (palette, names) => aheadOptions(palette, names, () => this.rate));
    this.rate = 0; // cost units that the workers serve per second; 0: not known
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.shares.remake();
      this.ahead.remake();
    });
  }

  // `names` are the clients, the most active first; `rate` is in cost units per second, or not known.
  show(series, names, rate) {
    this.rate = rate ?? 0;
    const { times, bound } = series;
    const zero = bound.map((value) => (value === null ? null : 0));
    this.shares.show([times], series.lines, names);
    this.ahead.show([times, bound, zero], series.ahead, names);
  }
}

class Chart {
  // `options(palette, names)` returns the chart's options for lines of these clients.
  constructor(container, palette, options) {
    this.container = container;
    this.options = options;
    this.palette = palette;
    this.plot = null;
    this.key = "";
    new ResizeObserver(() => this.fit()).observe(container);
  }

  show(band, lines, ranked) {
    const names = ranked.filter((name) => lines.has(name)).slice(0, MOST_LINES);
    const data = [...band, ...names.map((name) => lines.get(name))];
    const key = JSON.stringify(names.map((name) => [name, this.palette.className(name)]));
    this.data = data;
    if (this.plot === null || key !== this.key) {
      this.key = key;
      this.names = names;
      this.remake();
    } else {
      this.plot.setData(data);
    }
  }

  remake() {
    if (this.names === undefined) {
      return;
    }
    this.plot?.destroy();
    const size = { width: this.container.clientWidth, height: HEIGHT };
    this.plot = new uPlot({ ...size, ...this.options(this.palette, this.names) }, this.data, this.container);
  }

  fit() {
    if (this.plot !== null && this.plot.width !== this.container.clientWidth) {
      this.plot.setSize({ width: this.container.clientWidth, height: HEIGHT });
    }
  }
}

function base(palette, names) {
  const faint = cssColour("--faint");
  const rule = { stroke: cssColour("--rule"), width: 1 };
  const axis = { stroke: faint, grid: rule, ticks: { ...rule, size: 4 }, font: "12px system-ui, sans-serif" };
  return {
    cursor: { show: false },
    legend: { show: false },
    axis,
    times: { ...axis, size: 30, space: 90, values: (_, ticks) => ticks.map(time) },
    lines: names.map((name) => ({ stroke: palette.colour(name), width: 2, points: { show: false } })),
  };
}

function shareOptions(palette, names) {
  const { axis, times, lines, ...options } = base(palette, names);
  return {
    ...options,
    scales: { x: { time: true }, y: { range: [0, 1] } },
    axes: [times, { ...axis, size: 58, values: (_, ticks) => ticks.map(percent) }],
    series: [{}, ...lines],
  };
}

// `rate()` is in cost units per second.
function aheadOptions(palette, names, rate) {
  const { axis, times, lines, ...options } = base(palette, names);
  const edge = { stroke: cssColour("--band-edge"), width: 1.5, points: { show: false } };
  return {
    ...options,
    scales: { x: { time: true }, y: { range: (_, low, high) => range(low, high) } },
    axes: [times, { ...axis, size: 58, values: (_, ticks) => ticks.map(brief) }, secondsAxis(axis, rate)],
    series: [{}, { ...edge, dash: [6, 4] }, { ...edge, width: 1 }, ...lines],
    bands: [{ series: [1, 2], fill: cssColour("--band") }],
  };
}

function range(low, high) {
  if (low === null || high === null) {
    return [0, 1];
  }
  const room = Math.max(1, 0.06 * (high - low));
  return [Math.min(0, low) === 0 && low < 0.3 * high ? 0 : low - room, high + room];
}

// The same scale in seconds of the workers' service.
function secondsAxis(axis, rate) {
  const values = (_, ticks) => ticks.map((value) => (rate() ? seconds(value / rate()) : ""));
  return { ...axis, side: 1, scale: "y", size: 62, grid: { show: false }, values };
}
