// Picks the view that the address asks for, asks every two seconds whether anything is new, and hears the keyboard.

import { curvesThemeChanged } from "./curves.js";
import { debateView } from "./debate.js";
import { debatesView } from "./debates.js";
import { ago, fill, h } from "./dom.js";
import { learnWords } from "./glossary.js";
import { judgesView } from "./judges.js";
import { overview } from "./overview.js";
import { rescoreView } from "./rescore.js";
import { runView } from "./run.js";
import { ask, filters, go, here, link } from "./state.js";

const main = document.getElementById("main");
const top = document.getElementById("top");
const VIEWS = { debates: debatesView, debate: debateView, rescore: rescoreView, run: runView, judges: judgesView };

let view = null;
let runs = [];
let judges = [];
let trouble = "";
let asked = Date.now();

function show() {
  view?.leave?.();
  hideTip();
  const query = here();
  const wanted = query.get("view") ?? (runs.length || !judges.length ? "runs" : "judges");
  drawTop(wanted);
  fill(main);
  main.className = `view-${wanted}`;
  document.title = "moot";
  view = (VIEWS[wanted] ?? overview)(main, query, runs, judges);
  scrollTo(0, 0);
}

function drawTop(wanted) {
  const run = here().get("run") ?? runs[0]?.name;
  const tab = (name, label, href) => h("a", { href, class: "tab", "aria-current": wanted === name || (wanted === "run" && name === "runs") ? "page" : null }, label);
  fill(
    top,
    h("a", { href: "/", class: "name", title: "All runs" }, "moot"),
    h(
      "nav",
      {},
      tab("runs", "Runs", link({ run: here().getAll("run") })),
      run && tab("debates", "Debates", link({ view: "debates", run, ...filters() })),
      run && tab("rescore", "What if?", link({ view: "rescore", run })),
      judges.length > 0 && tab("judges", "Judges", link({ view: "judges" })),
    ),
    h("span", { class: "grow" }),
    h("span", { id: "live", role: "status" }),
    h("button", { class: "plain", id: "theme", title: "Light or dark (t)", "aria-label": "Light or dark", onclick: turnTheme }, "◐"),
    h("button", { class: "plain", id: "help", title: "Keys (?)", "aria-label": "Keys", onclick: toggleHelp }, "?"),
  );
  drawLive();
}

function drawLive() {
  const live = document.getElementById("live");
  if (!live) return;
  if (trouble) return void fill(live, h("span", { class: "dot bad" }), trouble);
  const ages = runs.map((run) => run.age_s).filter((age) => age !== null);
  const youngest = ages.length ? Math.min(...ages) + (Date.now() - asked) / 1000 : null;
  const warm = youngest !== null && youngest < 60;
  fill(live, h("span", { class: warm ? "dot good" : "dot" }), youngest === null ? "no rows yet" : `last row ${ago(youngest)}`);
}

// What is new

async function look() {
  if (document.hidden) return;
  try {
    const [found] = await Promise.all([ask("runs"), view ? null : learnWords()]);
    const first = !runs.length && !judges.length && (found.runs.length || found.judges.length);
    if (found.judges.length !== judges.length && view) setTimeout(() => drawTop(here().get("view") ?? "runs"));
    ({ runs, judges } = found);
    [trouble, asked] = ["", Date.now()];
    if (first || !view) show();
    else view.tick?.(runs);
  } catch (error) {
    // fetch gives a TypeError where nobody answers.
    trouble = error instanceof TypeError ? "the server is gone" : error.message;
  }
  if (!runs.length && !judges.length && !trouble) noRuns();
  drawLive();
}

function noRuns() {
  fill(
    main,
    h(
      "div",
      { class: "pad" },
      h("h1", {}, "No run here yet"),
      h("p", {}, "A run is a folder that ", h("code", {}, "moot train"), " makes. It will turn up here by itself."),
    ),
  );
}

setInterval(look, 2000);
document.addEventListener("visibilitychange", look);

// Moving about

addEventListener("moved", show);
addEventListener("popstate", show);
document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || url.pathname !== "/") return;
  event.preventDefault();
  history.pushState(null, "", url);
  show();
});

// Keys

const KEYS = [
  ["j  k", "next, previous (debate, or row of the list)"],
  ["Enter", "open the marked debate"],
  ["/", "search"],
  ["c", "shading: what each token was taught"],
  ["l", "debate side by side or one under another"],
  ["Esc", "back to the list, out of a field"],
  ["g r   g d", "go to runs, go to debates"],
  ["t", "light or dark"],
  ["?", "these keys"],
];
let before = "";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const key = before === "g" ? `g ${event.key}` : event.key;
  before = event.key;
  const run = here().get("run") ?? runs[0]?.name;
  const own = {
    t: turnTheme,
    "?": toggleHelp,
    "g r": () => go({ run: here().getAll("run") }),
    "g d": () => run && go({ view: "debates", run, ...filters() }),
    "/": () => document.querySelector("input[type=search]")?.focus(),
    Escape: () => (document.querySelector("dialog[open]") ? toggleHelp() : view?.keys?.Escape?.()),
  };
  const action = own[key] ?? view?.keys?.[key];
  if (!action) return;
  event.preventDefault();
  action();
});

function toggleHelp() {
  const open = document.querySelector("dialog");
  if (open) return void open.remove();
  const box = h(
    "dialog",
    { "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([keys, what]) => [
        h(
          "dt",
          {},
          keys.split(/\s+/).map((key) => h("kbd", {}, key)),
        ),
        h("dd", {}, what),
      ]),
    ),
    h("p", { class: "quiet" }, "Every filter, choice and debate is in the address: copy it to share what you see."),
    h("button", { onclick: toggleHelp }, "Close"),
  );
  document.body.append(box);
  box.show();
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = dark === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    /* then it is for this visit */
  }
  curvesThemeChanged();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", curvesThemeChanged);

function hideTip() {
  document.getElementById("tip").hidden = true;
}
addEventListener("scroll", hideTip, { passive: true, capture: true });

look();
