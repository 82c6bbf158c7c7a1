"""What each number of the trust panel means in plain words, and what to do about it. The page and the loop read it
here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    means: str
    remedy: str


PANEL: dict[str, Meaning] = {
    "trust/judge_accuracy": Meaning(
        "Of the votes between a right and a wrong answer, the share that prefer the right one. One half is guessing.",
        "Below 0.6: a warm start (`--warm-questions 100` and `--with warm_start:wrong=sampled`), an outside judge "
        "(`--judge NAME`), or easier questions (`--task`).",
    ),
    "trust/vote_truth_agreement": Meaning(
        "How much more reward right answers get from the vote than wrong ones, from -2 to 2. At 0 the vote teaches "
        "nothing about truth.",
        "Near 0 or negative: stop, or mix in truth (`--reward-mix 0.3`) until it rises.",
    ),
    "trust/winner_correct": Meaning(
        "How often the winner of a debate is right, over debates that have one. Compare it with the mean accuracy of "
        "the agents beside it.",
        "Not above the mean accuracy: voting picks no better than chance; see judge accuracy.",
    ),
    "trust/mean_accuracy": Meaning(
        "The mean accuracy of the agents: what picking a winner at random would give.",
        "Under 0.1: the questions are too hard for votes to mean anything; use easier ones (`--task`), a curriculum "
        "(`--with curriculum`) or a warm start (`--warm-questions 100`).",
    ),
    "trust/position_bias": Meaning(
        "How much more often than half the lower-numbered agent wins a vote between two equally good answers.",
        "Beyond 0.1 either way: `--shuffle-labels`.",
    ),
    "trust/length_bias": Meaning(
        "How much more often than half the longer solution wins a vote between two equally good answers.",
        "Beyond 0.1: a lower `--max-tokens`, or mix in truth (`--reward-mix 0.3`); the vote pays for length.",
    ),
    "trust/vote_cycles": Meaning(
        "Of three answers all compared with each other, how often A beats B, B beats C and C beats A.",
        "Above 0.1: judges have no steady taste; more agents (`--num-agents 5`), or a warm start (`--warm-questions "
        "100`).",
    ),
    "trust/answer_diversity": Meaning(
        "Different answers among the agents in the last round, divided by their number. 1/N means all agree.",
        "Near 1/N: harder questions (`--task`), fewer rounds (`--max-rounds 2`) or more agents (`--num-agents 5`); "
        "there is nothing left to vote on.",
    ),
    "trust/plurality_share": Meaning(
        "Of the agents of a debate, the share that give its most frequent answer. It needs no label, and rises as a "
        "run loses its variety.",
        "Near 1 while accuracy stands still: use the best checkpoint (RUN@best), `--with frozen_labels`, or harder "
        "questions (`--task`).",
    ),
    "trust/plurality_flips": Meaning(
        "Of the questions that were debated before, the share whose most frequent answer is another one now. It needs "
        "no label.",
        "Above 0.3: the majority is noise; more agents (`--num-agents 5`) or easier questions (`--task`). Below 0.05 "
        "with a share above 0.9: nothing is left to learn.",
    ),
    "env/all/ac_tokens_per_turn": Meaning(
        "Tokens that a turn has on average. It needs no label; turns that grow or shrink by half are being paid for "
        "their length.",
        "Falling or rising fast: a lower `--learning-rate`, or keep near the start with `--with "
        "kl_penalty:coef=0.001`.",
    ),
    "trust/self_preference": Meaning(
        "Of the votes between the judge's own answer and another, the share that prefer its own. Near 1 votes only "
        "count answers.",
        "Above 0.8: judges without a seat whose votes alone count (`--judge NAME --voters judges`).",
    ),
    "trust/order_flips": Meaning(
        "Of the pairs that a judge without a seat was shown in both orders, the share whose verdict changed with the "
        "order.",
        "Above 0.3: this judge follows the order it reads in; keep `--both-orders` on, or name a stronger one "
        "(`--judge NAME`).",
    ),
    "trust/judges_per_pair": Meaning(
        "Votes cast on each pair of answers that has any. With one, a judge is measured against itself.",
        "Below 2: five agents (`--num-agents 5`), or `--judge-consensus leave_one_out`.",
    ),
    "trust/duplicate_votes": Meaning(
        "Share of votes that repeat the author's own on the same pair. They count once with `--one-ballot-per-pair`.",
        "Rising: judges repeat their votes; keep `--one-ballot-per-pair` on.",
    ),
    "trust/judge_held_out": Meaning(
        "With `--with renewed_judge`: how often votes on held-out debates preferred the right answer when the copy "
        "that judges now was taken.",
        "Standing still for long: the policy does not learn to judge; name a stronger judge (`--judge NAME`).",
    ),
    "trust/outside_agreement": Meaning(
        "Of the pairs on which the peers clearly agree and the outside judge has a preference, how often it is the "
        "same.",
        "Falling while the reward rises: the peers are drifting into a taste of their own; `--with "
        "past_selves:share=0.3`, or let the judge's votes count (`--voters both`).",
    ),
    "trust/outside_accuracy": Meaning(
        "Of the outside judge's votes between a right and a wrong answer, the share that prefer the right one.",
        "Below the peers' own judge accuracy: this judge is no help; name a stronger one (`--judge NAME`).",
    ),
    "trust/judge_pair_accuracy": Meaning(
        "Of the pairs of a right and a wrong answer of one question, the share in which the judge's checks score the "
        "right one higher. One half is guessing.",
        "Below 0.65: more checks (`--reward approval:checks=8`), a margin (`--reward approval:vote_margin=0.5`), or "
        "another judge (`--judge NAME`); `moot judge` compares them.",
    ),
    "trust/judge_j": Meaning(
        "Of single answers, the share of right ones that the judge approves minus that of wrong ones. At 0 its "
        "approval says nothing.",
        "Below 0.2: another judge (`--judge NAME`), or a margin (`--reward approval:vote_margin=0.5`); `moot judge` "
        "compares them.",
    ),
}
