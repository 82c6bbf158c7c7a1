// Credit shading: the raw text, token by token, tinted by what it was taught or by how surprising it was.

import { fill, h, signed, visible } from "./dom.js";

const SHADES = 6;

export const MODES = {
  "": "Read",
  advantage: "Credit",
  surprise: "Surprise",
};

// Tokens that begin in the same character are one piece on the screen: there is no text to put between them. What was
// sampled and what was inserted stay apart, though: the text behind an end token is a tag that nobody wrote.
export function piecesOf(turn) {
  const { starts, ids, logprobs, advantages, inserted } = turn.tokens;
  const found = [];
  for (let i = 0; i < starts.length; i++) {
    const last = found.at(-1);
    const put = Boolean(inserted?.[i]);
    if (last && last.start === starts[i] && last.put === put) last.tokens.push(i);
    else found.push({ start: starts[i], tokens: [i], put });
  }
  found.forEach((piece, k) => {
    piece.text = turn.text.slice(piece.start, found[k + 1]?.start ?? turn.text.length);
    const sampled = piece.tokens.filter((i) => !inserted?.[i]);
    piece.inserted = sampled.length === 0;
    piece.advantage = piece.inserted ? 0 : advantages[sampled[0]];
    const known = !piece.inserted && sampled.every((i) => logprobs[i] !== null);
    piece.logprob = known ? sampled.reduce((sum, i) => sum + logprobs[i], 0) : null;
    piece.ids = piece.tokens.map((i) => ids[i]).filter((id) => id !== null);
    piece.section = sectionAt(turn, piece.start);
  });
  return found;
}

function sectionAt(turn, place) {
  const sections = turn.sections ?? [];
  const inside = sections.find((section) => place >= section.begin && place < section.end);
  // What follows the last section, the end-of-turn token above all, goes with it.
  return inside ?? (sections.length && place >= sections.at(-1).end ? sections.at(-1) : null);
}

export function largest(turns) {
  let most = 0;
  for (const turn of turns)
    for (const value of turn.tokens?.advantages ?? []) if (value !== null && Math.abs(value) > most) most = Math.abs(value);
  return most;
}

export function shaded(turn, mode, scale, limit) {
  const pieces = piecesOf(turn);
  const node = h("div", { class: "tokens", dir: "auto" });
  let shown = 0;
  for (const [k, piece] of pieces.entries()) {
    if (piece.start >= limit) break;
    const text = piece.text.slice(0, limit - piece.start);
    const span = document.createElement("span");
    span.className = mode === "surprise" ? surprise(piece.logprob) : credit(piece.advantage, scale);
    span.dataset.k = k;
    span.textContent = text === "" ? "∎" : visible(text);
    if (text === "") span.classList.add("empty");
    node.append(span);
    shown = k;
  }
  if (!pieces.length) node.textContent = visible(turn.text.slice(0, limit));
  node.dataset.shown = shown;
  node.addEventListener("pointerover", (event) => {
    const k = event.target.dataset?.k;
    if (k !== undefined) tip(event.target, turn, pieces[k]);
  });
  node.addEventListener("pointerleave", () => {
    document.getElementById("tip").hidden = true;
  });
  return node;
}

function credit(value, scale) {
  if (!value || !scale) return "t";
  const level = Math.max(1, Math.min(SHADES, Math.ceil((Math.abs(value) / scale) * SHADES)));
  return `t ${value > 0 ? "plus" : "minus"}${level}`;
}

// A nat a shade: what the model was sure of stays white.
function surprise(logprob) {
  if (logprob === null || logprob > -0.3) return "t";
  return `t odd${Math.max(1, Math.min(SHADES, Math.ceil(-logprob)))}`;
}

const STREAMS = { generator: "answers (generator)", judge: "judging (judge)", agent: "the agent as a whole", step: "the step" };

function tip(target, turn, piece) {
  const box = document.getElementById("tip");
  const stream = piece.inserted
    ? undefined
    : turn.failure !== undefined && "generator" in turn.advantages
      ? "generator"
      : "agent" in turn.advantages
        ? "agent"
        : "step" in turn.advantages
          ? "step"
          : piece.section?.stream;
  const row = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
  fill(
    box,
    h("code", {}, piece.text === "" ? "end of turn" : visible(piece.text.slice(0, 60)).replaceAll("\n", "⏎").replaceAll(" ", "␣")),
    h(
      "dl",
      {},
      row(piece.ids.length > 1 ? "tokens" : "token", piece.ids.slice(0, 8).join(" ") + (piece.inserted ? " (inserted)" : "")),
      row("section", turn.failure !== undefined ? "none: the turn failed" : (piece.section?.name ?? "outside the sections")),
      row("stream", stream ? (STREAMS[stream] ?? stream) : "none: nothing is taught here"),
      row("advantage", signed(piece.advantage, 3)),
      stream && turn.rewards[stream] !== undefined ? row("reward", signed(turn.rewards[stream], 3)) : null,
      stream && turn.returns?.[stream] !== undefined ? row("return", signed(turn.returns[stream], 3)) : null,
      row("logprob", piece.logprob === null ? "–" : `${signed(piece.logprob, 3)} (${chance(piece.logprob)})`),
    ),
  );
  box.hidden = false;
  const spot = target.getClientRects()[0];
  const below = spot.bottom + box.offsetHeight + 12 < innerHeight;
  box.style.left = `${Math.max(8, Math.min(spot.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below ? spot.bottom + 6 : Math.max(8, spot.top - box.offsetHeight - 6)}px`;
}

function chance(logprob) {
  const p = Math.exp(logprob) * 100;
  return p >= 99.95 ? "sure" : p >= 1 ? `${p.toFixed(p >= 10 ? 0 : 1)}%` : `1 in ${Math.round(100 / p).toLocaleString("en")}`;
}

export function legend(mode, scale) {
  const scaleOf = (names) =>
    h(
      "span",
      { class: "ramp" },
      names.map((name) => h("i", { class: `t ${name}` })),
    );
  const levels = Array.from({ length: SHADES }, (_, i) => i + 1);
  if (mode === "surprise")
    return h("span", { class: "legend" }, "expected ", scaleOf(["", ...levels.map((i) => `odd${i}`)]), " 1 in 400 or rarer");
  return h(
    "span",
    { class: "legend" },
    `${signed(-scale)} less of this `,
    scaleOf([...levels.map((i) => `minus${SHADES + 1 - i}`), "", ...levels.map((i) => `plus${i}`)]),
    ` more of this ${signed(scale)}`,
  );
}
