// What judges without a seat made of an answer: its score, and each check with the thinking before its word.

import { written } from "./code.js";
import { h, oneLine, percent, plural } from "./dom.js";

export const score = (value) => value.toFixed(2).replace("-", "−");

// One check: what came of it, and what was thought.
export function thought(title, thinking) {
  return h("div", { class: "part" }, h("h3", {}, title), h("div", { class: "said", dir: "auto" }, thinking ? written(thinking.slice(0, 8000)) : "(it did not think)"));
}

// Beside an answer of a debate; `place` is its turn.
export function checked(debate, place) {
  const own = (debate.checks ?? []).filter(({ turns }) => turns.includes(place));
  if (!own.length) return null;
  const scores = debate.scores_by_turn?.[place] ?? [];
  const mean = scores.length ? scores.reduce((a, b) => a + b, 0) / scores.length : null;
  const judges = new Set(own.map(({ judge }) => judge)).size;
  return h(
    "details",
    { class: "outside checks" },
    h(
      "summary",
      {},
      mean === null ? null : h("b", { class: "num" }, `score ${score(mean)} `),
      `${plural(own.length, "check")}${judges > 1 ? ` by ${judges} judges` : ""}`,
    ),
    own.map((check) => thought(`${judges > 1 ? `Judge ${check.judge}: ` : ""}${verdict(check, place, debate)}`, check.thinking)),
  );
}

// The probability of the word that is for this answer; a server that gives none has only the word.
function verdict({ turns, value, by, rule }, place, debate) {
  const sure = (name, p) => (by === "word" ? (p > 0.5 ? name : p < 0.5 ? `not ${name}` : "no word") : `${name} by ${percent(p)}`);
  if (turns.length < 2) return rule ? `${oneLine(rule, 200)} ${sure("Yes", value)}` : sure("Yes", value);
  const first = turns[0] === place;
  const other = debate.turns[turns[first ? 1 : 0]]?.agent;
  return `${sure("preferred", first ? value : 1 - value)} to Agent ${other}, shown ${first ? "first" : "second"}`;
}
