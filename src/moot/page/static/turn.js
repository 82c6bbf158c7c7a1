// One turn: its sections set apart, what became of each line, and what it earned.

import { checked } from "./checks.js";
import { changes, program, written } from "./code.js";
import { add, fill, h, percent, plural, signed, visible } from "./dom.js";
import { FATES, failure } from "./glossary.js";
import { ask } from "./state.js";
import { shaded } from "./tokens.js";
import { agentName, answer } from "./votes.js";

// Characters of a section, or of a turn's tokens, before one must ask for more.
export const FIRST = 20_000;

// `mode` is how it is shaded, `scale` the largest advantage of the debate.
export function card(turn, debate, mode, scale) {
  const seat = debate.agents[turn.agent] ?? {};
  return h(
    "article",
    {
      class: `turn a${turn.agent % 8}${turn.failure !== undefined ? " failed" : ""}`,
      "aria-label": `Agent ${turn.agent}, round ${turn.round}`,
    },
    h(
      "header",
      {},
      turn.agent < debate.agents.length ? agentName(turn.agent) : h("b", {}, `Judge ${turn.agent - debate.agents.length}`),
      seat.persona ? h("span", { class: "persona", title: seat.style }, seat.persona) : null,
      turn.temperature !== undefined
        ? h("span", { class: "quiet", title: "sampling temperature" }, `T ${turn.temperature.toFixed(1)}`)
        : null,
      turn.failure !== undefined ? h("span", { class: "chip warn" }, "failed") : turn.ballot ? null : answer(turn),
      turn.stop === "length" ? h("span", { class: "chip warn", title: "cut at its token limit" }, "cut") : null,
    ),
    turn.labels ? renamed(turn, debate.agents.length) : null,
    turn.failure !== undefined ? explained(turn, debate.protocol) : null,
    mode && turn.tokens ? tokens(turn, mode, scale) : turn.failure !== undefined ? said(turn.text, false) : sections(turn, debate),
    turn.length > turn.text.length
      ? h(
          "p",
          { class: "quiet" },
          `The turn is longer: it has ${plural(turn.length, "character")}, of which the page shows ${turn.text.length.toLocaleString("en")}.`,
        )
      : null,
    checked(debate, debate.turns.indexOf(turn)),
    earned(turn),
    seen(debate, debate.turns.indexOf(turn)),
  );
}

// What the agent had before it when it spoke: long, so it is asked for when it is unfolded.
function seen(debate, place) {
  if (place < 0) return null;
  const inside = h("div", {});
  let asked = false;
  async function load(event) {
    if (asked || !event.target.open) return;
    asked = true;
    try {
      const { messages } = await ask("seen", { run: debate.run, set: debate.set, debate: `${debate.step}.${debate.number}`, turn: place });
      fill(
        inside,
        messages.map(({ role, content }) => h("section", { class: "part" }, h("h3", {}, role), said(content, false))),
      );
    } catch (error) {
      asked = false;
      fill(inside, h("p", { class: "quiet" }, visible(error.message)));
    }
  }
  return h("details", { class: "outside seen", ontoggle: load }, h("summary", {}, "What it saw before it spoke"), inside);
}

// With shuffled labels a text speaks of agents by its author's own numbers.
function renamed({ labels, agent }, count) {
  const others = labels
    .map((label, seat) => (label === seat ? null : `its “Agent ${label}” is ${seat === agent ? "itself" : `Agent ${seat}`}`))
    .filter(Boolean);
  return h(
    "p",
    { class: "quiet renamed", title: `Labels were shuffled for each of the ${count} agents and every judge` },
    others.join(", ").replace(/^its/, "Its"),
    ".",
  );
}

function explained(turn, protocol) {
  const { why: reason, cost } = failure(turn.failure, protocol);
  return h(
    "div",
    { class: "failure" },
    h("b", {}, "Could not be read: "),
    h("code", {}, visible(turn.failure)),
    h("p", {}, reason, " ", cost),
  );
}

function sections(turn, debate) {
  const order = turn.sections?.map((section) => section.name) ?? Object.keys(turn.fields);
  const outside = turn.sections?.length
    ? [turn.text.slice(0, turn.sections[0].begin), turn.text.slice(turn.sections.at(-1).end)]
        .map((part) => part.trim())
        .filter(Boolean)
        .join("\n\n…\n\n")
    : "";
  return [
    outside &&
      h(
        "details",
        { class: "outside" },
        h("summary", {}, `Outside the sections, read by nobody (${plural(outside.length, "character")})`),
        said(outside, true),
      ),
    order
      .filter((name) => Object.hasOwn(turn.fields, name))
      .map((name) =>
        h(
          "section",
          { class: `part ${name}` },
          h("h3", {}, name.replace("_", " "), pay(turn, name)),
          name === "comparison" && turn.lines
            ? comparison(turn.lines)
            : silent(turn.fields[name])
              ? h("p", { class: "quiet" }, "N/A")
              : said(turn.fields[name], true),
          name === "solution" ? sinceLast(turn, debate) : null,
        ),
      ),
  ];
}

// For programs: what this one changes in the agent's last one.
function sinceLast(turn, debate) {
  const own = debate.turns.filter((each) => each.agent === turn.agent && each.fields?.solution !== undefined);
  const earlier = own.slice(0, Math.max(0, own.indexOf(turn))).findLast((each) => program(each.fields.solution) !== null);
  return earlier ? changes(program(earlier.fields.solution), earlier.round, program(turn.fields.solution)) : null;
}

const silent = (text) => /^n\/a\.?$/i.test(text.trim());

function pay(turn, name) {
  const stream = turn.sections?.find((section) => section.name === name)?.stream;
  const value = stream ? turn.advantages[stream] : undefined;
  return value === undefined || value === null
    ? null
    : h(
        "span",
        {
          class: `pay ${value > 0 ? "up" : value < 0 ? "down" : ""}`,
          title: `${stream} advantage: what the tokens of this section are taught`,
        },
        signed(value),
      );
}

function comparison(lines) {
  const spoken = lines.slice(0, 500).filter((line) => line.fate !== "silent");
  if (!spoken.length) return h("p", { class: "quiet" }, "N/A");
  return h(
    "ul",
    { class: "lines" },
    spoken.map(({ text, fate }) =>
      h(
        "li",
        { class: fate === "vote" ? "counted" : "void" },
        h("span", { class: "said", dir: "auto" }, visible(text.slice(0, 1000))),
        h("small", { class: "fate" }, fate === "vote" ? FATES[fate][0] : FATES[fate].join(": ")),
      ),
    ),
    lines.length > 500 ? h("li", { class: "quiet" }, `and ${plural(lines.length - 500, "more line")}`) : null,
  );
}

// Long text comes in parts: a line of a megabyte must not stop the page.
function said(text, maths) {
  const node = h("div", { class: text.length > 3000 ? "said long" : "said", dir: "auto" });
  add(node, maths ? written(text.slice(0, FIRST)) : visible(text.slice(0, FIRST)));
  if (!text.length) add(node, h("span", { class: "quiet" }, "(nothing)"));
  return text.length > FIRST
    ? [node, longer(text.length - FIRST, (from, to) => node.append(visible(text.slice(FIRST + from, FIRST + to))))]
    : node;
}

function longer(left, show) {
  let from = 0;
  const size = 100_000;
  const label = () => `Show ${Math.min(size, left - from).toLocaleString("en")} of ${(left - from).toLocaleString("en")} more characters`;
  const button = h(
    "button",
    {
      class: "more",
      onclick: () => {
        show(from, from + size);
        from += size;
        if (from >= left) button.remove();
        else button.textContent = label();
      },
    },
    label(),
  );
  return button;
}

function tokens(turn, mode, scale) {
  let limit = FIRST;
  const box = h("div", {}, shaded(turn, mode, scale, limit));
  if (turn.text.length <= limit) return box;
  return [
    box,
    longer(turn.text.length - limit, (_, to) => {
      limit = FIRST + to;
      fill(box, shaded(turn, mode, scale, limit));
    }),
  ];
}

function earned(turn) {
  const streams = Object.keys(turn.rewards);
  const name = { generator: "answer", judge: "judging", agent: "agent", step: "step" };
  if (!streams.length) return null;
  return h(
    "footer",
    {},
    streams.map((stream) =>
      h(
        "span",
        { title: `${stream}: reward, and advantage after centring` },
        `${name[stream] ?? stream} `,
        h("b", {}, signed(turn.rewards[stream])),
        turn.returns[stream] !== undefined ? `, return ${signed(turn.returns[stream])}` : null,
        turn.advantages[stream] !== undefined ? h("span", { class: "quiet" }, ` → ${signed(turn.advantages[stream])}`) : null,
      ),
    ),
    turn.tokens
      ? h(
          "span",
          { class: "quiet", title: "The geometric mean of the probabilities with which its tokens were sampled" },
          `${plural(turn.tokens.ids.length, "token")}, mean probability ${percent(meanChance(turn.tokens.logprobs))}`,
        )
      : null,
  );
}

const meanChance = (logprobs) => {
  const known = logprobs.filter((v) => v !== null);
  return known.length ? Math.exp(known.reduce((a, b) => a + b, 0) / known.length) : null;
};
