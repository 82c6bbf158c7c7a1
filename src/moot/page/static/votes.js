// Who was preferred to whom, and why somebody won.

import { h, oneLine, percent, plural, signed } from "./dom.js";
import { typesetAnswer } from "./maths.js";

export function agentName(agent) {
  return h("span", { class: `agent a${agent % 8}` }, `Agent ${agent}`);
}

// Numbers behind the agents' are judges without a seat.
const voter = (author, count) => (author < count ? `Agent ${author}` : `judge ${author - count}`);

// One round's votes: a cell says how often its row was preferred to its column, and by whom.
export function matrix(votes, agents) {
  const count = agents.length;
  const by = Array.from({ length: count }, () => Array.from({ length: count }, () => ({ won: [], tied: [] })));
  for (const { left, right, verdict, author } of votes) {
    if (!by[left.agent]?.[right.agent]) continue;
    if (verdict === ">") by[left.agent][right.agent].won.push(author);
    else {
      by[left.agent][right.agent].tied.push(author);
      by[right.agent][left.agent].tied.push(author);
    }
  }
  const about = [...new Set(votes.flatMap((vote) => [vote.left.round, vote.right.round]).filter((round) => round !== null))].sort(
    (a, b) => a - b,
  );
  return h(
    "table",
    { class: "matrix" },
    h("caption", {}, `${plural(votes.length, "vote")}`, about.length ? `, about the answers of round ${about.join(" and ")}` : ""),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { class: "corner" }, h("small", {}, "preferred to →")),
        agents.map((_, i) => h("th", {}, agentName(i))),
      ),
    ),
    h(
      "tbody",
      {},
      agents.map((_, i) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, agentName(i)),
          agents.map((__, j) => cell(i, j, by[i][j], by[j][i], count)),
        ),
      ),
    ),
  );
}

function cell(i, j, { won, tied }, other, count) {
  if (i === j) return h("td", { class: "self" });
  if (!won.length && !tied.length) return h("td", { class: other.won.length ? "lost" : "" }, other.won.length ? "0" : "·");
  const names = (list) => list.map((author) => voter(author, count)).join(", ");
  const title = [won.length && `${names(won)}: Agent ${i} is better than Agent ${j}`, tied.length && `${names(tied)}: equally good`]
    .filter(Boolean)
    .join("\n");
  const more = won.length > other.won.length ? "won" : won.length < other.won.length ? "lost" : "";
  return h(
    "td",
    { class: more, title },
    won.length || "",
    tied.length ? h("span", { class: "tie" }, `${won.length ? " · " : ""}${tied.length}=`) : null,
    h("small", {}, `by ${[...won, ...tied].map((author) => (author < count ? author : voter(author, count))).join(", ")}`),
  );
}

// What each agent came to over the whole debate.
export function standing(debate) {
  const { agents, turns, rewards, returns, winner, means, won, lost } = debate;
  const streams = rewards && !Array.isArray(rewards) ? Object.keys(rewards) : rewards ? ["agent"] : [];
  const paid = streams.includes("generator") ? "generator" : streams[0];
  const label = { generator: "answer reward", judge: "judge reward", agent: "reward", step: "reward" };
  const mean = (values) => (values?.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
  const rows = agents.map((seat, agent) => {
    const own = turns.filter((turn) => turn.agent === agent);
    const last = own.filter((turn) => turn.failure === undefined && !turn.ballot).at(-1);
    return {
      agent,
      seat,
      last,
      failed: own.filter((turn) => turn.failure !== undefined).length,
      won: won?.[agent] ?? 0,
      lost: lost?.[agent] ?? 0,
      // What answers are paid decides who won, so its mean comes with the outcome.
      rewards: streams.map((stream) => (stream === paid ? means?.[agent] : mean(rewards[stream][agent]))),
    };
  });
  return {
    rows,
    node: h(
      "table",
      { class: "standing" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, ""),
          h("th", {}, "last answer"),
          debate.checks || !debate.by_votes ? null : h("th", {}, "votes won–lost"),
          streams.map((stream) => h("th", {}, `${label[stream] ?? stream}${stream === "agent" ? "" : ", mean"}`)),
          returns ? h("th", { title: "the reward, minus 1 for each failed turn" }, "return") : null,
          h("th", {}, "failed"),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map(({ agent, seat, last, failed, won, lost, rewards: own }) =>
          h(
            "tr",
            { class: agent === winner ? "winner" : "" },
            h(
              "th",
              { scope: "row" },
              agentName(agent),
              agent === winner ? h("span", { class: "crown", title: "won" }, " ★") : null,
              seat.persona ? h("small", {}, seat.persona) : null,
            ),
            h("td", {}, answer(last)),
            debate.checks || !debate.by_votes ? null : h("td", { class: "num" }, `${won}–${lost}`),
            own.map((value) => h("td", { class: "num" }, signed(value))),
            returns ? h("td", { class: "num" }, signed(returns[agent])) : null,
            h("td", { class: "num" }, failed || ""),
          ),
        ),
      ),
    ),
  };
}

export function answer(turn) {
  if (!turn) return h("span", { class: "quiet" }, "none");
  const mark =
    turn.correct === true
      ? h("b", { class: "yes", title: "right" }, " ✓")
      : turn.correct === false && turn.known
        ? h("b", { class: "no", title: "wrong" }, " ✗")
        : null;
  return turn.answer === null || turn.answer === undefined
    ? h("span", { class: "quiet" }, "no answer found", mark)
    : h("span", { class: "answer" }, turn.code ? plural(turn.answer.split("\n").length, "line") : typesetAnswer(turn.answer), mark);
}

export function why(debate, rows) {
  const { winner, question, signal } = debate;
  const votes = debate.votes.filter((vote) => vote.counts);
  if (debate.error) return "The engine lost this debate; it was left out of training.";
  if (!debate.rewards) return "Nobody won: this debate was not scored.";
  const best = winner === null || winner === undefined ? null : rows[winner];
  const parts = [];
  const leaders = (debate.leaders ?? []).map((agent) => `Agent ${agent}`).join(" and ");
  if (!debate.by_votes && !debate.checks) {
    // Nobody could vote: answers are paid by something else, which may be nothing.
    if (signal === false) parts.push("All answers are paid alike: nothing is learned from them.");
    else if (leaders) parts.push(`${leaders} ${best ? "has" : "have"} the highest reward, ${signed(rows[winner ?? debate.leaders[0]].rewards[0])}.`);
  } else if (best)
    parts.push(
      `Agent ${winner} won with a mean reward of ${signed(best.rewards[0])}${debate.checks ? ", by the judges' checks." : `: preferred in ${best.won} of ${best.won + best.lost} votes about it.`}`,
    );
  else if (!votes.length && !debate.checks) parts.push("Nobody won: no vote was cast.");
  else if (!debate.checks && !votes.some((vote) => vote.verdict === ">")) parts.push("Nobody won: all votes were ties.");
  else parts.push(`Nobody won: ${leaders} are level.`);
  if (question.answer !== null && question.answer !== undefined) {
    const right = rows.filter((row) => row.last?.correct).map((row) => `Agent ${row.agent}`);
    if (best?.last?.correct) parts.push("Its last answer is right.");
    else if (!best && right.length) parts.push(`${right.join(" and ")} had it right.`);
    else
      parts.push(
        right.length
          ? `Its last answer is wrong, while ${right.join(" and ")} had it right.`
          : "Nobody's last answer is right.",
      );
  }
  if (signal === false && (debate.by_votes || debate.checks)) parts.push("The votes carry no signal: nothing is learned from who won.");
  return parts.join(" ");
}
