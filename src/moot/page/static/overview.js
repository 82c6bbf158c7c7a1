// Runs side by side: the table, then whether their votes can be trusted, then every curve.

import { curves } from "./curves.js";
import { ago, fill, h, number, oneLine, percent, plural, signed } from "./dom.js";
import { ALARMS, TRUST } from "./glossary.js";
import { evaluations } from "./evals.js";
import { settings } from "./settings.js";
import { ask, link, note } from "./state.js";

export function overview(main, query, runs) {
  let chosen = query.getAll("run").filter((name) => runs.some((run) => run.name === name));
  if (!chosen.length)
    chosen = [...runs]
      .sort((a, b) => (a.age_s ?? 1e12) - (b.age_s ?? 1e12))
      .slice(0, 4)
      .map((run) => run.name);
  chosen = runs.map((run) => run.name).filter((name) => chosen.includes(name));

  const table = h("tbody");
  const alarms = h("div", { class: "alarms" });
  const trust = h("div", { class: "scroll" });
  const charts = curves(query);
  const told = settings();
  const tested = evaluations();
  main.append(
    h(
      "section",
      {},
      h("h1", {}, "Runs"),
      h(
        "div",
        { class: "scroll tall" },
        h(
          "table",
          { class: "runs" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["", "Run", "Progress", "Reward", "Judges right", "Right", "Held out", "Last row"].map((name) => h("th", {}, name)),
            ),
          ),
          table,
        ),
      ),
      told.node,
    ),
    h("section", {}, h("h2", {}, "Can the votes be trusted?"), alarms, trust),
    tested.node,
    charts.node,
  );

  let drawn = "";
  let rows = "";

  function colour(name) {
    return `c${runs.findIndex((run) => run.name === name) % 8}`;
  }

  function drawTable() {
    fill(
      table,
      runs.map((run) => {
        const ringing = Object.entries(run.alarms)
          .filter(([, on]) => on)
          .map(([key]) => ALARMS[key].name);
        const on = chosen.includes(run.name);
        return h(
          "tr",
          { class: on ? "" : "off" },
          h(
            "td",
            {},
            h(
              "label",
              { class: "pick", title: "Show its curves" },
              h("input", { type: "checkbox", checked: on, "aria-label": `Show ${run.name}`, onchange: () => pick(run.name) }),
              h("span", { class: `swatch ${colour(run.name)}` }),
            ),
          ),
          h(
            "td",
            { class: "run" },
            h("a", { href: link({ view: "debates", run: run.name }), title: `Its debates\n${run.path}` }, oneLine(run.name, 80)),
            ringing.map((name) => h("span", { class: "chip bad" }, "⚠ ", name)),
            h(
              "small",
              {},
              [
                run.model && oneLine(run.model, 40),
                run.engine === "scripted" && "scripted",
                run.task && oneLine(run.task, 30),
                run.agents && `${run.agents} agents × ${run.rounds} rounds`,
              ]
                .filter(Boolean)
                .join(" · "),
            ),
          ),
          h("td", { class: "progress" }, progress(run)),
          h("td", { class: "num" }, signed(run.headline.reward)),
          h("td", { class: "num" }, percent(run.headline.judges)),
          h("td", { class: "num" }, percent(run.headline.right)),
          h("td", { class: "num" }, percent(run.headline.held_out)),
          h("td", { class: "quiet age", data: { run: run.name } }, ago(run.age_s)),
        );
      }),
    );
  }

  function progress(run) {
    if (run.step === null) return h("span", { class: "quiet" }, "not started");
    const words = `${run.step}${run.total ? ` / ${run.total}` : ""}`;
    return [
      run.total ? h("progress", { max: run.total, value: run.step }) : null,
      h("span", {}, words),
      h("span", { class: "quiet" }, ` ${run.phase?.replace("_", "-") ?? ""}`),
    ];
  }

  function pick(name) {
    chosen = runs.map((run) => run.name).filter((each) => (each === name ? !chosen.includes(each) : chosen.includes(each)));
    note({ run: chosen });
    rows = "";
    tick(runs);
  }

  async function drawTrust() {
    const found = await ask("metrics", { run: chosen });
    const keys = Object.keys(TRUST).filter(
      (key) => key !== "trust/mean_accuracy" && chosen.some((name) => found[name]?.phases.train?.[key]),
    );
    const lines = keys.length ? await ask("curves", { run: chosen, key: [...keys, "trust/mean_accuracy"], points: 120 }) : {};
    drawAlarms(found);
    tested.update(chosen, colour).catch(() => {});
    if (keys.length) {
      fill(
        trust,
        h(
          "table",
          { class: "trust" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", {}, "What"),
              chosen.map((name) => h("th", { colspan: 2 }, h("span", { class: `swatch ${colour(name)}` }), " ", oneLine(name, 40))),
            ),
          ),
          h(
            "tbody",
            {},
            keys.map((key) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, TRUST[key].name, h("small", {}, TRUST[key].means)),
                chosen.map((name) => trustCells(key, found[name]?.phases.train ?? {}, lines[name]?.[key], colour(name))),
              ),
            ),
          ),
        ),
      );
    } else fill(trust, h("p", { class: "quiet" }, "No step of self-play has been measured yet."));
    charts.update(chosen, found, colour, runs);
  }

  function trustCells(key, measured, series, tint) {
    const about = measured[key];
    if (!about || about.recent === null) return h("td", { colspan: 2, class: "quiet" }, "nothing to measure yet");
    const entry = TRUST[key];
    const [judged, verdict] = entry.read(about.recent, entry.against && measured[entry.against]?.recent);
    // Few steps are few votes: then a number is shown, but not yet judged.
    const [tone, words] = about.n < 5 && judged !== "plain" ? ["plain", `${plural(about.n, "step")}: too early to say`] : [judged, verdict];
    const text = (entry.show ?? ((v) => number(v, 2)))(about.recent);
    return [
      h(
        "td",
        { class: "num" },
        h("span", { class: "value", title: `Mean of the last 5 steps that have it; the last one: ${number(about.last)}` }, text),
        sparkline(series, tint),
      ),
      h(
        "td",
        {},
        words ? h("span", { class: `reading ${tone}` }, words) : null,
        tone === "bad" || tone === "fair" ? h("small", { class: "remedy" }, entry.remedy) : null,
      ),
    ];
  }

  function drawAlarms(found) {
    const cards = [];
    let silent = 0;
    for (const name of chosen) {
      const measured = found[name]?.phases.train ?? {};
      const known = Object.keys(ALARMS).filter((key) => measured[key]);
      if (known.length && known.every((key) => measured[key].last === null)) silent++;
      for (const key of known.filter((each) => measured[each].last)) {
        cards.push(
          h(
            "div",
            { class: "alarm", role: "alert" },
            h(
              "h3",
              {},
              "⚠ ",
              ALARMS[key].name,
              h(
                "span",
                { class: "of" },
                h("span", { class: `swatch ${colour(name)}` }),
                " ",
                oneLine(name, 60),
                ` · step ${measured[key].step}`,
              ),
            ),
            h("p", {}, h("b", {}, "Rings because "), ALARMS[key].rings[0].toLowerCase() + ALARMS[key].rings.slice(1)),
            h("p", {}, h("b", {}, "It means "), ALARMS[key].means[0].toLowerCase() + ALARMS[key].means.slice(1)),
            h("p", {}, h("b", {}, "What to do: "), ALARMS[key].remedy),
            h(
              "a",
              { href: link({ view: "debates", run: name, alarm: key.replace("alarm/", "") }) },
              "Debates of the steps at which it rang →",
            ),
          ),
        );
      }
    }
    if (!cards.length) {
      const quiet =
        silent === chosen.length && chosen.length
          ? "Alarms are waiting: they speak once 20 debates of the last 5 steps were seen."
          : "No alarm rings.";
      cards.push(h("p", { class: "calm" }, chosen.length ? quiet : "No run is chosen: tick one above."));
    }
    fill(alarms, cards);
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

function sparkline(series, tint) {
  const values = (series?.[1] ?? []).filter((value) => value !== null);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 80 20");
  svg.setAttribute("class", `spark ${tint}`);
  svg.setAttribute("aria-hidden", "true");
  if (values.length > 1) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute(
      "points",
      values
        .map(
          (v, i) =>
            `${((i * 80) / (values.length - 1)).toFixed(1)},${(18 - (high > low ? (16 * (v - low)) / (high - low) : 8)).toFixed(1)}`,
        )
        .join(" "),
    );
    svg.append(line);
  }
  return svg;
}
