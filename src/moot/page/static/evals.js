// What `moot eval` found: each mode's accuracy with its interval, and its difference from the first.

import { fill, h, number, oneLine, signed } from "./dom.js";
import { ask } from "./state.js";

const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
const bounds = (found, show) =>
  found ? [h("b", {}, show(found.value)), h("span", { class: "quiet" }, ` [${show(found.low)}, ${show(found.high)}]`)] : "–";

export function evaluations() {
  const node = h("section", { hidden: true });

  async function update(chosen, colour) {
    const found = chosen.length ? await ask("evals", { run: chosen }) : {};
    const reports = chosen.flatMap((run) => (found[run] ?? []).map((report) => ({ run, ...report })));
    node.hidden = !reports.length;
    if (node.hidden) return;
    fill(
      node,
      h("h2", {}, "Evaluations"),
      h("p", { class: "quiet" }, "Accuracy in percent with its 95% interval, and the difference from the first row on the same questions."),
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        h(
          "table",
          { class: "evals" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["", "Mode", "Accuracy", "Difference", "p", "pass@k", "Judges right", "Votes given", "Questions", "Tokens a question"].map(
                (name) => h("th", {}, name),
              ),
            ),
          ),
          h(
            "tbody",
            {},
            reports.flatMap(({ run, name, rows }) => (Array.isArray(rows) ? rows : []).map((row, i) => line(run, name, row, i, colour))),
          ),
        ),
      ),
    );
  }

  function line(run, name, row, i, colour) {
    const { metrics, difference } = row;
    return h(
      "tr",
      { class: i ? "" : "first" },
      h(
        "th",
        { scope: "row" },
        i ? "" : [h("span", { class: `swatch ${colour(run)}` }), " ", oneLine(run, 40), h("small", {}, ` ${oneLine(name, 60)}`)],
      ),
      h("td", {}, oneLine(row.name, 40)),
      h("td", { class: "num" }, bounds(metrics?.accuracy, percent)),
      h(
        "td",
        { class: "num" },
        bounds(difference, (value) => signed(100 * value, 1)),
      ),
      h("td", { class: "num" }, difference ? (difference.p < 0.001 ? "<0.001" : number(difference.p)) : "–"),
      h("td", { class: "num" }, percent(metrics?.["pass@k"]?.value)),
      h("td", { class: "num" }, percent(metrics?.judge?.value)),
      h("td", { class: "num" }, percent(metrics?.comparisons?.value)),
      h("td", { class: "num" }, number(row.questions ?? null)),
      h("td", { class: "num" }, number(row.tokens === undefined ? null : Math.round(row.tokens))),
    );
  }

  return { node, update };
}
