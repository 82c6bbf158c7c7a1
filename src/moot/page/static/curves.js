// Every metric as a small chart, all chosen runs in each. Only charts on the screen ask for their data.
/* global uPlot */

import { fill, h, number } from "./dom.js";
import { first, firstTitle, group, GROUP_ORDER, meaning, title } from "./glossary.js";
import { ask, go, note } from "./state.js";

const HEIGHT = 150;
const KEY = "Key";
const live = new Set();

export function curvesThemeChanged() {
  for (const board of live) board.redraw();
}

export function curves(query) {
  const charts = new Map();
  const groups = h("div");
  const others = h("details", { class: "others" });
  const count = h("span", { class: "quiet" });
  let chosen = [];
  let colour = () => "c0";
  let wanted = query.get("find") ?? "";
  let smooth = Number(query.get("smooth") ?? 0) || 0;
  let pending = null;

  const find = h("input", {
    type: "search",
    placeholder: "Find a metric",
    "aria-label": "Find a metric",
    value: wanted,
    oninput: (event) => {
      wanted = event.target.value;
      note({ find: wanted });
      sift();
    },
  });
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 0.98,
    step: 0.02,
    value: smooth,
    "aria-label": "Smoothing",
    oninput: (event) => {
      smooth = Number(event.target.value);
      note({ smooth: smooth || null });
      for (const chart of charts.values()) chart.paint();
    },
  });
  const node = h(
    "section",
    { class: "curves" },
    h(
      "div",
      { class: "bar" },
      h("h2", {}, "Curves"),
      find,
      h("label", { class: "quiet" }, "smooth ", slider),
      count,
      h("span", { class: "quiet hint" }, "drag to zoom, double-click to zoom out, click to open the debates of a step"),
    ),
    groups,
  );

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const chart = charts.get(entry.target.dataset.id);
        if (chart) chart.visible = entry.isIntersecting;
      }
      fetchSoon();
    },
    { rootMargin: "200px" },
  );

  const board = {
    redraw: () => {
      for (const chart of charts.values()) chart.redraw();
    },
  };
  live.add(board);

  function update(names, found, tint) {
    [chosen, colour] = [names, tint];
    const present = new Set();
    for (const name of names) {
      for (const [phase, keys] of Object.entries(found[name]?.phases ?? {})) {
        for (const [key, about] of Object.entries(keys)) {
          const id = `${phase} ${key}`;
          if (!about.n && !charts.has(id)) continue;
          present.add(id);
          if (!charts.has(id)) charts.set(id, new Chart(id, phase, key, () => ({ chosen, colour, smooth })));
          charts.get(id).stale = true;
        }
      }
    }
    for (const [id, chart] of charts) {
      if (!present.has(id)) {
        chart.leave();
        seen.unobserve(chart.node);
        charts.delete(id);
      }
    }
    arrange();
    sift();
    fetchSoon();
  }

  let arranged = "";
  function arrange() {
    const order = [...charts.values()].sort(
      (a, b) =>
        GROUP_ORDER.indexOf(a.group) - GROUP_ORDER.indexOf(b.group) ||
        (a.phase === b.phase ? 0 : a.phase === "train" ? -1 : 1) ||
        a.key.localeCompare(b.key),
    );
    const signature = order.map((chart) => chart.id).join("\n");
    if (signature === arranged) return;
    arranged = signature;
    const own = (name) => order.filter((chart) => chart.group === name).sort((a, b) => (name === KEY ? a.first - b.first : 0));
    const named = (name) =>
      h(
        name === KEY ? "div" : "details",
        { open: name !== KEY, class: name === KEY ? "group key" : "group" },
        name === KEY ? null : h("summary", {}, name, h("span", { class: "quiet" })),
        h(
          "div",
          { class: "charts" },
          own(name).map((chart) => chart.node),
        ),
      );
    const present = [KEY, ...GROUP_ORDER].filter((name) => own(name).length);
    others.replaceChildren(
      h("summary", {}, "All other metrics", h("span", { class: "quiet" })),
      ...present.filter((name) => name !== KEY).map(named),
    );
    fill(groups, present.includes(KEY) ? named(KEY) : null, others);
    for (const chart of order) seen.observe(chart.node);
  }

  function sift() {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const chart of charts.values()) {
      const match = words.every((word) => chart.haystack.includes(word));
      chart.node.hidden = !match;
      left += match;
    }
    if (words.length || !groups.querySelector(".key")) others.open = true;
    for (const each of groups.querySelectorAll(".group, .others")) {
      const shown = each.querySelectorAll(".chart:not([hidden])").length;
      each.hidden = !shown;
      const told = each.querySelector("summary .quiet");
      if (told) told.textContent = ` ${shown}`;
    }
    fill(count, charts.size ? (words.length ? `${left} of ${charts.size}` : `${charts.size} metrics`) : "");
  }

  function fetchSoon() {
    clearTimeout(pending);
    pending = setTimeout(fetchNow, 40);
  }

  async function fetchNow() {
    const due = [...charts.values()].filter((chart) => chart.visible && chart.stale && !chart.node.hidden);
    const byPhase = Map.groupBy
      ? Map.groupBy(due, (chart) => chart.phase)
      : new Map([...new Set(due.map((c) => c.phase))].map((p) => [p, due.filter((c) => c.phase === p)]));
    for (const [phase, own] of byPhase) {
      for (const chart of own) chart.stale = false;
      try {
        const found = await ask("curves", { run: chosen, phase, key: own.map((chart) => chart.key), points: 1200 });
        for (const chart of own) {
          chart.data = chosen.map((name) => found[name]?.[chart.key] ?? [[], []]);
          chart.paint();
        }
      } catch {
        for (const chart of own) chart.stale = true;
      }
    }
  }

  function leave() {
    live.delete(board);
    seen.disconnect();
    clearTimeout(pending);
    for (const chart of charts.values()) chart.leave();
  }

  return { node, update, leave };
}

class Chart {
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
    const { chosen, colour, smooth } = this.settings();
    const tables = this.data.flatMap(([steps, values]) =>
      smooth
        ? [
            [steps, values],
            [steps, smoothed(values, smooth)],
          ]
        : [[steps, values]],
    );
    const joined = tables.some(([steps]) => steps.length) ? uPlot.join(tables.map(once)) : [[], ...tables.map(() => [])];
    const shape = JSON.stringify([chosen, smooth > 0]);
    if (this.plot && this.shape === shape) this.plot.setData(joined, !this.zoomed);
    else this.make(joined, shape, chosen, colour, smooth);
    this.tell(null);
  }

  make(joined, shape, chosen, colour, smooth) {
    this.plot?.destroy();
    this.shape = shape;
    this.zoomed = false;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim();
    const grid = style.getPropertyValue("--line").trim();
    const strokes = chosen.map((name) => style.getPropertyValue(`--${colour(name)}`).trim());
    const line = (stroke, alpha, width) => ({
      stroke,
      alpha,
      width,
      spanGaps: true, // a step that could not measure it is no break
      points: { show: (u, i) => u.data[i].filter((v) => v !== null && v !== undefined).length < 30, size: 4 },
    });
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    this.plot = new uPlot(
      {
        width: this.canvas.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        scales: { x: { time: false }, y: { range } },
        cursor: { sync: { key: "curves", setSeries: false }, points: { size: 6 }, drag: { setScale: true, x: true, y: false } },
        axes: [
          { ...axis, size: 22, gap: 3, space: 60 },
          { ...axis, size: 44, gap: 3, space: 28, values: (u, ticks) => ticks.map((v) => short(v)) },
        ],
        series: [{}, ...strokes.flatMap((stroke) => (smooth ? [line(stroke, 0.25, 1), line(stroke, 1, 1.6)] : [line(stroke, 1, 1.6)]))],
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

  // The values under the cursor, or the last ones.
  tell(idx) {
    const { chosen, colour, smooth } = this.settings();
    const steps = this.plot?.data[0] ?? [];
    fill(
      this.values,
      chosen.map((name, i) => {
        const values = this.plot?.data[smooth ? 2 * i + 1 : i + 1] ?? [];
        const at = idx === null || idx === undefined ? values.findLastIndex((v) => v !== null && v !== undefined) : idx;
        const value = values[at];
        return h(
          "span",
          { title: name },
          h("span", { class: `swatch ${colour(name)}` }),
          value === null || value === undefined ? "–" : number(value),
        );
      }),
      steps.length ? h("span", { class: "quiet" }, idx === null || idx === undefined ? "last" : `step ${steps[idx]}`) : null,
    );
  }

  // From a spike to the debates that made it: of the run whose curve is nearest.
  open() {
    const { chosen, smooth } = this.settings();
    const { idx, top } = this.plot.cursor;
    if (idx === null || idx === undefined || !["train", "eval"].includes(this.phase)) return;
    let best = null;
    chosen.forEach((name, i) => {
      const value = this.plot.data[smooth ? 2 * i + 1 : i + 1][idx];
      if (value === null || value === undefined) return;
      const distance = Math.abs(this.plot.valToPos(value, "y") - top);
      if (!best || distance < best.distance) best = { name, distance };
    });
    const step = this.plot.data[0][idx];
    if (best) go({ view: "debates", run: best.name, set: this.phase === "eval" ? "held_out" : null, from: step, to: step });
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

// A step that was measured twice keeps its last value: the chart wants each step once, in order.
function once([steps, values]) {
  if (steps.every((step, i) => i === 0 || step > steps[i - 1])) return [steps, values];
  const last = new Map(steps.map((step, i) => [step, values[i]]));
  const order = [...last.keys()].sort((a, b) => a - b);
  return [order, order.map((step) => last.get(step))];
}

function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

// A flat line stands in the middle, not at the bottom of a made-up hundred.
function range(u, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low < high) return uPlot.rangeNum(low, high, 0.1, true);
  const room = Math.abs(low) * 0.1 || 1;
  return [low - room, high + room];
}

function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(0);
  if (size >= 1e3) return `${+(value / 1e3).toFixed(1)}k`;
  return String(+value.toFixed(3));
}
