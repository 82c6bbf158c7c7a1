// Typeset mathematics inside plain text. KaTeX builds nodes; what it cannot read stays as it was written.
/* global katex */

import { oneLine, visible } from "./dom.js";

const LONGEST = 3000;
// Of nodes in nodes. A browser lays them out one inside another and dies at about 900; a repeating model gets there.
const DEEPEST = 250;
const PAIRS = [
  ["$$", "$$", true],
  ["\\[", "\\]", true],
  ["\\(", "\\)", false],
];
const ENVIRONMENT = /^\\begin\{(equation|align|gather|cases|matrix|pmatrix|bmatrix|array)(\*?)\}/;

// Text in, [{text} | {tex, display, source}] out. One pass: at each marker either a formula ends soon enough, or it is text.
export function pieces(text) {
  const found = [];
  let plain = 0;
  const formula = (begin, end, tex, display) => {
    if (begin > plain) found.push({ text: text.slice(plain, begin) });
    found.push({ tex, display, source: text.slice(begin, end) });
    plain = end;
    return end;
  };
  const marker = /\$|\\\[|\\\(|\\boxed\{|\\begin\{/g;
  for (let match = marker.exec(text); match; match = marker.exec(text)) {
    const end = formulaEnd(text, match.index, formula);
    if (end) marker.lastIndex = end;
  }
  if (plain < text.length) found.push({ text: text.slice(plain) });
  return found;
}

function formulaEnd(text, i, formula) {
  const near = text.slice(i, i + LONGEST);
  for (const [open, close, display] of PAIRS) {
    if (near.startsWith(open)) {
      const end = near.indexOf(close, open.length);
      return end > open.length ? formula(i, i + end + close.length, near.slice(open.length, end), display) : open === "$$" ? i + 2 : 0;
    }
  }
  if (near.startsWith("\\boxed{")) {
    const end = braceEnd(near, 6);
    return end ? formula(i, i + end, near.slice(0, end), false) : 0;
  }
  const environment = ENVIRONMENT.exec(near);
  if (environment) {
    const close = `\\end{${environment[1]}${environment[2]}}`;
    const end = near.indexOf(close);
    return end > 0 ? formula(i, i + end + close.length, near.slice(0, end + close.length), true) : 0;
  }
  if (near[0] === "$") {
    // A price is not a formula: no space inside the signs, nothing but one line, no digit behind.
    const inline = /^\$(?![\s$])((?:[^$\n\\]|\\[^\n])*?[^\s$\\]|[^\s$\\])\$(?!\d)/.exec(near.slice(0, 600));
    return inline ? formula(i, i + inline[0].length, inline[1], false) : 0;
  }
  return 0;
}

function braceEnd(text, open) {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "{") depth++;
    else if (text[i] === "}" && --depth === 0) return i + 1;
  }
  return 0;
}

export function typeset(text, most = 300) {
  const out = document.createDocumentFragment();
  const nodes = pieces(text).map(
    (piece, i) => (piece.tex !== undefined && i < 2 * most ? rendered(piece) : null) ?? piece.text ?? piece.source,
  );
  const display = (node) => node instanceof Node && node.classList.contains("display");
  nodes.forEach((node, i) => {
    if (node instanceof Node) return out.append(node);
    // A formula on a line of its own brings its own space.
    const after = display(nodes[i - 1]) ? trimmed(node, node.trimStart()) : node;
    out.append(visible(display(nodes[i + 1]) ? trimmed(after, after.trimEnd()) : after));
  });
  return out;
}

// Without the space at its end, where that holds a line's end.
function trimmed(text, shorter) {
  const cut = text.startsWith(shorter) ? text.slice(shorter.length) : text.slice(0, -shorter.length || undefined);
  return cut.includes("\n") ? shorter : text;
}

// An answer, on one line. It is often a formula without its signs; what had to be cut or spelled out is none.
export function typesetAnswer(raw, width = 160) {
  const text = oneLine(raw, width);
  if (text !== String(raw).replace(/\s+/g, " ").trim()) return document.createTextNode(text);
  const bare = /\\[a-zA-Z]|[_^]/.test(text) && !/\$|\\\(|\\\[/.test(text);
  return (bare && rendered({ tex: text, display: false, source: text })) || typeset(text);
}

function rendered({ tex, display, source }) {
  const node = document.createElement("span");
  node.className = display ? "maths display" : "maths";
  node.setAttribute("role", "math");
  node.setAttribute("aria-label", visible(source));
  node.title = visible(source);
  try {
    // trust: no links, images or raw HTML. The limits stop macros that grow without end and boxes larger than the page.
    katex.render(tex, node, {
      displayMode: display,
      output: "html",
      throwOnError: true,
      strict: false,
      trust: false,
      maxSize: 8,
      maxExpand: 200,
    });
  } catch {
    return null;
  }
  return deeper(node, DEEPEST) ? null : node;
}

// Not yet on the page, so that nothing is laid out: only what KaTeX made says how deep a formula goes.
function deeper(node, most) {
  let level = [node];
  for (let depth = 0; level.length; depth++) {
    if (depth > most) return true;
    level = level.flatMap((each) => [...each.children]);
  }
  return false;
}
