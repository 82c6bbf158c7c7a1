// What `moot judge` measured: a bar for each way to judge, and every verdict with the thinking that led to it.

import { fill, h, number, oneLine, percent, plural, visible } from "./dom.js";
import { csvButton } from "./download.js";
import { score as round, thought } from "./checks.js";
import { written } from "./code.js";
import { heads, sortedBy } from "./heads.js";
import { ask, go, link, note } from "./state.js";
import { svg } from "./svg.js";

const COLUMNS = [
  ["Way", "way"],
  ["Pair accuracy", "pair_accuracy"],
  ["Best minus this", "best_minus"],
  ["J", "j"],
  ["At 20%", "precision_20"],
  ["At 50%", "precision_50"],
  ["Counting fails", "counting_fails"],
  ["One order", "one_order"],
  ["Order flips", "order_flips"],
  ["Length", "length"],
  ["Tokens", "cost"],
];

// As `moot judge` names it.
function wayOf({ judge, ballot, show, rules, prompts, checks }) {
  const over = { mean: "mean of the rules", least: "least of the rules" }[rules];
  return [judge, ballot === "approval" ? `approval ×${checks}` : ballot, show, over, prompts === "default" ? "" : prompts].filter(Boolean).join(", ");
}

export function judgesView(main, query, runs, judges) {
  const name = judges.includes(query.get("judge")) ? query.get("judge") : judges[0];
  const body = h("div", {}, h("p", { class: "quiet pad" }, "Reading what was measured…"));
  main.append(body);
  document.title = `Judges · ${oneLine(name ?? "", 60)} · moot`;
  let gone = false;

  async function load() {
    const report = (await ask("judges"))[name];
    if (gone) return;
    if (!report) return void fill(body, h("div", { class: "pad" }, h("h1", {}, "Nothing was measured here"), h("p", {}, "Run ", h("code", {}, "moot judge"), ", and name its folder.")));
    draw(report);
  }

  function draw(report) {
    const rows = report.rows.map((row) => ({ ...row, way: wayOf(row) }));
    fill(
      body,
      h(
        "section",
        {},
        h(
          "div",
          { class: "bar" },
          h("h1", {}, "Judges"),
          judges.length > 1
            ? h(
                "select",
                { "aria-label": "Measurement", onchange: (event) => go({ view: "judges", judge: event.target.value }) },
                judges.map((each) => h("option", { value: each, selected: each === name }, oneLine(each, 60))),
              )
            : h("span", { class: "of" }, oneLine(name, 80)),
        ),
        report.trouble ? h("p", { class: "bad" }, visible(report.trouble)) : h("p", { class: "quiet" }, `Task ${oneLine(report.task, 60)} · ${plural(Math.max(0, ...rows.map((row) => row.questions ?? 0)), "question")} with right and wrong answers`),
        report.advice ? h("p", { class: "advice" }, visible(report.advice)) : null,
        rows.filter((row) => row.fewer).map((row) => h("p", { class: "quiet" }, oneLine(`${row.way}: ${row.fewer}.`, 400))),
      ),
      h(
        "section",
        { class: "bars" },
        bars("Pair accuracy", "Pairs of a right and a wrong answer in which the right one scores higher. One half is guessing.", rows, "pair_accuracy", [0, 1], 0.5),
        bars("J", "Right answers that are approved, minus wrong ones. At 0 approval says nothing.", rows, "j", [-1, 1], 0),
      ),
      report.trouble ? null : h("section", {}, table(rows)),
      verdicts(name, query),
    );
  }

  load().catch((error) => fill(body, h("p", { class: "pad bad" }, visible(error.message))));
  return { tick: () => {}, leave: () => (gone = true), keys: { Escape: () => go({}) } };
}

// Each way's value with its 95% interval; `chance` is what says nothing.
function bars(title, means, rows, key, [low, high], chance) {
  const known = rows.filter((row) => row[key]);
  if (!known.length) return null;
  const [width, step, left] = [Math.min(560, innerWidth - 40), 34, 8];
  const at = (value) => left + ((Math.min(high, Math.max(low, value)) - low) / (high - low)) * (width - 2 * left);
  const bar = (row, i) => {
    const { value, low: from, high: to } = row[key];
    const y = i * step;
    const tone = from > chance ? "good" : to < chance ? "bad" : "unsure";
    return [
      svg("line", { class: "chance", x1: at(chance), x2: at(chance), y1: y + 15, y2: y + 29 }),
      svg("rect", { class: tone, x: Math.min(at(chance), at(value)), y: y + 18, width: Math.max(1, Math.abs(at(value) - at(chance))), height: 8 }),
      svg("line", { class: "span", x1: at(from), x2: at(to), y1: y + 22, y2: y + 22 }),
      svg("text", { x: left, y: y + 12 }, `${oneLine(row.way, 70)}: ${round(value)} [${round(from)}, ${round(to)}]`),
    ];
  };
  const told = known.map((row) => `${row.way} ${round(row[key].value)}`).join(", ");
  return h(
    "figure",
    {},
    h("figcaption", {}, title, h("small", {}, means)),
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${known.length * step + 4}`, role: "img", "aria-label": oneLine(`${title}: ${told}`, 900) },
      known.flatMap(bar),
    ),
  );
}

function table(rows) {
  const node = h("table", { class: "judges" });
  let sorted = "";
  const cell = (found, key) =>
    !found
      ? h("td", { class: "num quiet" }, "–")
      : h("td", { class: "num" }, key === "cost" ? number(Math.round(found.value)) : [h("b", {}, round(found.value)), h("span", { class: "quiet" }, ` [${round(found.low)}, ${round(found.high)}]`)]);
  const columns = COLUMNS.filter(([, key]) => key === "way" || rows.some((row) => row[key]));
  function draw() {
    const sort = (next) => {
      sorted = next;
      draw();
    };
    fill(
      node,
      h("thead", {}, h("tr", {}, heads(columns, sorted, sort))),
      h(
        "tbody",
        {},
        sortedBy(rows, sorted, (row, key) => (key === "way" ? row.way : row[key]?.value)).map((row) =>
          h("tr", {}, h("th", { scope: "row" }, oneLine(row.way, 120)), columns.slice(1).map(([, key]) => cell(row[key], key))),
        ),
      ),
    );
  }
  draw();
  return [h("div", { class: "bar" }, h("h2", {}, "Every measure"), csvButton(() => node, "judges")), h("div", { class: "scroll", tabindex: 0 }, node)];
}

// Question by question: each answer, and beside it what every judge made of it.
function verdicts(name, query) {
  const list = h("div");
  const more = h("button", { class: "more", hidden: true, onclick: () => load() }, "More");
  const pick = h("select", { "aria-label": "Way", onchange: () => show(pick.value) });
  let next = 0;
  let wanted = query.get("way") ?? "";
  const found = [];

  async function load() {
    more.disabled = true;
    const { rows, next: then } = await ask("verdicts", { judge: name, begin: next });
    [next, more.hidden, more.disabled] = [then, then === null, false];
    found.push(...rows);
    const ways = [...new Set(found.flatMap((row) => (row.ways ?? []).map(({ way }) => way)))];
    fill(
      pick,
      h("option", { value: "" }, "all ways"),
      ways.map((way) => h("option", { value: way, selected: way === wanted }, oneLine(way, 90))),
    );
    list.append(...rows.map(question));
    if (!found.length) fill(list, h("p", { class: "quiet" }, "No verdicts stand here: an older moot judge kept them only by their digest."));
  }

  function show(way) {
    wanted = way;
    note({ way: way || null });
    fill(list, found.map(question));
  }

  function question(row) {
    if (row.broken) return h("p", { class: "bad" }, `This line cannot be read: ${visible(row.broken)}`);
    const ways = row.ways.filter(({ way }) => !wanted || way === wanted);
    return h(
      "details",
      { class: "asked" },
      h("summary", { dir: "auto" }, oneLine(row.question, 200), h("small", {}, ` ${row.answers.filter(({ correct }) => correct).length} of ${row.answers.length} right`)),
      h("p", { class: "quiet" }, row.known === null ? "The right answer is not known." : `The right answer is ${oneLine(row.known, 120)}.`),
      h("div", { class: "given" }, row.answers.map((answer, i) => given(answer, i, ways))),
    );
  }

  const sign = (right) => h("span", { class: right ? "yes" : "no" }, right ? " ✓" : " ✗");

  function given({ text, answer, correct }, place, ways) {
    return h(
      "article",
      { class: "turn" },
      h("header", {}, h("b", {}, `Answer ${place + 1}`), h("span", { class: "answer" }, answer === null ? "none found" : oneLine(answer, 60), sign(correct))),
      h("div", { class: "said", dir: "auto" }, written((text ?? "").slice(0, 4000))),
      ways.map((way) => heard(way, place)),
    );
  }

  function heard({ way, scores, verdicts: said }, place) {
    const own = said.filter(({ about }) => about.includes(place));
    const score = scores[place];
    const of = ({ about, value, rule }) => {
      if (value === null) return `compares ${about.length} answers`;
      return about.length > 1 ? `prefers answer ${about[0] + 1} to ${about[1] + 1} by ${percent(value)}` : `${rule ? `${oneLine(rule, 200)} ` : ""}Yes by ${percent(value)}`;
    };
    return h(
      "details",
      { class: "verdicts" },
      h("summary", {}, h("span", { class: "num" }, score === null || score === undefined ? "not judged" : `score ${round(score)}`), h("small", {}, ` ${oneLine(way, 90)}`)),
      own.map((verdict) => thought(of(verdict), verdict.thinking)),
    );
  }

  load().catch((error) => fill(list, h("p", { class: "bad" }, visible(error.message))));
  return h("section", {}, h("div", { class: "bar" }, h("h2", {}, "Every verdict"), pick), list, more);
}
