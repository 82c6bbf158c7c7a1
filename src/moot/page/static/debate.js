// One debate: the question, who won and why, and every round with its votes.

import { listing, written } from "./code.js";
import { fill, h, oneLine, plural, visible } from "./dom.js";
import { ALARMS } from "./glossary.js";
import { typesetAnswer } from "./maths.js";
import { ask, filters, go, link, note } from "./state.js";
import { largest, legend, MODES } from "./tokens.js";
import { card, FIRST } from "./turn.js";
import { matrix, standing, why } from "./votes.js";

export function debateView(main, query, runs) {
  const run = query.get("run");
  const place = query.get("debate");
  const kept = filters(query);
  let debate = null;
  let mode = Object.hasOwn(MODES, query.get("shade") ?? "") ? (query.get("shade") ?? "") : "";
  let stacked = query.get("layout") === "stacked";
  let gone = false;
  const body = h("div", {}, h("p", { class: "quiet pad" }, "Reading the debate…"));
  main.append(body);

  document.title = `${place} · ${oneLine(run, 60)} · moot`;
  const list = link({ view: "debates", run, ...kept });
  const other = (to) => ({ view: "debate", run, debate: to, ...kept, shade: mode, layout: stacked ? "stacked" : null });

  async function load(patience = 5) {
    try {
      debate = { ...(await ask("debate", { run, debate: place, ...kept })), set: kept.set };
      if (!gone) draw();
    } catch (error) {
      if (!gone)
        fill(
          body,
          h(
            "div",
            { class: "pad" },
            h("h1", {}, "This debate cannot be shown"),
            h("p", {}, visible(error.message)),
            h("a", { href: list }, "Back to the list"),
          ),
        );
      if (!gone && patience > 0)
        setTimeout(() => {
          if (!gone && !debate) load(patience - 1);
        }, 2000);
    }
  }

  function draw() {
    const head = h(
      "div",
      { class: "bar crumbs" },
      h("a", { href: list }, "← ", oneLine(run, 50)),
      h("span", { class: "quiet" }, where()),
      h("span", { class: "grow" }),
      step("previous", "‹ previous", "k"),
      step("next", "next ›", "j"),
    );
    if (debate.broken)
      return void fill(
        body,
        head,
        h(
          "div",
          { class: "pad" },
          h("h1", {}, "This record cannot be read"),
          h("p", {}, visible(debate.broken)),
          h("p", { class: "quiet" }, `Line ${debate.number + 1} of ${kept.set ?? "debates"}/${String(debate.step).padStart(6, "0")}.jsonl.`),
        ),
      );
    const known = debate.question.answer !== null && debate.question.answer !== undefined;
    // The right answer of a task of programs is its tests.
    const tests = known && debate.question.answer.startsWith("# tests of ");
    for (const turn of debate.turns) [turn.known, turn.code] = [known, tests];
    const { rows, node } = standing(debate);
    const rounds = [...new Set(debate.turns.map((turn) => turn.round))].sort((a, b) => a - b);
    fill(
      body,
      head,
      h(
        "section",
        { class: "question-box" },
        h("h1", { dir: "auto" }, written(debate.question.text.slice(0, FIRST))),
        h(
          "p",
          { class: "quiet" },
          tests
            ? "The answer is a program that passes the tests. No agent was shown them."
            : known
            ? ["The answer is ", h("b", { class: "truth" }, typesetAnswer(debate.question.answer, 200)), ". No agent was told."]
            : "Nobody knows the answer here.",
          debate.question.id ? ` · ${oneLine(debate.question.id, 60)}` : "",
          ` · ${rules(debate)}`,
          debate.same > 1
            ? [" · ", h("a", { href: link({ view: "debates", run, set: kept.set, same: place, sort: "oldest" }) }, `this question in ${debate.same} debates`)]
            : null,
        ),
        tests ? h("details", { class: "outside" }, h("summary", {}, "The tests"), listing(debate.question.answer.slice(0, FIRST))) : null,
        debate.alarms?.map((key) => h("span", { class: "chip bad", title: ALARMS[key].means }, "⚠ ", ALARMS[key].name, " at this step")),
      ),
      h(
        "section",
        { class: "outcome" },
        h("p", { class: "why" }, why(debate, rows)),
        debate.error ? h("pre", { class: "said" }, visible(debate.error)) : h("div", { class: "scroll", tabindex: 0 }, node),
      ),
      debate.turns.length ? toolbar() : null,
      rounds.map(round),
      debate.jury.length ? jury() : null,
    );
    mark(kept.q);
  }

  // What was searched for stands out, without a change to the page: ranges, not elements.
  function mark(searched) {
    if (!("highlights" in CSS)) return;
    const ranges = [];
    const words = (searched ?? "")
      .toLowerCase()
      .split(/[^\p{L}\p{N}]+/u)
      .filter(Boolean);
    const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); words.length && node && ranges.length < 2000; node = walker.nextNode()) {
      const text = node.data.toLowerCase();
      if (text.length !== node.data.length || !node.parentElement.closest(".said, .tokens, h1")) continue;
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0 && ranges.length < 2000; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + word.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  // A file of debates has no steps.
  function where() {
    if (runs.find((each) => each.name === run)?.transcripts) return `debate ${oneLine(debate.question?.id, 40) || debate.number + 1} of the file`;
    return `${kept.set ? "held out, after " : ""}step ${debate.step} · debate ${debate.number}`;
  }

  function jury() {
    const votes = debate.votes.filter((vote) => vote.author >= debate.agents.length);
    return h(
      "section",
      { class: "round" },
      h("h2", {}, debate.jury.length === 1 ? "A judge without a seat" : "Judges without a seat"),
      h(
        "p",
        { class: "quiet" },
        debate.jury_counts ? "Their votes count like the agents'." : "They only look on: their votes are in no reward.",
      ),
      h(
        "div",
        { class: stacked ? "turns stacked" : `turns n${Math.min(debate.jury.length, 6)}` },
        debate.jury.map((turn) => card(turn, debate, mode, 0)),
      ),
      votes.length ? h("div", { class: "scroll", tabindex: 0 }, matrix(votes, debate.agents)) : null,
    );
  }

  function step(name, label, key) {
    const to = debate[name];
    return to
      ? h("a", { class: "step", href: link(other(to)), title: `${label} (${key})` }, label)
      : h("span", { class: "step quiet" }, label);
  }

  function rules({ protocol, agents, max_rounds: most }) {
    return [
      plural(agents.length, "agent"),
      `up to ${plural(most ?? 1, "round")}`,
      protocol.schedule === "sequential" ? "one after another" : "all at once",
      protocol.reward && `reward ${oneLine(protocol.reward, 40)}`,
    ]
      .filter(Boolean)
      .join(" · ");
  }

  function toolbar() {
    const has = debate.turns.some((turn) => turn.tokens);
    const scale = largest(debate.turns);
    const button = (value, text) =>
      h(
        "button",
        {
          "aria-pressed": String(mode === value),
          disabled: value !== "" && !has,
          onclick: () => shade(value),
          title: {
            "": "Sections, with mathematics typeset (c)",
            advantage: "Each token tinted by its advantage (c)",
            surprise: "Each token tinted by how unlikely it was",
          }[value],
        },
        text,
      );
    return h(
      "div",
      { class: "bar tools" },
      h(
        "span",
        { class: "switch", role: "group", "aria-label": "Shading" },
        Object.entries(MODES).map(([value, text]) => button(value, text)),
      ),
      h(
        "span",
        { class: "switch", role: "group", "aria-label": "Layout" },
        h("button", { "aria-pressed": String(!stacked), onclick: () => lay(false), title: "Agents side by side (l)" }, "Side by side"),
        h("button", { "aria-pressed": String(stacked), onclick: () => lay(true), title: "One under another (l)" }, "Stacked"),
      ),
      mode ? legend(mode, scale) : null,
      !has
        ? h(
            "span",
            { class: "quiet" },
            debate.tokens_error
              ? `its tokens cannot be read: ${oneLine(debate.tokens_error, 120)}`
              : "no tokens are kept here, so there is no shading",
          )
        : null,
    );
  }

  function shade(value) {
    mode = value;
    note({ shade: mode || null });
    redraw();
  }
  function lay(value) {
    stacked = value;
    note({ layout: stacked ? "stacked" : null });
    redraw();
  }
  function redraw() {
    const y = scrollY;
    draw();
    scrollTo(0, y);
  }

  function round(number) {
    const own = debate.turns.filter((turn) => turn.round === number);
    const votes = debate.votes.filter((vote) => vote.round === number);
    const scale = largest(debate.turns);
    const box = h(
      "div",
      { class: stacked ? "turns stacked" : `turns n${Math.min(debate.agents.length, 6)}` },
      own.map((turn) => card(turn, debate, mode, scale)),
    );
    return h(
      "section",
      { class: "round" },
      h("h2", {}, own.every((turn) => turn.ballot) ? "Closing ballot" : `Round ${number}`),
      box,
      votes.length
        ? h("div", { class: "scroll", tabindex: 0 }, matrix(votes, debate.agents))
        : h(
            "p",
            { class: "quiet novotes" },
            debate.checks
              ? "No agent votes: judges without a seat checked the answers."
              : number === 1 && debate.protocol.schedule !== "sequential"
              ? "No votes: nobody has seen another answer yet."
              : "No vote was cast in this round.",
          ),
    );
  }

  load();
  return {
    leave: () => {
      gone = true;
    },
    keys: {
      j: () => debate?.next && go(other(debate.next)),
      k: () => debate?.previous && go(other(debate.previous)),
      ArrowRight: () => debate?.next && go(other(debate.next)),
      ArrowLeft: () => debate?.previous && go(other(debate.previous)),
      c: () => debate?.turns && shade(mode === "advantage" ? "" : "advantage"),
      l: () => debate?.turns && lay(!stacked),
      Escape: () => go(Object.fromEntries(new URLSearchParams(list.slice(2)))),
    },
  };
}
