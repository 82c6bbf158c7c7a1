// What `moot eval` found: each mode's accuracy with its interval, and its difference from the first.

import { fill, h, number, oneLine, signed } from "./dom.js";
import { csvButton } from "./download.js";
import { heads, sortedBy } from "./heads.js";
import { ask } from "./state.js";

const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
const bounds = (found, show) =>
  found ? [h("b", {}, show(found.value)), h("span", { class: "quiet" }, ` [${show(found.low)}, ${show(found.high)}]`)] : "–";

const COLUMNS = [
  ["Evaluation", "name"],
  ["Mode", "mode"],
  ["Accuracy", "accuracy"],
  ["Difference", "difference"],
  ["p", "p"],
  "pass@k",
  ["Judge accuracy", "judge"],
  "Votes given",
  ["Questions", "questions"],
  ["Tokens a question", "tokens"],
];
const VALUES = {
  name: ({ run, name }) => `${run} ${name}`,
  mode: ({ row }) => row.name,
  accuracy: ({ row }) => row.metrics?.accuracy?.value,
  difference: ({ row }) => row.difference?.value,
  p: ({ row }) => row.difference?.p,
  judge: ({ row }) => row.metrics?.judge?.value,
  questions: ({ row }) => row.questions,
  tokens: ({ row }) => row.tokens,
};

export function evaluations() {
  const node = h("section", { hidden: true });
  let rows = [];
  let sorted = "";
  let colour = () => "c0";

  async function update(chosen, tint) {
    const found = chosen.length ? await ask("evals", { run: chosen }) : {};
    colour = tint;
    rows = chosen.flatMap((run) =>
      (found[run] ?? []).flatMap(({ name, judge, rows: own }) => (Array.isArray(own) ? own : []).map((row, i) => ({ run, name, judge, row, i }))),
    );
    node.hidden = !rows.length;
    if (rows.length) draw();
  }

  function draw() {
    const sort = (next) => {
      sorted = next;
      draw();
    };
    fill(
      node,
      h("div", { class: "bar" }, h("h2", {}, "Evaluations"), csvButton(() => node.querySelector("table"), "evaluations")),
      h("p", { class: "quiet" }, "Accuracy in percent with its 95% interval, and the difference from the first row on the same questions."),
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        h(
          "table",
          { class: "evals" },
          h("thead", {}, h("tr", {}, heads(COLUMNS, sorted, sort))),
          h(
            "tbody",
            {},
            sortedBy(rows, sorted, (row, key) => VALUES[key](row)).map(line),
          ),
        ),
      ),
    );
  }

  // Who was evaluated stands once, as long as the rows stand in their order.
  function line({ run, name, judge, row, i }) {
    const { metrics, difference } = row;
    return h(
      "tr",
      { class: i && !sorted ? "" : "first" },
      h(
        "th",
        { scope: "row" },
        i && !sorted ? "" : [h("span", { class: `swatch ${colour(run)}` }), " ", oneLine(run, 40), h("small", {}, ` ${oneLine(name, 60)}`)],
      ),
      h("td", {}, oneLine(row.name, 40), row.name === "wins" && judge ? h("small", {}, ` by ${oneLine(judge, 60)}`) : null),
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
