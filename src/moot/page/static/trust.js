// Can the votes, or whatever pays, be trusted? Every alarm that rings, then the panel: each number with its interval, what it means, and what to do.

import { fill, h, oneLine, signed, withCode } from "./dom.js";
import { ALARMS, TRUST } from "./glossary.js";
import { ask, link } from "./state.js";

const twoDigits = (v) => signed(v).replace("+", "");

// A 95% interval, where there is one.
export function span({ low, high }, show = (v) => Math.round(v * 100)) {
  return low === null || high === null ? null : h("small", { class: "span", title: "95% interval" }, ` [${show(low)}, ${show(high)}]`);
}

// Agents are paid by their answers, or by judges who check these: nobody need vote, and what is about votes is never measured.
const WITHOUT_VOTES = /^(truth|majority|truth_last|majority_last|majority_after_reading|random|approval|approved|pairs|weighted_majority)(:|$)/;
// Whose checks are measured by these.
const BY_CHECKS = {
  "trust/judge_pair_accuracy": /^(approval|approved|pairs|weighted_majority)(:|$)/,
  "trust/judge_j": /^(approval|approved|weighted_majority)(:|$)/,
};

const voted = (found, name) => found[name]?.phases.train?.["trust/judges_per_pair"]?.n > 0;

// What pays in a run; a file of debates names no reward, and may hold votes.
function payer({ transcripts, reward } = {}, votes) {
  if (transcripts) return votes ? "votes" : "answers";
  if (!WITHOUT_VOTES.test(reward ?? "")) return "votes";
  return BY_CHECKS["trust/judge_pair_accuracy"].test(reward) ? "judges" : "training";
}

// What one wants to know of these runs. Of votes it is asked only where there may be some.
export function question(chosen, found, about) {
  const kinds = chosen.map((name) => payer(about(name), voted(found, name)));
  if (!kinds.length || kinds.includes("votes")) return "Can the votes be trusted?";
  if (kinds.includes("judges")) return "Can the judges be trusted?";
  return kinds.includes("training") ? "Is training healthy?" : "Do the answers agree?";
}

// `found` has the metrics of each run, `counted` what its last debates came to, `about` what the list of runs says of it.
export async function drawPanel(node, chosen, found, counted, colour, about) {
  const measured = (name) => found[name]?.phases.train ?? {};
  const known = (name, key) => (counted[name]?.panel?.[key] ?? null) !== null || measured(name)[key]?.n > 0;
  const never = (name, key) => {
    if (about(name)?.transcripts) return !known(name, key); // what a file does not hold will not come
    const paid = about(name)?.reward ?? "";
    if (!WITHOUT_VOTES.test(paid) || BY_CHECKS[key]?.test(paid)) return false;
    return !known(name, key) || (key === "trust/winner_correct" && /^(truth|majority|random)/.test(paid)); // nobody chose it
  };
  // What to change of a training helps nobody with a file of debates.
  const training = chosen.some((name) => !about(name)?.transcripts);
  const possible = Object.keys(TRUST).filter(
    (key) => key !== "trust/mean_accuracy" && chosen.some((name) => measured(name)[key] && !never(name, key)),
  );
  // Of one run, what has not been measured needs no row of its own.
  const keys = chosen.length > 1 ? possible : possible.filter((key) => known(chosen[0], key));
  const missing = possible.filter((key) => !keys.includes(key)).map((key) => TRUST[key].name);
  if (!possible.length) return void fill(node, h("p", { class: "quiet" }, "No step of self-play has been measured yet."));
  const lines = keys.length ? await ask("curves", { run: chosen, key: keys, points: 120 }) : {};
  const row = (key) => {
    const readings = chosen.map((name) => reading(key, measured(name), counted[name]?.panel));
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        TRUST[key].name,
        h("small", {}, withCode(TRUST[key].means)),
        training && readings.some(({ tone }) => ["bad", "fair", "unsure"].includes(tone))
          ? h("small", { class: "remedy" }, withCode(TRUST[key].remedy))
          : null,
      ),
      chosen.map((name, i) =>
        never(name, key)
          ? h("td", { class: "quiet", data: { run: chosen.length > 1 ? oneLine(name, 40) : "" } }, "has no votes")
          : cell(name, readings[i], chosen.length > 1, lines[name]?.[key], colour(name)),
      ),
    );
  };
  fill(
    node,
    h(
      "table",
      { class: "trust", hidden: !keys.length },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, "What"),
          chosen.map((name) => h("th", {}, h("span", { class: `swatch ${colour(name)}` }), " ", oneLine(name, 40))),
        ),
      ),
      h("tbody", {}, keys.map(row)),
    ),
    missing.length && training ? h("p", { class: "quiet" }, `Nothing to measure yet: ${missing.join(", ")}.`) : null,
  );
}

function reading(key, metrics, panel) {
  const entry = TRUST[key];
  const about = panel?.[key];
  const value = about?.value ?? metrics[key]?.recent ?? null;
  if (value === null) return { value };
  const [tone, words] = entry.read(value, about, panel, metrics["turns/cut"]?.recent ?? 0);
  const show = entry.show ?? twoDigits;
  const title = about ? `Over the last 5 steps, of ${about.of.toLocaleString("en")} that could be counted` : "Mean of the last 5 steps";
  return { value: show(value), bounds: about && !entry.exact ? span(about, show) : null, title, tone, words };
}

// The run is named where there are several, for a window too narrow for the table's head.
function cell(run, { value, bounds, title, tone, words }, several, series, tint) {
  const data = { run: several ? oneLine(run, 40) : "" };
  if (value === null) return h("td", { class: "quiet", data }, "nothing to measure yet");
  return h(
    "td",
    { data },
    h("span", { class: "num" }, h("span", { class: "value", title }, value), bounds),
    sparkline(series, tint),
    words ? h("span", { class: `reading ${tone}` }, words) : null,
  );
}

// One card for an alarm, whichever runs it rings in. Where none rings, what was watched is named, and what was not.
export function drawAlarms(node, chosen, found, colour, about) {
  const measured = (name, key) => found[name]?.phases.train?.[key];
  // A run of an older moot says 0 of votes that nobody cast.
  const silent = (name, key) => key === "alarm/random_noise" && payer(about(name)) === "training" && !voted(found, name);
  const told = (name, key) => (measured(name, key)?.last ?? null) !== null && !silent(name, key);
  const cards = Object.keys(ALARMS).map((key) => {
    const ringing = chosen.filter((name) => measured(name, key)?.last);
    return ringing.length ? card(key, ringing, (name) => measured(name, key).step, colour) : null;
  });
  if (cards.some(Boolean)) return void fill(node, cards);
  const keys = Object.keys(ALARMS);
  const heard = chosen.filter((name) => keys.some((key) => told(name, key)));
  const watched = keys.filter((key) => heard.length && heard.every((name) => told(name, key)));
  const names = (list) => list.map((key) => ALARMS[key].name.toLowerCase()).join(", ");
  const rest = keys.filter((key) => !watched.includes(key));
  const nothing = !chosen.length
    ? "No run is chosen: tick one above."
    : chosen.some((name) => keys.some((key) => measured(name, key)))
      ? "Alarms are waiting: they speak once 20 debates of the last 5 steps were seen."
      : "Alarms are not computed for files of debates: they watch training.";
  if (!watched.length) return void fill(node, h("p", { class: "calm unsure" }, nothing));
  const whole = heard.length === chosen.length;
  const where = whole ? "" : ` in ${heard.map((name) => oneLine(name, 40)).join(", ")}; the others have not been measured`;
  fill(
    node,
    h("p", { class: whole ? "calm" : "calm unsure" }, `No alarm rings${where}. Watched: ${names(watched)}.`),
    rest.length ? h("p", { class: "quiet" }, `Nothing to measure ${chosen.length > 1 ? "in all of them" : "here"} for: ${names(rest)}.`) : null,
  );
}

function card(key, ringing, step, colour) {
  const { name, rings, means, remedy } = ALARMS[key];
  const lower = (text) => text[0].toLowerCase() + text.slice(1);
  return h(
    "div",
    { class: "alarm", role: "alert" },
    h("h3", {}, "⚠ ", name),
    h("p", {}, h("b", {}, "Rings because "), lower(rings)),
    h("p", {}, h("b", {}, "It means "), lower(means)),
    h("p", {}, h("b", {}, "What to do: "), withCode(remedy)),
    h("p", {}, "Debates of the steps at which it rang:"),
    ringing.map((run) =>
      h(
        "p",
        { class: "of" },
        h("span", { class: `swatch ${colour(run)}` }),
        " ",
        h("a", { href: link({ view: "debates", run, alarm: key.replace("alarm/", "") }) }, oneLine(run, 60)),
        `, rings at step ${step(run)}`,
      ),
    ),
  );
}

function sparkline(series, tint) {
  const values = (series?.[1] ?? []).filter((value) => value !== null);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 80 20");
  svg.setAttribute("class", `spark ${tint}`);
  svg.setAttribute("aria-hidden", "true");
  if (values.length > 1) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const height = (v) => (18 - (high > low ? (16 * (v - low)) / (high - low) : 8)).toFixed(1);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", values.map((v, i) => `${((i * 80) / (values.length - 1)).toFixed(1)},${height(v)}`).join(" "));
    svg.append(line);
  }
  return svg;
}
