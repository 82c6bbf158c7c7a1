// Are forecasts worth what they say? One small picture per question: what agents said against how often it came true.

import { h, percent, plural } from "./dom.js";

const WORDS = { win: "Forecasts of winning", right: "Forecasts of being right" };
const SIZE = 150;
const EDGE = 22;

export function reliability(run, kinds, tint) {
  const known = Object.entries(kinds ?? {});
  return known.length ? h("div", { class: "reliability" }, known.map(([about, bins]) => picture(run, WORDS[about], bins, tint))) : null;
}

function picture(run, words, bins, tint) {
  const at = (x, y) => [EDGE + x * SIZE, 6 + (1 - y) * SIZE];
  const shape = (name, attributes, title) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (title) node.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: title }));
    return node;
  };
  const line = ([x1, y1], [x2, y2], name) => shape("line", { x1, y1, x2, y2, class: name });
  const told = bins.map((bin) => `said ${percent(bin.forecast)}, came true ${percent(bin.came)} of ${bin.of}`);
  const svg = shape("svg", {
    viewBox: `0 0 ${SIZE + EDGE + 8} ${SIZE + EDGE + 6}`,
    class: tint,
    role: "img",
    "aria-label": `${words}, ${run}: ${told.join("; ")}`,
  });
  svg.append(line(at(0, 0), at(1, 0), "axis"), line(at(0, 0), at(0, 1), "axis"), line(at(0, 0), at(1, 1), "level"));
  for (const mark of [0, 0.5, 1]) {
    const [x, y] = at(mark, mark);
    const below = shape("text", { x, y: SIZE + 20, "text-anchor": "middle" });
    const beside = shape("text", { x: EDGE - 4, y: y + 3, "text-anchor": "end" });
    below.textContent = beside.textContent = String(100 * mark);
    svg.append(below, beside);
  }
  const most = Math.max(...bins.map((bin) => bin.of));
  bins.forEach((bin, i) => {
    const [cx, cy] = at(bin.forecast, bin.came);
    svg.append(line(at(bin.forecast, bin.low), at(bin.forecast, bin.high), "span"));
    svg.append(shape("circle", { cx, cy, r: (2.5 + 3.5 * Math.sqrt(bin.of / most)).toFixed(1) }, told[i]));
  });
  const count = bins.reduce((sum, bin) => sum + bin.of, 0);
  return h(
    "figure",
    {},
    svg,
    h("figcaption", {}, words, h("small", {}, `said (across) against came true (up), in %, of ${plural(count, "forecast")}; on the line they are calibrated`)),
  );
}
