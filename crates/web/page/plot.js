// Plot of the last hour: lines from zero, a few labelled levels, times below, and the values at the pointed-at
// moment in all plots.

import { clock } from "./format.js";
import { make, mark, say } from "./dom.js";
import { SPAN_MS } from "./watch.js";

const HEIGHT = 132;
const TOP = 14;
const BOTTOM = 18;
const RIGHT = 5;
const LEVELS_MAX = 3;
// The time span grows with the available data: spans, and the interval between ticks of each.
const SPANS_MS = [
  [120_000, 30_000],
  [300_000, 60_000],
  [600_000, 120_000],
  [1_800_000, 300_000],
  [SPAN_MS, 600_000],
];
const STEP_MS = 10_000;

const svg = (tag, attributes = {}) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// Pointed-at moment, shared by all plots. `null` if there is none.
export class Pointer extends EventTarget {
  time = null;

  set(time) {
    this.time = time;
    this.dispatchEvent(new Event("move"));
  }
}

// Step of 1, 2 or 5 times a power of ten, so that there are only a few levels.
function step(most) {
  const least = most / LEVELS_MAX;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least);
}

export class Plot {
  points = [];
  until = Date.now();
  span = SPANS_MS[0][0];
  tick = SPANS_MS[0][1];

  // Each of `series` has a name, a class, the key of its values, and a text function. `least` is the smallest
  // range of the scale.
  constructor(figure, { title, series, level, least, pointer }) {
    Object.assign(this, { figure, title, series, level, least, pointer, width: 300 });
    this.legend = series.map((one) => make("b", {}, "–"));
    this.when = make("span", { class: "when" });
    const keys = series.map((one, n) => make("span", { class: "legend" }, make("span", { class: `key ${one.kind}` }, one.name), this.legend[n]));
    const caption = make("figcaption", {}, make("span", { class: "plot-title" }, title), this.when, make("span", { class: "keys" }, ...keys));
    this.build();
    figure.replaceChildren(caption, this.svg);
    new ResizeObserver(([entry]) => {
      this.width = Math.max(200, Math.round(entry.contentRect.width));
      this.draw();
    }).observe(this.svg);
    pointer.addEventListener("move", () => this.point());
  }

  build() {
    this.svg = svg("svg", { height: HEIGHT, tabindex: 0, role: "slider", "aria-label": `${this.title}, the last hour`, "aria-valuemin": -SPAN_MS / 1000, "aria-valuemax": 0, "aria-valuenow": 0 });
    this.grid = svg("g", { class: "grid" });
    this.areas = this.series.map((one) => svg("path", { class: `area ${one.kind}` }));
    this.lines = this.series.map((one) => svg("path", { class: `line ${one.kind}` }));
    this.dots = this.series.map((one) => svg("circle", { class: `dot ${one.kind}`, r: 3.5 }));
    this.cross = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM });
    this.labels = svg("g", { class: "labels" });
    this.svg.append(this.grid, this.areas[0], ...this.lines, this.labels, this.cross, ...this.dots);
    const at = (event) => this.pointer.set(this.timeAt(event.clientX - this.svg.getBoundingClientRect().left));
    this.svg.addEventListener("pointermove", at);
    this.svg.addEventListener("pointerdown", at);
    this.svg.addEventListener("pointerleave", () => this.pointer.set(null));
    this.svg.addEventListener("blur", () => this.pointer.set(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const by = { ArrowLeft: -STEP_MS, ArrowRight: STEP_MS, Home: -this.span, End: this.span }[event.key];
    if (event.key === "Escape") this.pointer.set(null);
    if (by === undefined) return;
    event.preventDefault();
    const from = this.pointer.time ?? this.until;
    this.pointer.set(Math.min(Math.max(from + by, this.until - this.span), this.until));
  }

  x(time) {
    return (this.width - RIGHT) * (1 - (this.until - time) / this.span);
  }

  timeAt(x) {
    return this.until - this.span * (1 - x / (this.width - RIGHT));
  }

  y(value) {
    return HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / this.top;
  }

  show(points, until) {
    this.points = points;
    this.until = until;
    this.draw();
  }

  draw() {
    const known = this.until - (this.points[0]?.time ?? this.until);
    [this.span, this.tick] = SPANS_MS.find(([span]) => known <= span) ?? SPANS_MS.at(-1);
    const values = this.points.flatMap((point) => (point.values ? this.series.map((one) => point.values[one.key] ?? 0) : []));
    const most = Math.max(this.least, ...values);
    const size = step(most);
    this.top = Math.ceil(most / size) * size;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.drawScale(size);
    this.series.forEach((one, n) => this.drawLine(one, n));
    this.point();
  }

  drawScale(size) {
    const [grid, labels] = [[], []];
    for (let level = 0; level <= this.top * 1.001; level += size) {
      const y = Math.round(this.y(level)) + 0.5;
      grid.push(svg("line", { x1: 0, x2: this.width, y1: y, y2: y, class: level === 0 ? "base" : "" }));
      if (level > 0) labels.push(Object.assign(svg("text", { x: 2, y: y - 4 }), { textContent: this.level(level) }));
    }
    for (let time = Math.ceil((this.until - this.span) / this.tick) * this.tick; time < this.until; time += this.tick) {
      const x = this.x(time);
      grid.push(svg("line", { x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
      if (x < 26 || x > this.width - 26) continue;
      labels.push(Object.assign(svg("text", { x, y: HEIGHT - 3, "text-anchor": "middle" }), { textContent: clock(time, this.tick < 60_000) }));
    }
    this.grid.replaceChildren(...grid);
    this.labels.replaceChildren(...labels);
  }

  drawLine({ key }, n) {
    let [line, area, from] = ["", "", null];
    const close = (to) => {
      if (from !== null) area += `L${to} ${this.y(0)}L${from} ${this.y(0)}Z`;
      from = null;
    };
    let x = 0;
    for (const { time, values } of this.points) {
      const value = values?.[key];
      if (value === null || value === undefined) {
        close(x);
        continue;
      }
      const start = from === null;
      x = this.x(time).toFixed(1);
      if (start) from = x;
      const to = `${start ? "M" : "L"}${x} ${this.y(value).toFixed(1)}`;
      line += to;
      area += to;
    }
    close(x);
    this.lines[n].setAttribute("d", line);
    this.areas[n].setAttribute("d", area);
  }

  // Values at the pointed-at moment, or the last ones.
  point() {
    const wanted = this.pointer.time;
    const known = this.points.filter((point) => point.values);
    const near = (best, point) => (Math.abs(point.time - wanted) < Math.abs(best.time - wanted) ? point : best);
    const at = wanted === null || !known.length ? known.at(-1) : known.reduce(near);
    const pointed = wanted !== null && at !== undefined;
    this.cross.classList.toggle("hidden", !pointed);
    const words = this.series.map((one, n) => {
      const value = at?.values[one.key] ?? null;
      const dot = this.dots[n];
      dot.classList.toggle("hidden", value === null);
      if (value !== null) {
        dot.setAttribute("cx", this.x(at.time));
        dot.setAttribute("cy", this.y(value));
      }
      const text = value === null ? "–" : one.text(value);
      say(this.legend[n], text);
      return `${one.name} ${text}`;
    });
    say(this.when, pointed ? clock(at.time) : "");
    if (pointed) for (const name of ["x1", "x2"]) this.cross.setAttribute(name, this.x(at.time));
    mark(this.svg, "aria-valuetext", `${at ? clock(at.time) : ""} ${words.join(", ")}`.trim());
    mark(this.svg, "aria-valuenow", String(at ? Math.round((at.time - this.until) / 1000) : 0));
  }
}
