// What the page shows, as files: a table or a curve as CSV, a curve as a picture. Nothing leaves the browser.

import { h } from "./dom.js";

export function save(name, content, kind) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  h("a", { href: url, download: name.replace(/[^\w.-]+/g, "-") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// What a model wrote may look like a formula, and must not be one in a spreadsheet.
function cell(value) {
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function asCsv(rows) {
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

// A table as it is shown; a cell may say in data-csv what it holds.
function shown(table) {
  const words = (node) => node.dataset.csv ?? node.textContent.replace(/\s+/g, " ").trim();
  return [...table.rows].map((row) => [...row.cells].map(words));
}

export function csvButton(table, name) {
  return h(
    "button",
    { class: "save", title: "This table as a CSV file", onclick: () => save(`${name}.csv`, asCsv(shown(table())), "text/csv") },
    "CSV",
  );
}
