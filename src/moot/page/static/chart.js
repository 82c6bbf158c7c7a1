// One chart: a metric of all chosen runs, what stands under the cursor, and the way to the debates behind a point.
/* global uPlot */

import { fill, h, number, oneLine } from "./dom.js";
import { asCsv, save } from "./download.js";
import { first, firstTitle, group, isShare, meaning, title } from "./glossary.js";
import { AXES, columns, duration, gathered, line, range, table, ticks } from "./series.js";
import { go } from "./state.js";

const HEIGHT = 170;
export const KEY = "Key";

export class Chart {
  constructor(id, phase, key, settings) {
    Object.assign(this, { id, phase, key, settings, first: first(phase, key), data: [], plot: null, shape: "", stale: true, visible: false });
    this.group = this.first < 0 ? group(key) : KEY;
    const about = meaning(key);
    this.haystack = `${key} ${title(key)} ${about} ${phase}`.toLowerCase();
    this.canvas = h("div", { class: "plot" });
    this.values = h("div", { class: "values" });
    const name = this.first < 0 ? title(key) : firstTitle(this.first, key);
    this.node = h(
      "figure",
      { class: "chart", data: { id, key } },
      h(
        "figcaption",
        { title: about || key },
        h("span", {}, name),
        phase !== "train" ? h("span", { class: "chip" }, phase === "eval" ? "held out" : phase) : null,
        name !== key ? h("small", {}, key) : null,
        h("span", { class: "grow" }),
        h("button", { class: "save", title: `${name} as a CSV file`, onclick: () => this.saveTable() }, "CSV"),
        h("button", { class: "save", title: `${name} as a picture`, onclick: () => this.savePicture(name) }, "PNG"),
      ),
      this.canvas,
      this.values,
    );
    this.resize = new ResizeObserver(() => {
      const width = this.canvas.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    });
    this.resize.observe(this.canvas);
  }

  paint() {
    if (!this.data.length || !this.canvas.clientWidth) return;
    const { chosen, runs, smooth, log, x, apart } = this.settings();
    if (this.data.length !== chosen.length) return; // what was chosen just now has not come
    this.lines = gathered(chosen, runs, !apart).map((names) => line(names, (name) => this.data[chosen.indexOf(name)]));
    this.log = log && this.lines.some((one) => one.values.some((v) => v > 0));
    this.columns = columns(this.lines, smooth, this.log);
    const tables = this.columns.map(table);
    const joined = tables.some(([places]) => places.length) ? uPlot.join(tables) : [[], ...tables.map(() => [])];
    const shape = JSON.stringify([chosen, smooth > 0, this.log, x, apart]);
    if (this.plot && this.shape === shape) this.plot.setData(joined, !this.zoomed);
    else this.make(joined, shape);
    this.tell(null);
  }

  make(joined, shape) {
    this.plot?.destroy();
    this.shape = shape;
    this.zoomed = false;
    const { colour, x } = this.settings();
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim();
    const grid = style.getPropertyValue("--line").trim();
    const stroke = (column) => style.getPropertyValue(`--${colour(this.lines[column.line].names[0])}`).trim();
    const series = (column) => ({
      stroke: stroke(column),
      alpha: column.role === "faint" ? 0.25 : 1,
      width: { value: 1.6, faint: 1 }[column.role] ?? 0,
      spanGaps: true, // a step that could not measure it is no break
      points: {
        show: (u, i) => ["value", "faint"].includes(column.role) && u.data[i].filter((v) => v !== null && v !== undefined).length < 30,
        size: 4,
      },
    });
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const places = (values) => (x === "time" ? values.map((v) => (v === null ? "" : duration(v))) : ticks(values));
    const within = isShare(this.key) ? [0, 1] : [-Infinity, Infinity];
    this.plot = new uPlot(
      {
        width: this.canvas.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        scales: { x: { time: false }, y: this.log ? { distr: 3 } : { range: (u, low, high) => range(low, high, within) } },
        cursor: { sync: { key: `curves ${x}`, setSeries: false }, points: { size: 6 }, drag: { setScale: true, x: true, y: false } },
        axes: [
          { ...axis, size: 22, gap: 3, space: 60, values: (u, found) => places(found) },
          { ...axis, size: 44, gap: 3, space: 28, values: (u, found) => ticks(found) },
        ],
        series: [{}, ...this.columns.map(series)],
        bands: this.columns.flatMap((column, i) =>
          column.role === "high" ? [{ series: [i + 1, i + 2], fill: `color-mix(in srgb, ${stroke(column)} 18%, transparent)` }] : [],
        ),
        hooks: {
          setCursor: [(u) => this.tell(u.cursor.idx)],
          setScale: [
            (u, name) => {
              if (name === "x") this.zoomed = u.data[0].length > 0 && (u.scales.x.min > u.data[0][0] || u.scales.x.max < u.data[0].at(-1));
            },
          ],
        },
      },
      joined,
      this.canvas,
    );
    this.plot.over.addEventListener("click", () => this.open());
  }

  // What stands in the plot for a line.
  drawn(i) {
    return this.plot?.data[this.columns.findIndex((column) => column.line === i && column.role === "value") + 1] ?? [];
  }

  // The values under the cursor, or the last ones.
  tell(idx) {
    const { colour, x } = this.settings();
    const none = idx === null || idx === undefined;
    const places = this.plot?.data[0] ?? [];
    fill(
      this.values,
      (this.lines ?? []).map(({ names }, i) => {
        const values = this.drawn(i);
        const value = values[none ? values.findLastIndex((v) => v !== null && v !== undefined) : idx];
        return h(
          "span",
          { title: names.join(", ") },
          h("span", { class: `swatch ${colour(names[0])}` }),
          value === null || value === undefined ? "–" : number(value),
          names.length > 1 ? h("small", {}, ` ${names.length} seeds`) : null,
        );
      }),
      places.length ? h("span", { class: "quiet" }, none ? "last" : AXES[x][1](places[idx])) : null,
    );
  }

  // From a spike to the debates that made it: of the run whose curve is nearest.
  open() {
    const { idx, top } = this.plot.cursor;
    if (idx === null || idx === undefined || !["train", "eval"].includes(this.phase)) return;
    let best = null;
    this.lines.forEach((one, i) => {
      const value = this.drawn(i)[idx];
      if (value === null || value === undefined) return;
      const distance = Math.abs(this.plot.valToPos(value, "y") - top);
      if (!best || distance < best.distance) best = { one, distance };
    });
    const step = best?.one.steps[best.one.x.lastIndexOf(this.plot.data[0][idx])];
    if (step !== undefined)
      go({ view: "debates", run: best.one.names[0], set: this.phase === "eval" ? "held_out" : null, from: step, to: step });
  }

  // What was measured, run by run, not as it is smoothed.
  saveTable() {
    const { chosen, x } = this.settings();
    const rows = chosen.flatMap((name, i) => {
      const [steps, values, places] = this.data[i] ?? [[], []];
      return steps.map((step, at) => [name, step, ...(places ? [places[at]] : []), values[at]]);
    });
    save(`${this.id}.csv`, asCsv([["run", "step", ...(x === "step" ? [] : [x]), this.key], ...rows]), "text/csv");
  }

  // The plot under its name, with the runs' names, as one sees it.
  savePicture(name) {
    const plot = this.plot?.root.querySelector("canvas");
    if (!plot) return;
    const style = getComputedStyle(this.node);
    const scale = plot.width / this.plot.width;
    const lines = this.lines.map(({ names }) => (names.length > 1 ? `${oneLine(names[0], 40)} and ${names.length - 1} more seeds` : oneLine(names[0], 50)));
    const canvas = h("canvas", { width: plot.width, height: plot.height + (30 + 18 * lines.length) * scale });
    const pen = canvas.getContext("2d");
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(plot, 0, 26 * scale);
    pen.scale(scale, scale);
    const write = (text, y, tint, weight = 400) => {
      pen.fillStyle = tint;
      pen.font = `${weight} 12px system-ui, sans-serif`;
      pen.fillText(text, 8, y);
    };
    write(`${name}${this.phase === "eval" ? " (held out)" : ""}, along ${AXES[this.settings().x][0]}`, 17, style.color, 600);
    const { colour } = this.settings();
    lines.forEach((text, i) => {
      const tint = getComputedStyle(document.documentElement).getPropertyValue(`--${colour(this.lines[i].names[0])}`);
      write(`● ${text}`, plot.height / scale + 40 + 18 * i, tint);
    });
    canvas.toBlob((picture) => save(`${this.id}.png`, picture, "image/png"));
  }

  redraw() {
    this.shape = "";
    this.paint();
  }

  leave() {
    this.resize.disconnect();
    this.plot?.destroy();
    this.plot = null;
    fill(this.canvas);
  }
}
