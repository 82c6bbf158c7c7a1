// What the chosen runs were told to do: first what they differ in.

import { fill, h, oneLine } from "./dom.js";
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
    const apart = chosen.length > 1 ? keys.filter(differs) : keys;
    fill(
      node,
      summary(),
      apart.length ? table(apart) : h("p", { class: "quiet" }, "They differ in nothing."),
      chosen.length > 1
        ? h(
            "details",
            {},
            h("summary", {}, `The ${keys.length - apart.length} settings they share`),
            table(keys.filter((key) => !differs(key))),
          )
        : null,
    );
  }

  const summary = () => h("summary", {}, chosen.length > 1 ? "Settings in which they differ" : "Settings");
  node.addEventListener("toggle", () =>
    draw().catch(() => {
      drawn = "";
    }),
  );
  return {
    node,
    update(names) {
      chosen = names;
      node.hidden = !names.length;
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
