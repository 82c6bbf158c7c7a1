// What each number means, in plain words; and how to read it, where there is a way. A tone is good, fair, bad, plain,
// or unsure, which is as grey as plain: only what was measured and is good may be green.
// What the trust panel and the alarms mean, and what to do, comes from the server, which has it from where the training loop has it.

import { signed } from "./dom.js";
import { ask } from "./state.js";

const share = (value) => `${Math.round(value * 100)}%`;
const NO_ANSWER = "nobody gave an answer that can be compared";
// What is missing because its turn was cut is no other answer and no same one. Plain, so that no harder questions are advised.
const mostlyCut = (cut, what) => ["plain", `${share(cut)} of turns were cut; raise --max-tokens; ${what} says little`];
const points = (value) => signed(100 * value, 0);

// More or less than what guessing gives, only where the 95% interval says so. `bounds` is { low, high }, each null where too little was seen.
function against(chance, bounds, { above, below, between }) {
  if (!bounds || bounds.low === null || bounds.high === null) return ["plain", "too few debates to say"];
  return bounds.low > chance ? above : bounds.high < chance ? below : between;
}

// A lean either way is bad where it may be large, and small where the whole interval is.
function lean(bounds, more, less) {
  const size = bounds && Math.max(Math.abs(bounds.low), Math.abs(bounds.high)) > 0.1 ? "bad" : "fair";
  const between = size === "bad" ? ["unsure", "no lean can be told"] : ["good", "no lean"];
  return against(0, bounds, { above: [size, more], below: [size, less], between });
}

export const TRUST = {
  "trust/judge_accuracy": {
    name: "Judge accuracy",
    show: share,
    read: (v, bounds) =>
      against(0.5, bounds, {
        above: ["good", "better than guessing"],
        below: ["bad", "worse than guessing: votes reward wrong answers"],
        between: ["unsure", "not distinguishable from guessing (50%)"],
      }),
  },
  "trust/vote_truth_agreement": {
    name: "Vote-truth agreement",
    read: (v, bounds) =>
      against(0, bounds, {
        above: ["good", "right answers are paid more"],
        below: ["bad", "wrong answers are paid more"],
        between: ["unsure", "no pull either way can be told"],
      }),
  },
  "trust/winner_correct": {
    name: "Winner accuracy",
    show: share,
    read: (v, bounds, panel) => {
      const gap = panel?.["trust/winner_gap"];
      if (!gap) return ["plain", ""];
      const said = `${points(gap.value)} points [${points(gap.low)}, ${points(gap.high)}] against the mean agent`;
      return against(0, gap, {
        above: ["good", `more often than the mean agent: ${said}`],
        below: ["bad", `less often than the mean agent: ${said}`],
        between: ["unsure", `no clear difference: ${said}`],
      });
    },
  },
  "trust/mean_accuracy": {
    name: "Accuracy",
    means: "The share of agents whose last answer is right.",
    show: share,
    read: () => ["plain", ""],
  },
  "trust/position_bias": {
    name: "Position bias",
    read: (v, bounds) => lean(bounds, "lower numbers win more often", "higher numbers win more often"),
  },
  "trust/length_bias": {
    name: "Length bias",
    read: (v, bounds) => lean(bounds, "longer answers win more often", "shorter answers win more often"),
  },
  "trust/vote_cycles": {
    name: "Vote cycles",
    show: share,
    read: (v, bounds) =>
      against(0.25, bounds, {
        above: ["bad", "more often than by chance (25%)"],
        below: ["good", "less often than by chance (25%)"],
        between: ["unsure", "not distinguishable from chance (25%)"],
      }),
  },
  "trust/answer_diversity": {
    name: "Answer diversity",
    read: (v, bounds, panel, cut) => {
      if (cut > 0.5) return mostlyCut(cut, "diversity");
      // All that is missing counts as one answer, which nobody gave.
      if (panel?.["trust/plurality_share"]?.value === 0) return ["unsure", NO_ANSWER];
      return v < 0.4 ? ["fair", "mostly one answer"] : ["plain", ""];
    },
  },
  "trust/plurality_share": {
    name: "Agreement",
    show: share,
    read: (v, bounds, panel, cut) => {
      if (cut > 0.5) return mostlyCut(cut, "agreement");
      return v === 0 ? ["unsure", NO_ANSWER] : v > 0.9 ? ["fair", "nearly all give one answer"] : ["plain", ""];
    },
  },
  "trust/plurality_flips": {
    name: "Plurality flips",
    show: share,
    read: (v) => (v > 0.3 ? ["fair", "often another answer than last time"] : ["plain", ""]),
  },
  "env/all/ac_tokens_per_turn": {
    name: "Tokens per turn",
    show: (v) => String(Math.round(v)),
    read: () => ["plain", ""],
  },
  "trust/self_preference": {
    name: "Self-preference",
    show: share,
    read: (v, bounds) =>
      against(0.5, bounds, {
        above: bounds?.low > 0.8 ? ["bad", "votes only count answers"] : ["fair", "more often than not"],
        below: ["good", "less often than not"],
        between: ["unsure", "not distinguishable from half of the time"],
      }),
  },
  "trust/order_flips": {
    name: "Order flips",
    show: share,
    read: (v, bounds) =>
      against(0.3, bounds, {
        above: ["bad", "the order decides often"],
        below: ["good", "the order seldom decides"],
        between: ["unsure", "not distinguishable from 30%"],
      }),
  },
  "trust/judges_per_pair": {
    name: "Judges per pair",
    exact: true, // a count of what was said, not an estimate
    read: (v) => (v < 2 ? ["fair", "often a single judge"] : ["good", "several judges"]),
  },
  "trust/duplicate_votes": {
    name: "Duplicate votes",
    exact: true,
    show: share,
    read: (v) => (v > 0.2 ? ["fair", "judges repeat themselves"] : ["good", "few"]),
  },
  "trust/judge_held_out": {
    name: "Frozen judge accuracy",
    show: share,
    read: (v) => (v < 0.6 ? ["fair", "hardly better than a coin"] : ["plain", ""]),
  },
  "trust/outside_agreement": {
    name: "Agreement with outside judges",
    means: "Of an outside judge's votes on pairs that the agents have settled, the share that agree with them.",
    show: share,
    read: (v, bounds) =>
      against(0.5, bounds, {
        above: ["good", "more often than not"],
        below: ["fair", "less often than not: the agents' taste is their own"],
        between: ["unsure", "not distinguishable from 50%"],
      }),
  },
  "trust/judge_pair_accuracy": {
    name: "Judge's pair accuracy",
    means: "Of pairs of a right and a wrong answer to one question, the share in which the judge's checks score the right one higher.",
    show: share,
    read: (v, bounds) =>
      against(0.5, bounds, {
        above: ["good", "better than guessing"],
        below: ["bad", "worse than guessing: wrong answers are paid more"],
        between: ["unsure", "not distinguishable from guessing (50%)"],
      }),
  },
  "trust/judge_j": {
    name: "Judge's J",
    means: "The share of right answers that the judge approves minus that of wrong ones.",
    read: (v, bounds) =>
      against(0, bounds, {
        above: ["good", "right answers are approved more often"],
        below: ["bad", "wrong answers are approved more often"],
        between: ["unsure", "approval says nothing that can be told from chance"],
      }),
  },
  "trust/outside_accuracy": {
    name: "Outside judge accuracy",
    means: "Of an outside judge's votes between a right and a wrong answer, the share that prefer the right one.",
    show: share,
    read: (v, bounds) =>
      against(0.5, bounds, {
        above: ["good", "better than guessing"],
        below: ["bad", "worse than guessing"],
        between: ["unsure", "not distinguishable from guessing (50%)"],
      }),
  },
};

// Filled by `learnWords`.
export const ALARMS = {};

// By key, or by the pattern of a key whose middle is a task's name. The rest explain themselves or stay silent.
const MEANINGS = [
  [/^env\/all\/reward\/total$/, "Mean over agents of all the reward they got in a debate."],
  [/^env\/all\/by_group\/frac_mixed$/, "Share of debates whose agents did not all get the same."],
  [/^env\/all\/total_episodes$/, "Agents that debated: debates times agents."],
  [/^env\/all\/total_turns$/, "Turns taken."],
  [/^env\/all\/turns_per_episode$/, "Turns an agent took in a debate."],
  [/^env\/all\/ac_tokens_per_turn$/, "Tokens a turn: how much the model writes."],
  [/^env\/all\/ob_tokens_per_turn$/, "Tokens of the prompt of a turn: how much the model reads."],
  [/^tokens\/sampled$/, "Tokens written in this step."],
  [/^tokens\/solution$/, "Tokens of a solution that could be read, on average."],
  [/^tokens\/read$/, "Tokens of prompts that were new in this step."],
  [/^tokens\/spent$/, "Tokens written since training was started."],
  [/^grading\/given_up$/, "Comparisons of answers that were left undone because the grader's time was used up."],
  [/^debates\/played$/, "Debates that were played to their end."],
  [/^debates\/failed$/, "Debates that the engine lost; they are left out of training."],
  [/^debates\/overflowed$/, "Of those, the ones whose next turn did not fit the context of the model."],
  [/^debates\/with_signal$/, "Share of debates in which the votes say anything at all."],
  [/^debates\/with_gradient$/, "Share of debates with an advantage other than 0: those that teach."],
  [/^debates\/dropped$/, "Debates left out of training because no token had an advantage."],
  [/^parse_error$/, "Share of turns whose sections could not be read."],
  [/^round$/, "Mean round of a turn."],
  [/^consensus_reached$/, "Share of turns that completed an agreement of all agents."],
  [/^turns\/cut$/, "Share of turns that were cut at their token limit."],
  [/^v2\/total_votes$/, "Votes that count."],
  [/^v2\/missing_comparisons$/, "Turns that could have voted and did not (−0.5 each)."],
  [/^v2\/comparison_lines_invalid$/, "Lines of comparisons that gave no vote."],
  [/^reward\/gen\/mean$/, "Mean reward for solutions and evaluations: how often others prefer them."],
  [/^reward\/judge\/mean$/, "Mean reward for comparisons: how often they agree with the consensus."],
  [/^pairwise_reward$/, "Mean reward from pairwise votes."],
  [/^pairwise_total_votes$/, "Valid votes per debate."],
  [/^pairwise_malformed$/, "Votes a debate that name nobody, or one agent twice."],
  [/^pairwise_any_votes$/, "Share of debates with any vote."],
  [/\/format$/, "Share of agents with an answer that can be graded."],
  [/\/correct$/, "Share of agents whose last answer is right."],
  [/\/pass@k$/, "Share of debates in which any agent is right."],
  [/\/avg@k$/, "Mean share of right agents in a debate."],
  [/\/cons@k$/, "Share of debates whose most common answer is right."],
  [/^optim\/kl_sample_train_v1$/, "Mean gap between the sampler's and the trainer's logprobs. Near 0 when training is on-policy."],
  [/^optim\/kl_sample_train_v2$/, "Half the mean square of that gap."],
  [/^optim\/kl_step$/, "How far the step moved the policy: the mean logprob before minus after, on its own tokens."],
  [/^optim\/lr_factor$/, "The share of the configured learning rate that adaptive_rate leaves."],
  [/^optim\/kl_policy_base$/, "How far the policy has gone from the base model, a token."],
  [/^optim\/entropy$/, "Minus the mean logprob of what was sampled. Falling to 0 means the model always says the same."],
  [/^optim\/loss$/, "The loss summed over tokens."],
  [/^optim\/grad_norm$/, "Length of the gradient before clipping."],
  [/^optim\/steps_skipped$/, "Optimizer steps left out because the gradient was not finite."],
  [/^optim\/trained_tokens$/, "Tokens that carried a loss."],
  [/^optim\/lr$/, "Learning rate."],
  [/^engine\/out_of_memory$/, "How often memory ran out since training was started; each time the work was done with less."],
  [/^engine\/retries$/, "Requests to the server that were sent again since training was started."],
  [/^engine\/uncertain$/, "Calls to the server of which it is not known whether they were taken."],
  [/^engine\/replays$/, "How often the server's saved state was restored and the calls after it made again."],
  [/^recipe\/reward_mix$/, "Share of ground truth in the reward at this step."],
  [/^recipe\/correct_bonus$/, "What a right answer is given on top at this step."],
  [/^recipe\/curriculum_level$/, "Which task of the curriculum is being trained on."],
  [/^recipe\/debated_again$/, "Questions debated once more because their agents had ended in disagreement."],
  [/^recipe\/fewer_agents$/, "Questions debated by fewer agents because all had ended with one answer before."],
  [/^distill\/loss_per_token$/, "Loss a token of the supervised step on winners' turns."],
  [/^jury\/ballots$/, "Ballots that judges without a seat gave."],
  [/^jury\/parse_error$/, "Share of those ballots that could not be read."],
  [/^tokens\/jury$/, "Tokens that judges without a seat wrote."],
  [/\/direct\//, "Held out: the model alone, one plain answer."],
  [/\/vote@\d+\//, "Held out: the most common of several plain answers."],
  [/^warm\/loss_per_token$/, "Loss a token of the supervised warm start."],
  [/^test\/valid_turns$/, "Held out: share of turns that can be read."],
  [/^test\/turns_with_vote$/, "Held out: share of turns that voted among those that could."],
];

export async function learnWords() {
  for (const [key, words] of Object.entries(await ask("words"))) Object.assign(TRUST[key] ?? (ALARMS[key] ??= {}), words);
}

export function meaning(key) {
  const known = TRUST[key] ?? ALARMS[key];
  if (known) return known.means ?? known.rings;
  return MEANINGS.find(([pattern]) => pattern.test(key))?.[1] ?? "";
}

export function title(key) {
  return (TRUST[key] ?? ALARMS[key])?.name ?? key;
}

// Those that are looked at first: do judges know (by their checks, or by votes), do answers get better here and on questions held out, is it rewarded, can it be read.
export const FIRST = [
  ["train", /^trust\/judge_accuracy$/, "Judge accuracy"],
  ["train", /^trust\/judge_pair_accuracy$/, "Judge's pair accuracy"],
  ["train", /^train_.*\/correct$/, "Accuracy"],
  ["eval", /^test_[^/]*\/correct$/, "Accuracy"],
  ["train", /^env\/all\/reward\/total$/, "Reward"],
  ["train", /^parse_error$/, "Unreadable turns"],
];

// What lies between 0 and 1, whatever is drawn.
const SHARES = /(^|\/)(correct|format|(pass|avg|cons)@k|parse_error|cut|frac_mixed|with_signal|with_gradient|valid_turns|turns_with_vote|answer_diversity|consensus_reached|pairwise_any_votes)$/;
export const isShare = (key) => TRUST[key]?.show === share || SHARES.test(key);

// What a curve is called: two tasks have two curves, so their names tell them apart.
export function firstTitle(place, key) {
  const task = /^(?:train|test)_([^/]+)\//.exec(key)?.[1];
  return task ? `${FIRST[place][2]}: ${task}` : FIRST[place][2];
}

// The place of a metric among them; -1 where it is not one.
export function first(phase, key) {
  return FIRST.findIndex(([where, pattern]) => where === phase && pattern.test(key));
}

// Groups in the order a reader asks: is it trustworthy, is it rewarded, is it right, does it debate well, does it train well.
const GROUPS = [
  ["Trust", /^(trust|alarm)\//],
  ["Reward", /(^|\/)reward|^pairwise|frac_mixed/],
  ["Answers", /^(train|test)_|@k$|\/correct$|^test\//],
  ["Debates", /^(debates|v2|turns|parse_error|round|consensus|jury)/],
  ["Optimisation", /^(optim|warm|distill|recipe)\//],
  ["Size and time", /^(env\/all|tokens|time)\//],
];

export function group(key) {
  return GROUPS.find(([, pattern]) => pattern.test(key))?.[0] ?? "Other";
}

export const GROUP_ORDER = [...GROUPS.map(([name]) => name), "Other"];

// What became of each line of a comparison. ✓ and ✗ are kept for right and wrong answers.
export const FATES = {
  vote: ["counted", "this line is a vote"],
  self: ["not counted", "it names its own author"],
  same: ["not counted", "it compares an agent with itself"],
  unknown: ["not counted", "it names an agent that is not here"],
  unseen: ["not counted", "the author could not compare these two"],
  superseded: ["not counted", "the author said something else about this pair later, or said it before"],
  unreadable: ["not counted", "a comparison is “Agent A > Agent B” or “Agent A = Agent B”"],
};

// A parser's reason, and what a reader can do with it.
export function failure(reason, protocol) {
  const ends = protocol?.on_parse_failure === "abort";
  const cost = ends
    ? "The debate ended here; what was said before counts."
    : "The turn counts as failed: it earns −1, the others are told that it gave no valid response, and no vote can be about it.";
  let why =
    (protocol?.sections ?? "sampled") === "sampled"
      ? "The sections must each stand once, in their order, with opening and closing tag."
      : "A turn fails only where its solution is empty or was cut; what else is short stays as it is.";
  if (/^no </.test(reason)) why = "There is no section at all: the model did not follow the form.";
  else if (/^sampling ended/.test(reason))
    why = "The turn was cut at its token limit before the last tag: it was too long, so --max-tokens may be too small.";
  else if (/^the solution was cut/.test(reason))
    why = "The solution reached its token limit before it was finished, so --max-tokens may be too small.";
  else if (/^the solution is empty/.test(reason)) why = "Nothing was written where the solution was asked for.";
  else if (/^the text ends/.test(reason)) why = "The turn stops before all sections are written.";
  else if (/^expected/.test(reason)) why = "The tags do not come in their order: one is missing, doubled or misplaced.";
  else if (/^consensus is/.test(reason)) why = "The consensus section may only say YES or NO.";
  return { why, cost };
}
