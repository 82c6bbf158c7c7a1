// What if the votes had counted otherwise? The same debates under another reward, beside what the run was trained on.

import { fill, h, number, oneLine, plural, signed } from "./dom.js";
import { ask, go, link } from "./state.js";

const ROWS = [
  ["reward_mean", "Reward of an agent, mean", (v) => signed(v, 3)],
  ["with_signal", "Debates with a signal", share],
  ["with_gradient", "Debates with a gradient", share],
  ["advantage_size", "Size of advantages, mean", (v) => number(v)],
  ["advantage_right", "Advantage of right answers", (v) => signed(v, 3)],
  ["advantage_wrong", "Advantage of wrong answers", (v) => signed(v, 3)],
  ["correlation", "Correlation, advantage and right", (v) => signed(v, 3)],
  ["winner_correct", "Winners that are right", share],
  ["judge_accuracy", "Votes for the right answer", share],
];
const LABELS = {
  reward: "Reward",
  advantage: "Estimator",
  one_ballot_per_pair: "One ballot a pair",
  judge_consensus: "Consensus of",
  enable_format_penalty: "Format penalty",
  literal: "To the letter",
  voters: "Whose votes count",
  reward_mix: "Share of truth",
  checks: "Checks that count",
  vote_margin: "Margin of a vote",
  j: "J of the judge",
};
const NAMES = Object.keys(LABELS);

function share(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`;
}

export function rescoreView(main, query, runs) {
  const run = query.get("run") ?? runs[0]?.name;
  let asked = Object.fromEntries([...NAMES, "from", "to"].filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
  let request = null;
  document.title = `What if? · ${oneLine(run, 60)} · moot`;
  const form = h("form", { class: "filters whole", onsubmit: (event) => event.preventDefault() });
  const result = h("div");
  main.append(
    h(
      "section",
      {},
      h("div", { class: "bar" }, h("h1", {}, "What if the votes had counted otherwise?"), h("span", { class: "of" }, oneLine(run, 80))),
      h("p", { class: "quiet" }, "The same debates, counted by other rules. Nothing is played again and nothing is changed."),
      form,
      result,
    ),
  );

  function draw({ choices, numbers, trained }) {
    const pick = (name) => {
      const was = trained[name] === true ? "yes" : trained[name] === false ? "no" : trained[name];
      const options = [
        ["", was === null || was === undefined ? "as trained" : `as trained (${oneLine(was, 30)})`],
        ...choices[name].map((each) => [each, each]),
      ];
      return h(
        "label",
        {},
        h("span", {}, LABELS[name]),
        h(
          "select",
          { name, onchange: (event) => change({ [name]: event.target.value }) },
          options.map(([value, text]) => h("option", { value, selected: (asked[name] ?? "") === value }, text)),
        ),
      );
    };
    const field = (name, label) =>
      h(
        "label",
        {},
        h("span", {}, label),
        h("input", { name, value: asked[name] ?? "", size: 6, onchange: (event) => change({ [name]: event.target.value.trim() }) }),
      );
    fill(form, Object.keys(choices).map(pick), numbers.map((name) => field(name, LABELS[name])), field("from", "From step"), field("to", "To step"));
  }

  function change(values) {
    asked = Object.fromEntries(Object.entries({ ...asked, ...values }).filter(([, value]) => value !== ""));
    history.replaceState(null, "", link({ view: "rescore", run, ...asked }));
    load();
  }

  async function load() {
    request?.abort();
    request = new AbortController();
    fill(result, h("p", { class: "quiet" }, "Counting again…"));
    try {
      const answer = await ask("rescore", { run, ...asked }, request.signal);
      if (!form.childElementCount) draw(answer);
      show(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(result, h("p", { class: "bad" }, oneLine(error.message, 400)));
      if (!form.childElementCount)
        fill(
          form,
          h(
            "button",
            { type: "button", onclick: () => change({ reward: "win_rate", advantage: "center_group" }) },
            "Count by win_rate instead",
          ),
        );
    }
  }

  function show({ found, steps, of }) {
    if (!found) return void fill(result, h("p", { class: "quiet" }, "There is no debate to count."));
    const moved = (key, format) => {
      const [old, now] = [found.before[key], found.after[key]];
      return old === null || now === null || old === now
        ? ""
        : format === share
          ? `${signed(100 * (now - old), 1)} pp`
          : signed(now - old, 3);
    };
    fill(
      result,
      h(
        "p",
        {},
        `${plural(found.after.debates, "debate")} of steps ${steps[0]} to ${steps[1]}`,
        of > 100 ? ` (the newest 100 of ${of} steps; moot rescore counts them all)` : "",
        ".",
      ),
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        h(
          "table",
          { class: "rescored" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["", "as trained", "counted again", "difference"].map((name) => h("th", {}, name)),
            ),
          ),
          h(
            "tbody",
            {},
            ROWS.map(([key, label, format]) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, label),
                h("td", { class: "num" }, format(found.before[key])),
                h("td", { class: "num" }, format(found.after[key])),
                h("td", { class: "num" }, moved(key, format)),
              ),
            ),
          ),
        ),
      ),
      h("h2", {}, found.changed ? `${plural(found.changed, "debate")} would have another winner` : "Every debate keeps its winner"),
      found.changes.length ? changes(found.changes) : null,
    );
  }

  function changes(list) {
    const who = (agent, correct) =>
      agent === null ? "nobody" : `Agent ${agent}${correct === true ? " ✓" : correct === false ? " ✗" : ""}`;
    return h(
      "div",
      { class: "scroll", tabindex: 0 },
      h(
        "table",
        { class: "changes" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Debate", "Won", "Would win", "Question"].map((name) => h("th", {}, name)),
          ),
        ),
        h(
          "tbody",
          {},
          list.map((each) => {
            const place = `${each.step}.${each.number}`;
            return h(
              "tr",
              {},
              h("td", {}, h("a", { href: link({ view: "debate", run, debate: place }) }, place)),
              h("td", {}, who(each.before, each.correct_before)),
              h("td", {}, who(each.after, each.correct_after)),
              h("td", {}, oneLine(each.question, 120)),
            );
          }),
        ),
      ),
    );
  }

  load();
  return { leave: () => request?.abort(), keys: { Escape: () => go({ view: "debates", run }) } };
}
