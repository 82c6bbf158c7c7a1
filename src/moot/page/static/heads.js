// What tables of runs and of debates share: heads of columns that sort, once with the largest first, once with the smallest, then as it was.

import { h, oneLine } from "./dom.js";

// `columns` are [name, key], or a name alone, which does not sort. `sorted` is "" or a key, with "-" before it where the smallest come first.
export function heads(columns, sorted, onsort) {
  return columns.map((column) => {
    const [name, key] = [column].flat();
    if (!key) return h("th", {}, name);
    const way = sorted === key ? "descending" : sorted === `-${key}` ? "ascending" : null;
    const next = way === null ? key : way === "descending" ? `-${key}` : "";
    return h(
      "th",
      { "aria-sort": way },
      h("button", { class: "sort", title: `Sort by ${name.toLowerCase()}`, onclick: () => onsort(next) }, name, { descending: " ↓", ascending: " ↑" }[way] ?? ""),
    );
  });
}

// Who speaks in a run. The script needs no model, whatever its settings name.
export const player = ({ engine, model }, width) => (engine === "scripted" ? "scripted engine" : model && oneLine(model, width));

// Rows by what `value` finds in them; what has none comes last, either way.
export function sortedBy(rows, sorted, value) {
  if (!sorted) return rows;
  const sign = sorted.startsWith("-") ? 1 : -1;
  const key = sorted.replace("-", "");
  const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  return rows
    .map((row) => [value(row, key) ?? null, row])
    .sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * order(a, b)))
    .map(([, row]) => row);
}
