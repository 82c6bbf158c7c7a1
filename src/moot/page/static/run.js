// One run: its curves, whether its votes can be trusted, its evaluations, what it was told to do, and where it comes from.

import { curves } from "./curves.js";
import { fill, h, number, oneLine, plural, visible } from "./dom.js";
import { csvButton } from "./download.js";
import { player } from "./heads.js";
import { evaluations } from "./evals.js";
import { ALARMS } from "./glossary.js";
import { duration, short } from "./series.js";
import { changed } from "./settings.js";
import { ask, go, link } from "./state.js";
import { drawAlarms, drawPanel, question } from "./trust.js";

export function runView(main, query, runs) {
  const name = query.get("run") ?? runs[0]?.name;
  const colour = () => "c0";
  const find = () => runs.find((run) => run.name === name);
  const facts = h("p", { class: "quiet facts" });
  const alarms = h("div", { class: "alarms" });
  const trust = h("div", { class: "scroll", tabindex: 0 });
  const asked = h("h2", {});
  const charts = curves(query);
  const tested = evaluations();
  const told = changed();
  const made = h("dl", { class: "made" });
  document.title = `${oneLine(name, 60)} · moot`;
  if (!find())
    return void main.append(
      h("div", { class: "pad" }, h("h1", {}, "There is no such run here"), h("a", { href: "/" }, "All runs")),
    );
  main.append(
    h(
      "section",
      {},
      h(
        "div",
        { class: "bar" },
        h("h1", {}, oneLine(name, 80)),
        h("a", { href: link({ view: "debates", run: name }) }, "Its debates"),
        h("a", { href: link({ view: "rescore", run: name }) }, "What if?"),
      ),
      facts,
    ),
    charts.node,
    h("section", {}, h("div", { class: "bar" }, asked, csvButton(() => trust.querySelector("table"), `${name}-trust`)), alarms, trust),
    tested.node,
    told.node,
    h("section", {}, h("h2", {}, "Where it comes from"), made),
  );

  function drawFacts() {
    const run = find();
    if (!run) return;
    fill(
      facts,
      [
        player(run, 60),
        run.task && oneLine(run.task, 40),
        run.agents && `${plural(run.agents, "agent")} × ${plural(run.rounds, "round")}`,
        run.reward && `reward ${oneLine(run.reward, 40)}`,
        run.transcripts ? plural(run.transcripts, "debate") : run.step === null ? "not started" : `step ${number(run.step)}${run.total ? ` of ${number(run.total)}` : ""}`,
      ]
        .filter(Boolean)
        .join(" · "),
      Object.entries(run.alarms)
        .filter(([, on]) => on)
        .map(([key]) => [" ", h("span", { class: "chip bad" }, "⚠ ", ALARMS[key].name)]),
      run.trouble ? [" ", h("span", { class: "chip bad" }, oneLine(run.trouble, 200))] : null,
    );
  }

  // What is not known is left out: older runs, and files of debates, say less.
  function drawMade({ made_by: by, path, seconds, tokens }) {
    const rows = [
      ["Command", by.command && h("code", {}, visible(by.command))],
      ["Version", by.moot && [`moot ${oneLine(by.moot, 60)}`, by.commit ? [", commit ", h("code", {}, oneLine(by.commit, 60))] : null, by.python ? `, Python ${oneLine(by.python, 20)}` : null]],
      ["Host", by.host && oneLine(by.host, 80)],
      ["Started", by.started && time(by.started)],
      ["Duration", seconds > 0 && `${duration(seconds)} in steps and evaluations`],
      ["Sampled", tokens > 0 && `${short(tokens)} tokens in training`],
      [find()?.transcripts ? "File" : "Folder", h("code", {}, visible(path))],
    ];
    fill(
      made,
      rows.filter(([, value]) => value).map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]),
    );
  }

  function time(text) {
    const at = new Date(text);
    return Number.isNaN(at.valueOf()) ? oneLine(text, 60) : h("time", { datetime: text, title: text }, at.toLocaleString());
  }

  let rows = "";
  async function draw() {
    const counting = ask("trust", { run: name });
    const [found, about] = await Promise.all([ask("metrics", { run: name }), ask("about", { run: name }).catch(() => null)]);
    fill(asked, question([name], found, find));
    drawAlarms(alarms, [name], found, colour, find);
    charts.node.hidden = Boolean(find()?.transcripts); // one point is no curve
    charts.update([name], found, colour, runs);
    tested.update([name], colour).catch(() => {});
    if (about) {
      drawMade(about);
      told.update(about);
    }
    await drawPanel(trust, [name], found, await counting, colour, find);
  }

  function tick(latest) {
    runs = latest;
    drawFacts();
    const now = String(find()?.rows);
    if (now !== rows)
      draw().catch(() => {
        rows = "";
      });
    rows = now;
  }

  tick(runs);
  return { tick, leave: () => charts.leave(), keys: { Escape: () => go({}) } };
}
