// What runs were told to do: of several, what they differ in; of one, what it changes of its preset.

import { fill, h, oneLine, plural } from "./dom.js";
import { csvButton } from "./download.js";
import { ask } from "./state.js";

export function settings() {
  const node = h("details", { class: "settings" });
  let chosen = [];
  let drawn = "";

  async function draw() {
    if (!node.open || drawn === chosen.join("\n")) return;
    drawn = chosen.join("\n");
    const found = await Promise.all(chosen.map((run) => ask("config", { run })));
    const flat = found.map(({ header }) => Object.fromEntries(flatten({ ...header?.config, made_by: header?.made_by })));
    const keys = [...new Set(flat.flatMap((each) => Object.keys(each)))];
    const differs = (key) => new Set(flat.map((each) => each[key])).size > 1;
    const table = (list) =>
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        h(
          "table",
          { class: "config" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", {}, ""),
              chosen.map((name) => h("th", {}, oneLine(name, 40))),
            ),
          ),
          h(
            "tbody",
            {},
            list.map((key) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, oneLine(key, 80)),
                flat.map((each) => h("td", {}, oneLine(each[key] ?? "–", 120))),
              ),
            ),
          ),
        ),
      );
    const apart = keys.filter(differs);
    fill(
      node,
      summary(),
      apart.length ? table(apart) : h("p", { class: "quiet" }, "They differ in nothing."),
      h(
        "details",
        {},
        h("summary", {}, `The ${keys.length - apart.length} settings they share`),
        table(keys.filter((key) => !differs(key))),
      ),
    );
  }

  const summary = () => h("summary", {}, "Settings in which they differ");
  node.addEventListener("toggle", () =>
    draw().catch(() => {
      drawn = "";
    }),
  );
  return {
    node,
    update(names) {
      chosen = names;
      node.hidden = names.length < 2; // a run has them on its own page
      if (!node.open || drawn !== names.join("\n")) fill(node, summary());
      draw().catch(() => {
        drawn = "";
      });
    },
  };
}

function flatten(value, path = "") {
  if (value === undefined) return [];
  if (value === null || typeof value !== "object" || Array.isArray(value))
    return [[path, typeof value === "string" ? value : JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, each]) => flatten(each, path ? `${path}.${key}` : key));
}

// One run's, as `about` has them.
export function changed() {
  const body = h("tbody");
  const count = h("span", { class: "quiet" });
  const preset = h("th", {}, "");
  let found = { settings: [], preset: "" };
  let all = false;
  let wanted = "";
  const table = h("table", { class: "config" }, h("thead", {}, h("tr", {}, h("th", {}, "Setting"), h("th", {}, "This run"), preset)), body);
  const find = h("input", {
    type: "search",
    placeholder: "Find a setting",
    "aria-label": "Find a setting",
    oninput: (event) => {
      wanted = event.target.value.toLowerCase();
      draw();
    },
  });
  const every = h("input", {
    type: "checkbox",
    onchange: (event) => {
      all = event.target.checked;
      draw();
    },
  });
  const node = h(
    "section",
    {},
    h("div", { class: "bar" }, h("h2", {}, "Settings"), find, h("label", { class: "quiet" }, every, " all, not only what it changes"), count, csvButton(() => table, "settings")),
    h("div", { class: "scroll", tabindex: 0 }, table),
  );

  // Who searches looks through all of them.
  function draw() {
    const { settings } = found;
    const own = settings.filter(({ value, usual }) => value !== usual);
    const shown = (all || wanted ? settings : own).filter(({ name, value }) => `${name} ${value}`.toLowerCase().includes(wanted));
    preset.textContent = `Preset ${found.preset}`;
    count.textContent = `${plural(own.length, "setting")} of ${settings.length} differ from the preset ${found.preset}`;
    fill(
      body,
      shown.map(({ name, value, usual }) =>
        h(
          "tr",
          { class: value === usual ? "" : "changed" },
          h("th", { scope: "row" }, oneLine(name, 80)),
          h("td", { data: { csv: value } }, oneLine(value, 400)),
          h("td", { class: "quiet", data: { csv: usual } }, value === usual ? "the same" : oneLine(usual, 400) || "–"),
        ),
      ),
    );
  }

  return {
    node,
    update(about) {
      found = about;
      node.hidden = !about.settings.length;
      draw();
    },
  };
}
