// Programs in what was said: blocks in fences are highlighted, and an agent's program is set against its last one, line by line.

import { h, plural, visible } from "./dom.js";
import { typeset } from "./maths.js";

const FENCE = /```[ \t]*([\w+#.-]*)[ \t]*\n([\s\S]*?)(?:\n[ \t]*```|$)/g;
const START = /^(?:def|import|from|class|async def|@)[ \t]/m;
const LONGEST = 20_000;
const MOST_LINES = 400;

// Text in, [{text} | {code}] out; a program without a fence begins at its first definition, as the grader reads it.
export function blocks(text) {
  const found = [];
  let plain = 0;
  for (const match of text.matchAll(FENCE)) {
    if (match.index > plain) found.push({ text: text.slice(plain, match.index) });
    found.push({ code: match[2], language: match[1] });
    plain = match.index + match[0].length;
  }
  if (!found.length && /^(?:async )?def \w+\(/m.test(text)) {
    plain = START.exec(text).index;
    if (plain) found.push({ text: text.slice(0, plain) });
    return [...found, { code: text.slice(plain), language: "python" }];
  }
  if (plain < text.length) found.push({ text: text.slice(plain) });
  return found;
}

// Prose with its formulas, programs with their colours.
export function written(text) {
  const all = blocks(text);
  return all.map((block, i) => {
    if (block.code !== undefined) return listing(block.code);
    // A listing brings its own space.
    const after = i ? block.text.replace(/^\s*\n/, "") : block.text;
    return typeset(i < all.length - 1 ? after.trimEnd() : after);
  });
}

export const listing = (code) => h("pre", { class: "code", dir: "ltr", tabindex: 0 }, highlighted(code));

// The last program of a text; null where there is none.
export function program(text) {
  return blocks(text ?? "").findLast((block) => block.code?.trim())?.code ?? null;
}

const WORDS = new Set(
  (
    "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda " +
    "match nonlocal not or pass raise return try while with yield True False None self function const let var new this null true false"
  ).split(" "),
);
const TOKEN =
  /(#[^\n]*|\/\/[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(\d[\w.]*)|\b((?:def|class)[ \t]+)(\w+)|([A-Za-z_]\w*)/g;

// Nodes and texts. Comments, strings, numbers, the names that are defined, and the words of the language; nothing else is coloured.
export function highlighted(code) {
  if (code.length > LONGEST) return [visible(code)];
  const out = [];
  let plain = 0;
  const put = (kind, text) => out.push(h("span", { class: `k-${kind}` }, visible(text)));
  for (const match of code.matchAll(TOKEN)) {
    const [whole, comment, string, digits, defines, name, word] = match;
    // Two slashes divide in Python.
    if ((word && !WORDS.has(word)) || comment?.startsWith("//")) continue;
    if (match.index > plain) out.push(visible(code.slice(plain, match.index)));
    if (defines) {
      put("word", defines);
      put("name", name);
    } else put(comment ? "note" : string ? "text" : digits ? "digits" : "word", whole);
    plain = match.index + whole.length;
  }
  if (plain < code.length) out.push(visible(code.slice(plain)));
  return out;
}

// Lines of both, each with " " (in both), "-" (only before) or "+" (only after); null where they are too long to compare.
export function compared(before, after) {
  const [a, b] = [before.trimEnd().split("\n"), after.trimEnd().split("\n")];
  if (a.length > MOST_LINES || b.length > MOST_LINES) return null;
  // The longest common subsequence of lines, from the end.
  const rest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--) rest[i][j] = a[i] === b[j] ? rest[i + 1][j + 1] + 1 : Math.max(rest[i + 1][j], rest[i][j + 1]);
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) out.push([" ", a[i++]]) && j++;
    else if (i < a.length && (j === b.length || rest[i + 1][j] >= rest[i][j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
}

// What changed since the agent's program of an earlier round, folded; null where there is nothing to compare.
export function changes(before, round, after) {
  if (before === null || after === null) return null;
  if (before.trimEnd() === after.trimEnd()) return h("p", { class: "quiet" }, `The program is that of round ${round}.`);
  const lines = compared(before, after);
  if (!lines) return null;
  const count = (sign) => lines.filter(([own]) => own === sign).length;
  return h(
    "details",
    { class: "changes" },
    h("summary", {}, `Changes since round ${round}: ${plural(count("+"), "line")} added, ${count("-")} removed`),
    h(
      "pre",
      { class: "code", dir: "ltr", tabindex: 0 },
      lines.map(([sign, line]) =>
        h("span", { class: sign === "+" ? "line added" : sign === "-" ? "line removed" : "line" }, `${sign} `, highlighted(line)),
      ),
    ),
  );
}
