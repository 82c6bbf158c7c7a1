"""What a training run shows while it runs, and what it says at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from moot.cli.console import Bars, Beat, Terminal, clock
from moot.cli.loggers import Loggers
from moot.errors import ConfigError
from moot.evaluate.report import Report, ReportRow, compare
from moot.judges.ballots import many_unread
from moot.rl.alarms import ALARMS
from moot.rl.best import NAME as BEST
from moot.rl.best import UNRANKED, nothing_right, told_best
from moot.rl.judge_trust import PAIR_ACCURACY, J
from moot.runs import Run
from moot.runs.run import measured
from moot.settings.train import TrainConfig
from moot.tokens.played import PlayedDebate
from moot.training.state import Watcher
from moot.util.safe_text import counted

MANY_UNREADABLE = 0.2
"""The share of turns from which on the step's line says how many of all were cut."""
PHASES = {"warm": "warm start", "self_play": "self-play", "eval": "evaluating"}


class RunProgress(Watcher):
    """A bar for the run, one for the debates in play, and one line per step. Of several runs at once each has a name,
    which its lines begin with, and one bar."""

    def __init__(self, console: Terminal, bars: Bars, loggers: Loggers, config: TrainConfig, name: str = "") -> None:
        self._console, self._bars, self._loggers, self._config, self._name = console, bars, loggers, config, name
        self._run = name or "run"
        self._bars.plan(self._run, None)
        self._started = self._step_began = time.monotonic()
        self._total = self._step = self._debates = self._played = 0
        self._phase, self._stepped = "", False
        self._ringing: set[str] = set()
        self._unread = ""
        self._beat = Beat(console, self._so_far)

    def __enter__(self) -> RunProgress:
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._beat.stop()

    def _so_far(self) -> str:
        """Empty before anything began."""
        if not self._phase:
            return ""
        debates = f"{self._played} of {self._debates} debates" if self._debates else "at work"
        so_far = f"[{clock(time.monotonic() - self._started)}{self._bars.left(self._run)}]"
        return self._named(f"{_where(self._step, self._total, self._phase)}  {debates}  {so_far}")

    def began(self, step: int, total: int, phase: str) -> None:
        done = max(0, step - 1) if phase != "eval" else step
        if phase != "eval" and not self._stepped:
            self._bars.plan(self._run, total, done)  # what came before is no measure of how long a step takes
            self._stepped = True
        self._bars.reach(self._run, done, PHASES[phase], total)
        self._bars.measure_anew()
        self._total, self._step_began = total, time.monotonic()
        batch = self._config.optim.batch_size
        self._step, self._phase, self._played = step, phase, 0
        self._debates = {"warm": 0, "eval": self._config.eval_questions}.get(phase, batch)
        if self._name:
            return
        if phase == "warm":
            self._bars.hide("debates")
        else:
            self._bars.plan("debates", self._debates)

    def debate_finished(self, played: PlayedDebate) -> None:
        self._played += 1
        if not self._name:
            self._bars.advance("debates", sum(turn.count for turn in played.sampled))
        if self._phase == "self_play":
            # Playing is about half of a step, and with it the first step has an estimate of the time left.
            self._bars.reach(self._run, self._step - 1 + 0.5 * min(1.0, self._played / self._debates))

    def counted(self, kind: str, done: int, total: int) -> None:
        kind = f"{self._name} {kind}".strip()
        if done == total:
            self._bars.hide(kind)
        else:
            self._bars.plan(kind, total, done)

    def row(self, row: dict[str, Any]) -> None:
        self._bars.reach(self._run, row["step"])
        self._loggers.row(row)
        self._beat.heard()
        now = time.monotonic()
        left = "" if self._console.is_terminal else self._bars.left(self._run)
        self._say(line(row, self._total, now - self._step_began, now - self._started, left))
        self._say_new_alarms(row)
        if (told := many_unread(row.get("jury/unread"))) and not self._unread:
            self.note(told)
        self._unread = self._unread or told

    def _say_new_alarms(self, row: dict[str, Any]) -> None:
        """What an alarm means is said when it begins to ring, not at each step that it rings."""
        ringing = alarms(row) if row["phase"] == "self_play" else self._ringing
        for name in sorted(ringing - self._ringing):
            self._say(f"ALARM {name.removeprefix('alarm/')}: {ALARMS[name].means} {ALARMS[name].remedy}", "red")
        self._ringing = ringing

    def note(self, text: str) -> None:
        self._console.note(f"{self._name}: {text}" if self._name else text)

    def _say(self, text: str, style: str = "") -> None:
        self._console.say(self._named(text), style)

    def _named(self, text: str) -> str:
        return f"{self._name}  {text}" if self._name else text


def _judging(row: dict[str, Any]) -> float | None:
    """By the judge's checks where the reward is made of them; otherwise of the agents' votes, or where they cast none,
    of the outside judge's."""
    if PAIR_ACCURACY in row:
        own: float | None = row[PAIR_ACCURACY]
        return own
    agents = row["trust/judge_accuracy"]
    return row.get("trust/outside_accuracy") if agents is None else agents


def _j(row: dict[str, Any]) -> list[str]:
    """Beside it, of judges who approve or do not."""
    return [] if row.get(J) is None else [f"J {row[J]:+.2f}"]


def line(row: dict[str, Any], total: int, step_s: float, elapsed_s: float, left: str = "") -> str:
    """One step in one line: how far, what was measured, how fast, how long it has run, what is `left`."""
    where = _where(row["step"], total, row["phase"])
    match row["phase"]:
        case "warm" if "warm/ended_after" in row:
            parts = [
                f"ended after {row['warm/ended_after']:.0f} steps",
                f"valid turns {_share(row['warm/valid_turns'])}",
            ]
            parts += [f"direct {_share(row['warm/direct_before'])} to {_share(row['warm/direct_after'])}"]
        case "warm":
            parts = [f"loss {row['warm/loss_per_token']:.3f} per token", f"{row['optim/trained_tokens']:,.0f} tokens"]
        case "eval":
            parts = [
                f"right {_share(measured(row, 'test_*/correct'))}",
                f"valid turns {_share(row['test/valid_turns'])}",
            ]
            if PAIR_ACCURACY not in row:  # agents vote
                parts += _known("turns with a vote", row["test/turns_with_vote"])
            parts += [*_known("judges right", _judging(row)), *_j(row)]
        case _:
            parts = [
                f"reward {row['env/all/reward/total']:+.2f}",
                f"signal {_share(row['debates/with_signal'])}",
                *_known("judges right", _judging(row)),
                *_j(row),
                f"right {_share(measured(row, 'train_*/correct'))}",
                f"unreadable {_share(row['parse_error'])}{_cut(row)}",
                f"sampler-trainer KL {_number(row['optim/kl_sample_train_v2'])}",
            ]
            parts += [f"ALARM {name.removeprefix('alarm/')}" for name in sorted(alarms(row))]
    if sampled := row.get("tokens/sampled"):
        parts.append(f"{sampled / max(1e-9, step_s):,.0f} tokens/s")
    return f"{where}  {', '.join(parts)}  [{clock(elapsed_s)}{left}]"


def _where(step: int, total: int, phase: str) -> str:
    return f"step {step:>{len(str(total))}}/{total}  {PHASES[phase]:<10}"


def alarms(row: dict[str, Any]) -> set[str]:
    return {name for name, value in row.items() if name.startswith("alarm/") and value}


def _cut(row: dict[str, Any]) -> str:
    """The commonest reason, at once: the alarm with the remedy needs several steps."""
    many = (row["parse_error"] or 0) >= MANY_UNREADABLE and row.get("turns/cut")
    return f" ({_share(row['turns/cut'])} cut at --max-tokens)" if many else ""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _known(name: str, share: float | None) -> list[str]:
    """Nothing where it could not be measured: a run whose agents never vote need not read of votes at every step."""
    return [] if share is None else [f"{name} {share:.0%}"]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def _points(change: dict[str, Any]) -> str:
    """A difference of shares and its interval, in points."""
    return f"{100 * change['value']:+.0f} points [{100 * change['low']:+.0f}, {100 * change['high']:+.0f}]"


def held_out_row(run: Run, step: int) -> ReportRow | None:
    """What an evaluation during training counted in its debates, by question; None where that cannot be read."""
    with suppress(ConfigError, OSError):
        return next(iter(Report.read(run.held_out_report(step)).rows), None)
    return None


FEWEST_PAIRS = 6
"""Of fewer questions no interval is told: the bootstrap of one or two pairs is narrow and says nothing."""


def difference(new: ReportRow, old: ReportRow, metric: str, seed: int) -> dict[str, Any] | None:
    """In pairs by question, over those in which it could be counted both times; None of too few."""
    sides = [
        {question: share for question, share in row.by_question.get(metric, {}).items() if share[1]}
        for row in (new, old)
    ]
    paired = compare(sides[0], sides[1], "", seed)
    return paired if paired and paired["questions"] >= FEWEST_PAIRS else None


def summary(run: Run, config: TrainConfig, console: Terminal) -> int:
    """What improved, what did not, and where to look. Fails if no debate carried a gradient."""
    rows = run.metrics()
    played = [row for row in rows if row["phase"] == "self_play"]
    debates = sum(row.get("debates/played") or 0.0 for row in played)
    taught, told = (_debates_with(played, name) for name in ("gradient", "signal"))
    console.say(
        f"\n{taught:.0f} of {debates:.0f} debates carried a gradient, in {counted(len(played), 'step')}.", "bold"
    )
    if told < taught:
        console.say(
            f"  In {told:.0f} of them the votes tell answers apart (signal); in the others the gradient comes from "
            "penalties."
        )
    evals = [row for row in rows if row["phase"] == "eval"]
    if len(evals) >= 2:
        moments = {"before": evals[0], "after": evals[-1]}
        if evals[0]["step"] < config.warm_steps and (
            between := next((row for row in evals if row["step"] == config.warm_steps), None)
        ):
            moments = {"before": evals[0], "after the warm start": between, "after self-play": evals[-1]}
        old, new = (held_out_row(run, row["step"]) for row in list(moments.values())[-2:])
        moved, wins = list[str](), told_wins(evals[-1], config)
        checked = config.protocol.scoring.rule.checked
        for name, metric, key in (
            ("valid turns", "valid_turns", "test/valid_turns"),
            *([] if checked else [("turns with a vote", "turns_with_vote", "test/turns_with_vote")]),
            ("right answers, held out", "accuracy", "test_*/correct"),
            ("judges right", "judge", PAIR_ACCURACY if checked else "trust/judge_accuracy"),
        ):
            if all(measured(row, key) is None for row in moments.values()):
                continue  # no answer is known, or nobody votes
            change = None if old is None or new is None else difference(new, old, metric, config.seed)
            by_self_play = "" if change is None else f"; self-play {_points(change)}"
            console.say(
                f"  {name:<24}"
                + ", ".join(f"{_share(measured(row, key))} {when}" for when, row in moments.items())
                + by_self_play
            )
            if change is not None and (change["low"] > 0 or change["high"] < 0):
                moved.append(f"{name} {'up' if change['value'] > 0 else 'down'}")
        if wins is not None:
            console.say(f"  {'wins against the start':<24}{wins}")
        count = evals[-1].get("debates/played") or 0.0
        questions = f"{count:.0f} held-out question{'s' * (count != 1)}"
        if moved:
            console.say(
                f"Self-play moved: {'; '.join(moved)} (95% intervals over {questions}, the same before and after, that "
                "exclude 0)."
            )
        else:
            console.say(
                f"Self-play moved none of these beyond chance: with {questions} a difference is a hint, not a result."
            )
    step = evals[-1].get(BEST) if evals else None
    if nothing_right(rows, step):
        console.say("No checkpoint is better than another: the best held-out evaluation came to 0%.")
    elif best := told_best(rows, step):
        console.say(f"Best checkpoint: {best}. Use it as {run.path}@best, as in: {_command()} eval {run.path}@best")
    elif evals:
        console.say(f"Of the checkpoints {UNRANKED}.")
    for name, text in alarm_digest(played).items():
        console.say(f"ALARM {name}: {text}", "red")
    where = (
        f"Metrics: {run.path / 'metrics.jsonl'}\nDebates: {run.path / 'debates'}\nLook at them: {_command()} view "
        f"{run.path}"
    )
    console.say(where, "green")
    if played and not taught:
        console.say(f"No debate carried a gradient: {_nothing_learned(config)}", "red")
        return 1
    return 0


def told_wins(row: dict[str, Any], config: TrainConfig) -> str | None:
    """The share of questions in which a judge prefers the answer after training to the one before it, with its
    interval; None where that was not measured."""
    value, low, high, flips = (
        measured(row, f"test_*/wins/{name}") for name in ("accuracy", "accuracy_low", "accuracy_high", "flips")
    )
    if value is None or low is None or high is None:
        return None
    judge = config.recipe.judge or "the untrained model"
    questions = counted(int(row.get("test/wins_questions") or 0), "question")
    chance = "" if low > 0.5 or high < 0.5 else "; 50% is chance, and not excluded"
    return (
        f"{value:.0%} [{low:.0%}, {high:.0%}] of {questions}, judged by {judge} in both orders ({_share(flips)} of the "
        f"verdicts change with the order){chance}"
    )


def _nothing_learned(config: TrainConfig) -> str:
    """Why, and what to try, in the words of the reward."""
    rule, reward = config.protocol.scoring.rule, config.protocol.scoring.reward
    if config.protocol.rules.needs_judge:
        return "nothing was learned from votes. Raise --max-tokens, or name a --judge whose verdicts can be read."
    if rule.checked:
        told = f"the judge's scores paid all agents of a debate alike under the reward {reward}"
        return f"{told}. Compare judges and ways to ask them ({_command()} judge), or lower its vote_margin, if any."
    if rule.from_votes:
        return "nothing was learned from votes. Try a longer warm start."
    if rule.grades == "right":
        told, questions = (
            "in every debate all agents were right, or none was",
            "Take easier or harder questions (--task)",
        )
    elif rule.our_own:
        told, questions = (
            "in every debate all agents gave one answer, or no two the same",
            "Take other questions (--task)",
        )
    else:
        return f"the reward {reward} paid all agents of a debate alike. Look at what it pays: {_command()} score."
    return (
        f"{told}, so the reward {reward} had nothing to prefer. {questions}, more agents (--num-agents), or a "
        "larger --max-tokens."
    )


def _debates_with(played: list[dict[str, Any]], what: str) -> float:
    return float(sum((row.get("debates/played") or 0.0) * (row.get(f"debates/with_{what}") or 0.0) for row in played))


def alarm_digest(played: list[dict[str, Any]]) -> dict[str, str]:
    """For each alarm that rang: when, whether it still did at the end, what it means and what to do."""
    digest = {}
    for name in ALARMS:
        steps = [row["step"] for row in played if row.get(name)]
        if steps:
            last = "to the end" if steps[-1] == played[-1]["step"] else f"last at step {steps[-1]}"
            rang = f"rang at {len(steps)} of {len(played)} steps, first at step {steps[0]}, {last}."
            digest[name.removeprefix("alarm/")] = f"{rang} It means: {ALARMS[name].means} {ALARMS[name].remedy}"
    return digest


def _command() -> str:
    """How the reader can call moot: by name, or where it stands if the shell does not find it."""
    beside = Path(sys.executable).with_name("moot")
    return "moot" if shutil.which("moot") or not beside.exists() else os.path.relpath(beside)
