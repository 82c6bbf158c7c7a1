// Every metric as a small chart, all chosen runs in each. Only charts on the screen ask for their data.

import { Chart, KEY } from "./chart.js";
import { fill, h } from "./dom.js";
import { GROUP_ORDER } from "./glossary.js";
import { AXES, gathered } from "./series.js";
import { ask, note } from "./state.js";

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
  let runs = [];
  let pending = null;
  // How all charts are drawn; each choice is in the address.
  const drawing = {
    smooth: Number(query.get("smooth") ?? 0) || 0,
    x: query.get("x") in AXES ? query.get("x") : "step",
    log: query.get("log") === "yes",
    apart: query.get("seeds") === "apart",
  };
  const repaint = () => {
    for (const chart of charts.values()) chart.redraw();
  };

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
    value: drawing.smooth,
    "aria-label": "Smoothing",
    oninput: (event) => {
      drawing.smooth = Number(event.target.value);
      note({ smooth: drawing.smooth || null });
      for (const chart of charts.values()) chart.paint();
    },
  });
  const along = h(
    "select",
    {
      "aria-label": "Along",
      onchange: (event) => {
        drawing.x = event.target.value;
        note({ x: drawing.x === "step" ? null : drawing.x });
        for (const chart of charts.values()) [chart.stale, chart.data] = [true, []];
        fetchSoon();
      },
    },
    Object.entries(AXES).map(([value, [name]]) => h("option", { value, selected: value === drawing.x }, name)),
  );
  const tick = (label, checked, title, onchange) =>
    h("label", { class: "quiet", title }, h("input", { type: "checkbox", checked, onchange }), ` ${label}`);
  const logs = tick("log scale", drawing.log, "Values above 0 on a logarithmic scale", (event) => {
    drawing.log = event.target.checked;
    note({ log: drawing.log ? "yes" : null });
    repaint();
  });
  const bands = tick("seeds as a band", !drawing.apart, "Runs that differ by their seed alone: their mean, least and most", (event) => {
    drawing.apart = !event.target.checked;
    note({ seeds: drawing.apart ? "apart" : null });
    repaint();
  });
  const node = h(
    "section",
    { class: "curves" },
    h(
      "div",
      { class: "bar" },
      h("h2", {}, "Curves"),
      find,
      h("label", { class: "quiet" }, "along ", along),
      h("label", { class: "quiet" }, "smooth ", slider),
      logs,
      bands,
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

  const board = { redraw: repaint };
  live.add(board);

  function update(names, found, tint, known) {
    [chosen, colour, runs] = [names, tint, known];
    bands.hidden = gathered(names, known, true).length === names.length;
    const present = new Set();
    for (const name of names) {
      for (const [phase, keys] of Object.entries(found[name]?.phases ?? {})) {
        for (const [key, about] of Object.entries(keys)) {
          const id = `${phase} ${key}`;
          if (!about.n && !charts.has(id)) continue;
          present.add(id);
          if (!charts.has(id)) charts.set(id, new Chart(id, phase, key, () => ({ chosen, colour, runs, ...drawing })));
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
        const x = drawing.x === "step" ? null : drawing.x;
        const found = await ask("curves", { run: chosen, phase, x, key: own.map((chart) => chart.key), points: 1200 });
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
