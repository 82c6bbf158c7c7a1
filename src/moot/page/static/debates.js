// The debates of a run: filters, search, and a list that is fetched as far as one reads.

import { fill, h, oneLine, percent, plural, signed } from "./dom.js";
import { ALARMS } from "./glossary.js";
import { heads } from "./heads.js";
import { ask, filters, go, link } from "./state.js";

const PAGE = 50;
// What the list is sorted by: the link's word, and what the narrow page calls it.
const ORDERS = [
  ["", "newest first"],
  ["oldest", "oldest first"],
  ["agreement", "most agreement first"],
  ["-agreement", "least agreement first"],
  ["reward", "largest reward first"],
  ["-reward", "smallest reward first"],
  ["confidence", "most confidence first"],
  ["-confidence", "least confidence first"],
  ["correct", "most right first"],
  ["-correct", "fewest right first"],
];

export function debatesView(main, query, runs) {
  const run = query.get("run") ?? runs[0]?.name;
  let asked = filters(query);
  let next = null;
  let busy = false;
  let marked = -1;
  let shape = "";
  let request = null;

  document.title = `${oneLine(run, 60)} · moot`;
  const summary = h("p", { class: "quiet", id: "found", role: "status" });
  const fresh = h("button", { class: "fresh", hidden: true, onclick: () => load() }, "New debates were played: show them");
  // A file of debates has no steps: its debates go by the names or numbers that the file gives them.
  const file = runs.find((each) => each.name === run)?.transcripts;
  // Labels are paid nothing; how far they are to be trusted is what one looks for.
  const labels = runs.find((each) => each.name === run)?.labels;
  const body = h("tbody");
  const head = h("tr");
  const saved = h("a", { class: "save", download: "" }, "CSV");
  const more = h("button", { class: "more", onclick: () => load(next) }, "More");
  const bar = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() });
  main.append(
    h(
      "section",
      {},
      h("div", { class: "bar" }, h("h1", {}, "Debates"), runs.length > 1 ? chooser() : h("span", { class: "of" }, oneLine(run, 80)), file ? null : h("a", { href: link({ view: "run", run }) }, "About the run"), saved),
      bar,
      summary,
      fresh,
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        h(
          "table",
          { class: "debates" },
          h("thead", {}, head),
          body,
        ),
      ),
      more,
    ),
  );

  function chooser() {
    return h(
      "select",
      { "aria-label": "Run", onchange: (event) => go({ view: "debates", run: event.target.value, ...asked }) },
      runs.map((each) => h("option", { value: each.name, selected: each.name === run }, oneLine(each.name, 60))),
    );
  }

  function drawHead() {
    // The step sorts newest or oldest first, which is what no other order is.
    const sort = { "": "step", oldest: "-step" }[asked.sort ?? ""] ?? asked.sort;
    const columns = [
      file ? "Number" : ["Step", "step"],
      "Question",
      "Answer",
      ["Agreement", "agreement"],
      labels ? ["Confidence", "confidence"] : ["Reward", "reward"],
      "Won",
      ["Right", "correct"],
      "What happened",
    ];
    fill(
      head,
      heads(columns, sort, (next) => {
        change({ sort: { step: "", "-step": "oldest" }[next] ?? next });
        drawFilters();
      }),
    );
    saved.href = `/api/table${link({ run, ...asked }).slice(1)}`;
  }

  // Filters

  function drawFilters() {
    const pick = (name, label, choices) =>
      h(
        "label",
        { class: `of-${name}` },
        h("span", {}, label),
        h(
          "select",
          { name, "aria-label": label, onchange: (event) => change({ [name]: event.target.value }) },
          choices.map(([value, text]) => h("option", { value, selected: (asked[name] ?? "") === value }, text)),
        ),
      );
    const step = (name, label) =>
      h("input", {
        type: "number",
        min: 0,
        name,
        value: asked[name] ?? "",
        placeholder: label,
        "aria-label": label,
        onchange: (event) => change({ [name]: event.target.value }),
      });
    let waiting = null;
    fill(
      bar,
      h("input", {
        type: "search",
        name: "q",
        value: asked.q ?? "",
        placeholder: "Search all that was said ( / )",
        "aria-label": "Search",
        oninput: (event) => {
          clearTimeout(waiting);
          waiting = setTimeout(() => change({ q: event.target.value.trim() }), 250);
        },
      }),
      runs.find((each) => each.name === run)?.held_out
        ? pick("set", "Played", [
            ["", "in training"],
            ["held_out", "in evaluations, held out"],
          ])
        : null,
      pick("correct", "Answers", [
        ["", "any"],
        ["all", "all right"],
        ["mixed", "some right"],
        ["none", "all wrong"],
        ["misled", "wrong winner, right loser"],
        ["unknown", "not known"],
      ]),
      pick("winner", "Winner", [
        ["", "any or none"],
        ["right", "right"],
        ["wrong", "wrong"],
        ["none", "none"],
      ]),
      pick("failed", "Failed turns", [
        ["", "any"],
        ["yes", "some"],
        ["no", "none"],
      ]),
      pick("disagree", "Last answers", [
        ["", "any"],
        ["yes", "differ"],
        ["no", "agree"],
      ]),
      pick("signal", "Votes", [
        ["", "any"],
        ["yes", "say something"],
        ["no", "say nothing"],
      ]),
      file
        ? null
        : pick("alarm", "Alarm", [
            ["", "any or none"],
            ["any", "any rang"],
            ...Object.entries(ALARMS).map(([key, { name }]) => [key.replace("alarm/", ""), name]),
          ]),
      pick("error", "Engine", [
        ["", "any"],
        ["yes", "lost the debate"],
        ["no", "played it"],
      ]),
      file ? null : h("label", {}, h("span", {}, "Steps"), h("span", { class: "range" }, step("from", "first"), "–", step("to", "last"))),
      pick("sort", "Order", ORDERS.filter(([order]) => !order.endsWith(labels ? "reward" : "confidence"))),
      Object.keys(asked).length
        ? h(
            "button",
            {
              type: "button",
              class: "clear",
              onclick: () => {
                asked = {};
                drawFilters();
                change({});
              },
            },
            "Clear",
          )
        : null,
    );
  }

  function change(values) {
    const cleared = Object.keys(asked).length === 0;
    asked = Object.fromEntries(Object.entries({ ...asked, ...values }).filter(([, value]) => value !== ""));
    history.replaceState(null, "", link({ view: "debates", run, ...asked }));
    drawHead();
    if (cleared !== (Object.keys(asked).length === 0) && document.activeElement?.name !== "q") drawFilters();
    load();
  }

  // The list

  async function load(after = null) {
    if (after && busy) return;
    request?.abort();
    request = new AbortController();
    busy = true;
    more.disabled = true;
    try {
      const found = await ask("debates", { run, ...asked, after, limit: PAGE }, request.signal);
      if (!after) {
        fill(body);
        marked = -1;
        fresh.hidden = true;
      }
      body.append(...found.rows.map(row));
      next = found.next;
      more.hidden = !next;
      if (found.counts) tell(found);
      shape = found.counts ? stamp(found.index) : shape;
      busy = false;
      more.disabled = false;
    } catch (error) {
      if (error.name === "AbortError") return;
      busy = false;
      more.disabled = false;
      fill(summary, h("span", { class: "bad" }, error.message));
    }
  }

  const stamp = (index) => `${index.steps} ${index.filed} ${index.changes} ${asked.q ? index.words : ""}`;

  function tell({ counts, index, rows }) {
    const parts = [plural(counts.debates, "debate"), asked.same ? ` of the question of ${asked.same}, step by step` : null];
    const hint = (count, text, values) =>
      count && count < counts.debates
        ? h("a", { href: link({ view: "debates", run, ...asked, ...values }) }, `${count.toLocaleString("en")} ${text}`)
        : null;
    const hints = [
      hint(counts.failed, "with failed turns", { failed: "yes" }),
      hint(counts.mixed, "some right, some wrong", { correct: "mixed" }),
      hint(counts.winner_wrong, "with a wrong winner", { winner: "wrong" }),
      hint(counts.misled, "in which a wrong answer beat a right one", { correct: "misled" }),
      hint(counts.disagree, "in disagreement", { disagree: "yes" }),
      hint(labels ? 0 : counts.no_signal, "whose votes say nothing", { signal: "no" }),
      hint(counts.error, "lost by the engine", { error: "yes" }),
    ].filter(Boolean);
    const waiting = index.trouble
      ? ` · ${oneLine(index.trouble, 300)}`
      : index.filed < index.steps
        ? ` · reading the run: ${index.filed.toLocaleString("en")} of ${index.steps.toLocaleString("en")} steps`
        : asked.q && !index.searchable
          ? " · only questions can be searched here (this SQLite has no full-text search)"
          : asked.q && index.words < index.steps
            ? ` · searched ${index.words.toLocaleString("en")} of ${index.steps.toLocaleString("en")} steps so far`
            : "";
    fill(
      summary,
      parts,
      hints.map((each) => [" · ", each]),
      h("span", { class: "waiting" }, waiting),
    );
    if (!rows.length)
      fill(
        body,
        h(
          "tr",
          {},
          h(
            "td",
            { colspan: 8, class: "quiet pad" },
            index.trouble
              ? "The list cannot be made."
              : index.filed < index.steps
                ? "Reading…"
                : Object.keys(asked).length
                  ? "No debate is like that. Clear a filter, or search for less."
                  : "No debate has been written yet.",
          ),
        ),
      );
  }

  function row(debate) {
    const place = `${debate.step}.${debate.number}`;
    return h(
      "tr",
      {
        data: { place },
        onclick: (event) => {
          if (!event.target.closest("a") && !String(getSelection())) open(place);
        },
      },
      h("td", { class: "num place" }, file ? oneLine(debate.name, 16) || debate.number + 1 : [debate.step, h("small", {}, `.${debate.number}`)]),
      h("td", { class: "question" }, h("a", { href: address(place), dir: "auto" }, oneLine(debate.question, 220) || "(no question)")),
      h("td", { class: "answer", data: { column: "answer" }, title: "The answer that most agents end with", dir: "auto" }, debate.answer === null ? "–" : oneLine(debate.answer, 60)),
      value("agreement", percent(debate.agreement), "The share of its agents who end with that answer"),
      labels
        ? value("confidence", percent(debate.confidence), "The judge's score of that answer, or without a judge the share")
        : value("reward", signed(debate.reward), "Mean over its agents"),
      h(
        "td",
        { class: "won" },
        debate.winner === null
          ? "–"
          : h(
              "span",
              {
                class: `agent a${debate.winner % 8}`,
                title: debate.winner_correct === null ? "" : debate.winner_correct ? "with a right answer" : "with a wrong answer",
              },
              `Agent ${debate.winner}`,
              debate.winner_correct === null ? "" : debate.winner_correct ? " ✓" : " ✗",
            ),
      ),
      h("td", { class: "right" }, right(debate)),
      h("td", {}, happened(debate)),
    );
  }

  // A cell says what it is, for a window too narrow for the table's head.
  const value = (name, text, title) => h("td", { class: "num", title, data: { column: name } }, text);

  function right(debate) {
    if (debate.correct === null) return h("span", { class: "quiet" }, "–");
    const count = Math.round(debate.correct * debate.agents);
    return h(
      "span",
      { class: "pips", title: `${count} of ${debate.agents} last answers are right`, "aria-label": `${count} of ${debate.agents} right` },
      Array.from({ length: Math.min(debate.agents, 12) }, (_, i) => h("i", { class: i < count ? "on" : "" })),
      ` ${count}/${debate.agents}`,
    );
  }

  function happened(debate) {
    return [
      debate.error &&
        h(
          "span",
          { class: "chip bad", title: oneLine(debate.error, 400) },
          debate.error === "this record cannot be read" ? "unreadable record" : "engine failed",
        ),
      debate.failures ? h("span", { class: "chip warn" }, plural(debate.failures, "failed turn")) : null,
      debate.winner_correct === 0 && debate.correct > 0 ? h("span", { class: "chip warn" }, "beat a right answer") : null,
      debate.disagreement ? h("span", { class: "chip" }, "disagree") : null,
      debate.trusted === 0 ? h("span", { class: "chip warn", title: "Its confidence is below the threshold" }, "not trusted") : null,
      debate.signal === 0 && !labels ? h("span", { class: "chip" }, "no signal") : null,
    ];
  }

  const address = (place) => link({ view: "debate", run, debate: place, ...asked });
  const open = (place) => go({ view: "debate", run, debate: place, ...asked });

  function mark(to) {
    const rows = [...body.querySelectorAll("tr[data-place]")];
    if (!rows.length) return;
    marked = Math.max(0, Math.min(to, rows.length - 1));
    rows.forEach((each, i) => each.classList.toggle("marked", i === marked));
    rows[marked].scrollIntoView({ block: "nearest" });
    if (marked >= rows.length - 5 && next) load(next);
  }

  const end = new IntersectionObserver(
    (entries) => {
      if (entries.some((entry) => entry.isIntersecting) && next && !busy) load(next);
    },
    { rootMargin: "600px" },
  );
  end.observe(more);

  // While the index is being filled, or the run goes on: the list itself is replaced only where nobody has moved in it.
  async function tick() {
    if (busy) return;
    try {
      const { index } = await ask("debates", { run, ...asked, limit: 1, counts: "no" });
      if (busy || stamp(index) === shape) return;
      const untouched = scrollY < 40 && marked < 0 && body.childElementCount <= PAGE && document.activeElement?.name !== "q";
      if (untouched || !body.querySelector("tr[data-place]")) await load();
      else {
        const latest = await ask("debates", { run, ...asked, limit: 1 });
        tell(latest);
        shape = stamp(latest.index);
        fresh.hidden = latest.index.filed < latest.index.steps;
      }
    } catch {
      /* the next look will tell */
    }
  }
  const hurry = setInterval(() => {
    if (summary.querySelector(".waiting")?.textContent) tick();
  }, 700);

  drawHead();
  drawFilters();
  load();
  return {
    tick,
    leave: () => {
      clearInterval(hurry);
      end.disconnect();
      request?.abort();
    },
    keys: {
      j: () => mark(marked + 1),
      k: () => mark(marked - 1),
      ArrowDown: () => mark(marked + 1),
      ArrowUp: () => mark(marked - 1),
      Enter: () => {
        const place = body.querySelector("tr.marked")?.dataset.place;
        if (place) open(place);
      },
      Escape: () => go({ run: [run] }),
    },
  };
}
