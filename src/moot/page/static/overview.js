// Runs side by side: the table, then every curve, then whether their votes can be trusted.

import { curves } from "./curves.js";
import { ago, fill, h, oneLine, percent, plural, signed } from "./dom.js";
import { ALARMS } from "./glossary.js";
import { evaluations } from "./evals.js";
import { csvButton } from "./download.js";
import { heads, player, sortedBy } from "./heads.js";
import { settings } from "./settings.js";
import { ask, link, note } from "./state.js";
import { drawAlarms, drawPanel, question, span } from "./trust.js";

const COLUMNS = ["Reward", "Judge accuracy", "Accuracy", "Held out"];
const HEADS = [["Run", "name"], ["Progress", "step"], ["Reward", "reward"], ["Judge accuracy", "judges"], ["Accuracy", "right"], ["Held out", "held_out"], ["Last row", "age"]];

// Runs in their order, those of one recipe together where its first one stands.
function bySeed(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = run.recipe ?? run.name;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()];
}

export function overview(main, query, runs) {
  let chosen = query.getAll("run").filter((name) => runs.some((run) => run.name === name));
  if (!chosen.length)
    // Files of debates have no curves: they are shown where there is no run.
    chosen = (runs.some((run) => !run.transcripts) ? runs.filter((run) => !run.transcripts) : [...runs])
      .sort((a, b) => (a.age_s ?? 1e12) - (b.age_s ?? 1e12))
      .slice(0, 4)
      .map((run) => run.name);
  chosen = runs.map((run) => run.name).filter((name) => chosen.includes(name));

  const table = h("tbody");
  const head = h("tr");
  let sorted = query.get("order") ?? "";
  const alarms = h("div", { class: "alarms" });
  const trust = h("div", { class: "scroll", tabindex: 0 });
  const asked = h("h2", {});
  const charts = curves(query);
  const told = settings();
  const tested = evaluations();
  main.append(
    h(
      "section",
      {},
      h("div", { class: "bar" }, h("h1", {}, "Runs"), csvButton(() => table.parentNode, "runs")),
      h(
        "div",
        { class: "scroll tall", tabindex: 0 },
        h(
          "table",
          { class: "runs" },
          h("thead", {}, head),
          table,
        ),
      ),
      h(
        "p",
        { class: "quiet note" },
        "Reward, judge accuracy and accuracy: means of the last 5 steps. Judge accuracy: of the runs that are shown, with 95% intervals. Held out: the last evaluation's accuracy.",
      ),
      told.node,
    ),
    charts.node,
    h("section", {}, asked, alarms, trust),
    tested.node,
  );

  let drawn = "";
  let rows = "";
  const panels = {};
  // By the checks of judges where these make the reward, otherwise by votes.
  const judging = ({ name }) => panels[name]?.panel?.["trust/judge_pair_accuracy"] ?? panels[name]?.panel?.["trust/judge_accuracy"];

  function colour(name) {
    return `c${runs.findIndex((run) => run.name === name) % 8}`;
  }

  // What a run, or the mean of several, is sorted by.
  function value(same, key) {
    const own = (run) =>
      ({ name: run.name, step: run.step, age: run.age_s, judges: judging(run)?.value })[key] ??
      run.headline[key];
    const known = same.map(own).filter((found) => found !== null && found !== undefined);
    return typeof known[0] === "string" || !known.length ? known[0] : known.reduce((a, b) => a + b, 0) / known.length;
  }

  function drawTable() {
    const sort = (next) => {
      sorted = next;
      note({ order: sorted || null });
      drawTable();
    };
    fill(head, h("th", {}, h("span", { class: "unseen" }, "Shown")), heads(HEADS, sorted, sort));
    fill(
      table,
      sortedBy(bySeed(runs).map((same) => sortedBy(same, sorted, (run, key) => value([run], key))), sorted, value).flatMap((same) => [same.length > 1 ? seeds(same) : null, same.map((run) => line(run, same.length > 1))]),
    );
  }

  function line(run, grouped) {
    const ringing = Object.entries(run.alarms)
      .filter(([, on]) => on)
      .map(([key]) => ALARMS[key].name);
    const on = chosen.includes(run.name);
    const judges = judging(run);
    return h(
      "tr",
      { class: `${on ? "" : "off"} ${grouped ? "seed" : ""}` },
      h("td", {}, tickbox([run.name], `Show ${run.name}`, colour(run.name))),
      h(
        "td",
        { class: "run" },
        h("a", { href: link({ view: run.transcripts ? "debates" : "run", run: run.name }), title: run.path }, oneLine(run.name, 80)),
        ringing.map((name) => h("span", { class: "chip bad" }, "⚠ ", name)),
        run.trouble ? h("span", { class: "chip bad" }, oneLine(run.trouble, 160)) : null,
        h(
          "small",
          {},
          [
            player(run, 40),
            run.task && oneLine(run.task, 30),
            run.agents && `${plural(run.agents, "agent")} × ${plural(run.rounds, "round")}`,
          ]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
      h("td", { class: "progress" }, progress(run)),
      values([run.labels ? "–" : signed(run.headline.reward), judges ? [percent(judges.value), span(judges)] : "–", percent(run.headline.right), percent(run.headline.held_out)]),
      h("td", { class: "quiet age", data: { run: run.name } }, ago(run.age_s)),
    );
  }

  // A cell says what it is, for a window too narrow for the table's head.
  const values = (texts) => texts.map((text, i) => h("td", { class: "num", data: { column: COLUMNS[i] } }, text));

  function tickbox(names, label, tint) {
    return h(
      "label",
      { class: "pick", title: "Show its curves" },
      h("input", {
        type: "checkbox",
        checked: names.every((name) => chosen.includes(name)),
        "aria-label": label,
        onchange: (event) => pick(names, event.target.checked),
      }),
      tint ? h("span", { class: `swatch ${tint}` }) : null,
    );
  }

  // Runs that differ by their seed alone: their mean, and the least and the most of them, for a few seeds have no interval worth the name.
  function seeds(same) {
    const names = same.map((run) => run.name);
    const over = (found, show) => {
      const known = found.filter((value) => value !== null && value !== undefined);
      if (!known.length) return "–";
      const mean = known.reduce((a, b) => a + b, 0) / known.length;
      return [show(mean), h("small", {}, ` ${show(Math.min(...known))} to ${show(Math.max(...known))}`)];
    };
    return h(
      "tr",
      { class: "seeds" },
      h("td", {}, tickbox(names, `Show all ${plural(same.length, "seed")} of ${names[0]}`)),
      h(
        "td",
        { class: "run" },
        `${plural(same.length, "seed")}: ${same.map((run) => run.seed).join(", ")}`,
        h("small", {}, "mean, least to most"),
      ),
      h("td", { class: "progress" }),
      values([
        over(same.map((run) => run.headline.reward), signed),
        over(same.map((run) => judging(run)?.value), percent),
        over(same.map((run) => run.headline.right), percent),
        over(same.map((run) => run.headline.held_out), percent),
      ]),
      h("td", {}),
    );
  }

  function progress(run) {
    if (run.transcripts) return plural(run.transcripts, "debate");
    if (run.step === null) return h("span", { class: "quiet" }, "not started");
    const words = `${run.step}${run.total ? ` / ${run.total}` : ""}`;
    return [
      run.total ? h("progress", { max: run.total, value: run.step }) : null,
      h("span", {}, words),
      h("span", { class: "quiet" }, ` ${run.phase?.replace("_", "-") ?? ""}`),
    ];
  }

  function pick(names, on) {
    chosen = runs.map((run) => run.name).filter((each) => (names.includes(each) ? on : chosen.includes(each)));
    note({ run: chosen });
    rows = "";
    tick(runs);
  }

  const about = (name) => runs.find((run) => run.name === name);

  async function drawTrust() {
    // The panel counts debates, which takes longer than all else.
    const counting = ask("trust", { run: chosen });
    if (!trust.childElementCount) fill(trust, h("p", { class: "quiet counting" }, "Counting the votes of the last 5 steps…"));
    const found = await ask("metrics", { run: chosen });
    fill(asked, question(chosen, found, about));
    drawAlarms(alarms, chosen, found, colour, about);
    charts.update(chosen, found, colour, runs);
    // One point is no curve.
    charts.node.hidden = chosen.length > 0 && chosen.every((name) => about(name)?.transcripts);
    tested.update(chosen, colour).catch(() => {});
    const counted = await counting;
    Object.assign(panels, counted);
    drawTable();
    await drawPanel(trust, chosen, found, counted, colour, about);
  }

  function tick(latest) {
    runs = latest;
    const signature = JSON.stringify([runs.map(({ age_s, debates, ...rest }) => rest), chosen]);
    if (signature !== drawn) drawTable();
    drawn = signature;
    for (const cell of table.querySelectorAll(".age")) cell.textContent = ago(runs.find((run) => run.name === cell.dataset.run)?.age_s);
    const now = JSON.stringify(runs.filter((run) => chosen.includes(run.name)).map((run) => [run.name, run.rows]));
    told.update(chosen);
    if (now !== rows)
      drawTrust().catch(() => {
        rows = "";
      });
    rows = now;
  }

  tick(runs);
  return { tick, leave: () => charts.leave(), keys: {} };
}
