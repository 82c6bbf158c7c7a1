"""Whether moot's datums are those of tinker-cookbook, field by field, on the same trajectories.

    python3.11 bench/cookbook_datums.py [--venv FOLDER] [--python PYTHON] [--fresh]

The first run makes a virtual environment of its own (.cache/cookbook-venv) with moot, torch, tinker and tinker-cookbook; later runs
use it again. Both sides then build datums from the same turns: moot with `moot.tokens.datums.datums`, the cookbook with
`trajectory_to_data`. Compared are input tokens, target_tokens, logprobs, advantages and mask, to the last bit. Turns come from cases
written by hand (each with the number of datums that is right, so that two equal mistakes show as well), from chance, and from
scripted debates. In the debates the cookbook is given what the sampler was asked and what it answered, not what moot wrote down.

Exit status: 0 all equal, 1 a difference (the first differing field is shown), 2 the virtual environment could not be made.

Differences of form, which are converted and not counted:

- moot's datums are numpy arrays, int32 and float32. The cookbook's are a `ModelInput` and `TensorData`, int64 and float32.
- Where nothing at all was sampled in a sequence, the cookbook's advantages are integers: all zeros in both.
- moot's `extends=True` turn holds only what is new in its prompt. The cookbook always wants the whole prompt.
- A moot datum also says the temperature it was sampled at. The cookbook's has no such field.

Differences of substance. The script shows each of these happening, but does not count them:

- Temperature. moot starts a new datum where an agent's temperature changes, since a datum has one. The cookbook goes on in the same
  one. An agent's temperature never changes within a debate, so this does not happen in play.
- Too short to train on. Of a sequence of one token the cookbook makes an error, and of none it makes no datum. moot makes no datum in
  both cases. A chat format never writes so short a prompt.
- Centring. `compute_advantages` works in float32, moot in float64, so advantages differ in the last bits. For equal rewards moot's
  are exactly 0; the cookbook's may keep a rest (6e-8 for seven rewards of 0.7).
- Credit. The cookbook has one advantage a trajectory. moot's rewards by step give each turn, or each section of it, its own; there
  only the other four fields are compared.
- Failed turns. The cookbook can leave turns that did not parse out of the loss, where an environment asks for it. moot always trains
  on them: they are what the penalty is for. The cookbook's switch is off here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

# Outside the virtual environment there is only the standard library.
if TYPE_CHECKING or "--inside" in sys.argv:
    import asyncio
    from importlib.metadata import version

    import numpy as np
    import tinker
    import torch
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.exceptions import DataValidationError
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages, trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    from moot.debate.protocols import Protocol, preset
    from moot.debate.rewards import FAILED, agent_scores, score
    from moot.debate.state import Debate
    from moot.debate.types import ParseFailure, Question, Turn
    from moot.engine.protocol import Datum, Floats, Ints, Sample, SamplingParams
    from moot.engine.scripted import ScriptedEngine, Style
    from moot.rl.advantages import ESTIMATORS, Advantages, advantages
    from moot.rl.rollout import rollout
    from moot.tokens.datums import datums
    from moot.tokens.rendering import Rendering
    from moot.tokens.turn import SampledTurn

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch>=2.8,<2.14"
PINNED = ("tinker==0.36.0", "tinker-cookbook==0.5.8")
SEED = 11

# ---------------------------------------------------------------- the virtual environment


class NoVenv(Exception):
    """The virtual environment could not be made."""


def step(what: str, command: Sequence[str | Path]) -> str:
    """Runs one command of the making; what it wrote is shown only if it failed."""
    print(f"  {what}", flush=True)
    try:
        done = subprocess.run(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        raise NoVenv(f"{what}: {error}") from None
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise NoVenv(f"{what}: exit status {done.returncode}\n{tail}")
    return done.stdout


def make_venv(venv: Path, python: str, fresh: bool) -> Path:
    """The environment's interpreter. A stamp says what it was made of; without it, or with another one, everything is made anew."""
    installed = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = venv / "made-of.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made_of = "\n".join([str(ROOT), python, TORCH, *PINNED, *project["dependencies"]])
    if not fresh and installed.exists() and stamp.exists() and stamp.read_text() == made_of:
        return installed
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        raise NoVenv(f"{venv} holds something that is not a virtual environment; name another folder with --venv")
    interpreter = shutil.which(python)
    if interpreter is None:
        raise NoVenv(f"there is no {python} here; name an interpreter with --python")
    print(f"Making a virtual environment in {venv} (a few minutes, once):", flush=True)
    step("an empty environment", [interpreter, "-m", "venv", "--clear", venv])
    pip: list[str | Path] = [installed, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # torch comes first and is then held where it is: the cookbook would take any newer one.
    step(TORCH, [*pip, TORCH])
    found = step(
        "which torch that is", [installed, "-c", "from importlib.metadata import version; print(version('torch'))"]
    ).split()[-1]
    held = venv / "constraints.txt"
    held.write_text(f"torch=={found}\n")
    step(
        f"moot, {', '.join(PINNED)}, with torch held at {found}",
        [*pip, "--constraint", held, "--editable", ROOT, *PINNED],
    )
    stamp.write_text(made_of)
    return installed


def outside(options: argparse.Namespace) -> int:
    try:
        python = make_venv(options.venv.resolve(), options.python, options.fresh)
    except (NoVenv, OSError) as error:
        print(f"The virtual environment could not be made, so nothing was compared.\n{error}", file=sys.stderr)
        return 2
    # -I: nothing from outside the environment may stand in for what was installed in it.
    return subprocess.run([str(python), "-I", str(Path(__file__).resolve()), "--inside"], check=False).returncode


# ---------------------------------------------------------------- one trajectory, twice

FIELDS = ("input tokens", "target_tokens", "logprobs", "advantages", "mask")
BUT_ADVANTAGES = tuple(name for name in FIELDS if name != "advantages")


@dataclass(frozen=True)
class Step:
    """One turn as both sides can be given it."""

    prompt: list[int]
    """The whole of it."""
    new: list[int] | None
    """What it adds to all that came before, where it was made so."""
    tokens: list[int]
    logprobs: list[float]
    temperature: float = 1.0


@dataclass(frozen=True)
class Group:
    """One debate: moot's input and the cookbook's."""

    debate: Debate
    sampled: tuple[SampledTurn, ...]
    advantages: Advantages
    trajectories: list[Trajectory]
    rewards: tuple[float, ...] = ()
    """By agent, without what single turns were charged; the cookbook adds that itself."""
    returns: tuple[float, ...] = ()
    """By agent, as moot adds it up."""

    def ours(self) -> list[Datum]:
        return datums(self.debate, self.sampled, self.advantages)

    def theirs(self) -> list[tinker.Datum]:
        # Where moot has more than one an agent, the cookbook's are not compared.
        values = self.advantages.values if self.advantages.per == "agent" else (0.0,) * len(self.trajectories)
        return [
            datum
            for item, value in zip(self.trajectories, values, strict=True)
            for datum in trajectory_to_data(item, value)
        ]


@dataclass(frozen=True)
class Case:
    name: str
    groups: list[Group]
    fields: tuple[str, ...] = FIELDS
    expected: int | None = None
    """How many datums there should be, where that is known without building them."""


def transition(
    prompt: list[int], tokens: list[int], logprobs: list[float], reward: float = 0.0, done: bool = False
) -> Transition:
    return Transition(
        ob=tinker.ModelInput.from_ints(prompt),
        ac=TokensWithLogprobs(tokens, logprobs),
        reward=reward,
        episode_done=done,
    )


def trajectory(transitions: list[Transition]) -> Trajectory:
    return Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty())


def ints(values: Sequence[int]) -> Ints:
    return np.asarray(values, dtype=np.int32)


def floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=np.float32)


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


def group(agents: Sequence[Sequence[Step]], values: Sequence[float], as_new: Callable[[int], bool]) -> Group:
    """Steps of several agents as one debate. `as_new` says of the n-th turn whether moot is told only what is new, where it may be."""
    turns: list[Turn] = []
    sampled: list[SampledTurn] = []
    for round in range(max((len(steps) for steps in agents), default=0)):
        for agent, steps in enumerate(agents):
            if round >= len(steps):
                continue
            item = steps[round]
            extends = item.new is not None and as_new(len(turns))
            turns.append(Turn(round + 1, agent, "", ParseFailure("never read")))
            sampled.append(
                SampledTurn(
                    prompt=ints(item.new if extends and item.new is not None else item.prompt),
                    extends=extends,
                    tokens=ints(item.tokens),
                    logprobs=floats(item.logprobs),
                    starts=np.zeros(len(item.tokens), dtype=np.int32),
                    temperature=item.temperature,
                )
            )
    debate = Debate(Question("?"), len(agents), max(1, max(map(len, agents))), turns=tuple(turns))
    trajectories = [
        trajectory([transition(item.prompt, item.tokens, item.logprobs) for item in steps]) for steps in agents
    ]
    return Group(debate, tuple(sampled), Advantages.per_agent(tuple(values)), trajectories)


# ---------------------------------------------------------------- comparing


def fields_of_ours(datum: Datum) -> dict[str, NDArray[np.generic]]:
    return dict(zip(FIELDS, (datum.tokens, datum.targets, datum.logprobs, datum.advantages, datum.mask), strict=True))


def fields_of_theirs(datum: tinker.Datum) -> dict[str, NDArray[np.generic]]:
    named = {name: datum.loss_fn_inputs[name].to_numpy() for name in FIELDS[1:]}
    return {FIELDS[0]: np.asarray(datum.model_input.to_ints(), dtype=np.int64), **named}


def difference(ours: Datum, theirs: tinker.Datum, names: Sequence[str], slack: float = 0.0) -> str | None:
    """The first field that differs and where. `slack` is for advantages only."""
    mine, other = fields_of_ours(ours), fields_of_theirs(theirs)
    for name in names:
        a, b = mine[name], other[name]
        kind = np.int32 if name in FIELDS[:2] else np.float32
        if a.dtype != kind:
            return f"field {name}: moot's dtype is {a.dtype}, its contract says {np.dtype(kind)}"
        if a.shape != b.shape:
            return f"field {name}: moot's shape is {a.shape}, the cookbook's {b.shape}"
        allowed = slack if name == "advantages" else 0.0
        # Written so that NaN differs from everything.
        wrong = np.flatnonzero(~(np.abs(a.astype(np.float64) - b.astype(np.float64)) <= allowed))
        if len(wrong):
            place = int(wrong[0])
            return (
                f"field {name}, place {place} of {len(a)}: moot has {a[place].item()}, the cookbook {b[place].item()}"
            )
    return None


def compare(
    ours: Sequence[Datum], theirs: Sequence[tinker.Datum], names: Sequence[str], slack: float = 0.0
) -> str | None:
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if found := difference(a, b, names, slack):
            return f"datum {number}, {found}"
    if len(ours) != len(theirs):
        return f"moot made {len(ours)} datums, the cookbook {len(theirs)}"
    return None


@dataclass
class Row:
    name: str
    trajectories: int
    turns: int
    datums: int
    fields: str
    difference: str | None
    note: str = ""


def check(case: Case) -> Row:
    count, found = 0, None
    for number, item in enumerate(case.groups):
        ours, theirs = item.ours(), item.theirs()
        count += len(ours)
        if found is None and (here := compare(ours, theirs, case.fields)):
            found = f"group {number}, {here}"
    if found is None and case.expected is not None and count != case.expected:
        found = f"both made {count} datums, right would be {case.expected}"
    left_out = [name for name in FIELDS if name not in case.fields]
    said = "all 5" if not left_out else f"all but {', '.join(left_out)}"
    return Row(
        case.name,
        sum(len(g.trajectories) for g in case.groups),
        sum(len(g.sampled) for g in case.groups),
        count,
        said,
        found,
    )


def check_centring(name: str, groups: Sequence[Group]) -> Row:
    """The cookbook's way from rewards to datums, all of it, against moot's."""
    theirs = [TrajectoryGroup(item.trajectories, list(item.rewards), [{} for _ in item.rewards]) for item in groups]
    centred = compute_advantages(theirs)
    data, metadata = assemble_training_data(theirs, centred)
    found, widest, count = None, 0.0, 0
    for number, (item, other, values) in enumerate(zip(groups, theirs, centred, strict=True)):
        assert item.advantages.per == "agent"
        totals = other.get_total_rewards()
        gaps = [abs(a - float(b)) for a, b in zip(item.advantages.values, values, strict=True)]
        widest = max([widest, *gaps])
        # float32 holds a reward to half of this, and the mean and the difference are rounded once more each.
        slack = 4 * float(np.finfo(np.float32).eps) * max(1.0, *map(abs, totals))
        ours = item.ours()
        count += len(ours)
        here = compare(
            ours,
            [datum for datum, where in zip(data, metadata, strict=True) if where["group_idx"] == number],
            FIELDS,
            slack,
        )
        if tuple(totals) != item.returns:
            here = f"rewards: moot has {item.returns}, the cookbook {totals}"
        elif max(gaps) > slack:
            here = f"advantages: moot has {item.advantages.values}, the cookbook {values.tolist()}"
        if found is None and here:
            found = f"group {number}, {here}"
    moved = any(value for item in groups if item.advantages.per == "agent" for value in item.advantages.values)
    if found is None and not moved:
        found = "every advantage is 0, so nothing was shown"
    turns = sum(len(item.sampled) for item in groups)
    note = f"advantages within {widest:.0e}"
    return Row(name, sum(len(item.trajectories) for item in groups), turns, count, "all 5, and rewards", found, note)


# ---------------------------------------------------------------- cases by hand


class Writer:
    """Writes steps one after the other and knows the sequence so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.before: list[int] = []

    def says(self, prompt: list[int], new: list[int] | None, tokens: list[int]) -> Writer:
        logprobs = [-0.1 * (i + 1) - 0.01 * len(self.steps) for i in range(len(tokens))]
        self.steps.append(Step(prompt, new, tokens, logprobs))
        self.before = prompt + tokens
        return self

    def fresh(self, prompt: list[int], tokens: list[int]) -> Writer:
        return self.says(prompt, None, tokens)

    def on(self, new: list[int], tokens: list[int]) -> Writer:
        return self.says(self.before + new, new, tokens)


def by_hand() -> list[Case]:
    single = Writer().fresh([1, 2, 3], [4, 5])
    growing = Writer().fresh([1, 2, 3], [4, 5]).on([6, 7], [8]).on([9], [10, 11, 12])
    broken = Writer().fresh([1, 2], [3]).fresh([1, 2, 4], [5, 6]).fresh([7], [8])
    parts = Writer().fresh([1, 2], [3, 4]).on([5], [6]).fresh([9, 9], [8]).on([7, 7], [6, 5])
    silent = Writer().fresh([1, 2, 3], [4, 5]).on([], [6, 7]).on([], [8])
    shorter = Writer().fresh([1, 2, 3, 4], [5, 6]).fresh([1, 2, 3, 4, 5], [6]).fresh([1, 2], [3])
    edited = Writer().fresh([1, 2, 3], [4, 5]).fresh([1, 2, 3, 4, 9, 6], [7]).fresh([0, 2, 3, 4, 9, 6, 7, 8], [1])
    speechless = Writer().fresh([1, 2, 3], []).on([4, 5], [6]).on([7], []).on([], []).on([8], [9])
    mute = Writer().fresh([1, 2, 3], []).on([4], [])
    unprompted = Writer().fresh([], [1, 2, 3]).on([4], [5])
    late = Writer().fresh([], []).on([1, 2], [3])
    written: list[tuple[str, list[Writer], int, bool]] = [
        ("one turn", [single], 1, False),
        ("prompts extend, new part only", [growing], 1, True),
        ("prompts extend, whole", [growing], 1, False),
        ("prompts do not extend", [broken], 3, False),
        ("extend, break, extend; new part only", [parts], 2, True),
        ("extend, break, extend; whole", [parts], 2, False),
        ("nothing new in the prompt, new part only", [silent], 1, True),
        ("nothing new in the prompt, whole", [silent], 1, False),
        ("prompt is shorter than what came before", [shorter], 3, False),
        ("one token of the past is changed", [edited], 3, False),
        ("nothing sampled in some turns, new part only", [speechless], 1, True),
        ("nothing sampled in some turns, whole", [speechless], 1, False),
        ("nothing sampled at all", [mute], 1, True),
        ("first prompt is empty", [unprompted], 1, True),
        ("first turn is empty", [late], 1, False),
        ("three agents, one never spoke", [growing, Writer(), broken], 4, True),
    ]
    values = (0.1, -2.5, 1 / 3)
    return [
        Case(
            name,
            [group([w.steps for w in writers], values[: len(writers)], always if as_new else never)],
            expected=expected,
        )
        for name, writers, expected, as_new in written
    ]


# ---------------------------------------------------------------- cases from chance


def random_steps(chance: np.random.Generator) -> list[Step]:
    # With two or three kinds of tokens, prompts also begin with the past by accident.
    kinds = int(chance.choice([2, 3, 50, 150_000]))

    def some(most: int) -> list[int]:
        return [int(token) for token in chance.integers(0, kinds, size=int(chance.integers(0, most + 1)))]

    steps: list[Step] = []
    before: list[int] = []
    for _ in range(int(chance.integers(1, 8))):
        new: list[int] | None = None
        how = chance.choice(["on", "on", "on", "nothing new", "fresh", "shorter", "edited"]) if before else "fresh"
        if how in ("on", "nothing new"):
            new = some(40) if how == "on" else []
            prompt = before + new
        elif how == "fresh":
            # Two tokens at least: shorter sequences are a known difference.
            prompt = [int(token) for token in chance.integers(0, kinds, size=2)] + some(3 if kinds < 4 else 60)
        elif how == "shorter":
            prompt = before[: max(2, int(chance.integers(0, len(before))))]
        else:
            prompt = before + some(10)
            place = int(chance.integers(0, len(prompt)))
            prompt[place] = (prompt[place] + 1) % kinds
        tokens = some(30) if chance.random() < 0.9 else []
        logprobs = (-chance.exponential(size=len(tokens))).astype(np.float32)
        steps.append(Step(prompt, new, tokens, [float(value) for value in logprobs]))
        before = prompt + tokens
    return steps


def from_chance(count: int = 300) -> list[Case]:
    chance = np.random.default_rng(SEED)
    agents = [[random_steps(chance) for _ in range(int(chance.integers(1, 5)))] for _ in range(count)]
    values = [
        [float(value) for value in chance.normal(scale=chance.choice([0.0, 1e-6, 1.0, 1e4]), size=len(item))]
        for item in agents
    ]
    coins = chance.random(100) < 0.5
    forms: list[tuple[str, Callable[[int], bool]]] = [
        ("new part only", always),
        ("whole", never),
        ("either, by chance", lambda turn: bool(coins[turn % len(coins)])),
    ]
    return [
        Case(f"random, {name}", [group(item, row, form) for item, row in zip(agents, values, strict=True)])
        for name, form in forms
    ]


# ---------------------------------------------------------------- cases from debates


@dataclass
class Recorder:
    """A sampler that notes what it was asked, so that the cookbook's observations do not come from moot's own records."""

    engine: ScriptedEngine
    asked: dict[int, tuple[list[int], Sample]] = field(default_factory=dict)
    """By the identity of the answer's array, which the answer beside it keeps alive."""

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        samples = await self.engine.sample(prompt, params, num_samples)
        # No two answers may share an array.
        samples = [replace(item, tokens=item.tokens.copy()) for item in samples]
        for item in samples:
            self.asked[id(item.tokens)] = ([int(token) for token in prompt], item)
        return samples

    async def compute_logprobs(self, tokens: Sequence[int] | Ints) -> Floats:
        return await self.engine.compute_logprobs(tokens)


def play(
    protocol: Protocol, style: Style, *, agents: int, rounds: int, count: int, max_tokens: int = 2000
) -> list[Group]:
    recorder = Recorder(ScriptedEngine(style=style, seed=SEED))
    rendering = Rendering(recorder.engine.tokenizer)
    asked = [Debate(Question(f"What is {i} and {i + 1}?"), agents, rounds, protocol.rules) for i in range(count)]
    played = asyncio.run(rollout(asked, recorder, rendering, SamplingParams(max_tokens=max_tokens), seed=SEED))
    errors = [item.error for item in played if item.error]
    if errors:
        raise RuntimeError(f"a scripted debate failed: {errors[0]}")
    scores = [score(item.debate, protocol.scoring) for item in played]
    values = advantages(
        zip([item.debate for item in played], scores, strict=True), ESTIMATORS[protocol.scoring.advantage]
    )
    groups = []
    for item, score, value in zip(played, scores, values, strict=True):
        trajectories = []
        for turns in item.debate.turns_by_agent():
            transitions = []
            for i in turns:
                prompt, answer = recorder.asked[id(item.sampled[i].tokens)]
                charged = FAILED if item.debate.turns[i].failed else 0.0
                transitions.append(
                    transition(prompt, answer.tokens.tolist(), answer.logprobs.tolist(), charged, i == turns[-1])
                )
            trajectories.append(trajectory(transitions))
        rewards, returns = (score.rewards, score.returns) if score.per == "agent" else ((), ())
        groups.append(Group(item.debate, item.sampled, value, trajectories, rewards, returns))
    return groups


def turns_in(groups: Sequence[Group]) -> int:
    return sum(len(item.sampled) for item in groups)


def speakers_in(groups: Sequence[Group]) -> int:
    return sum(bool(item.transitions) for every in groups for item in every.trajectories)


def from_debates() -> list[Case]:
    v1, v2 = preset("v1"), preset("v2")
    # The cookbook knows one advantage a trajectory, so v2 gets v1's reward; its own comes last.
    v2_agents = replace(v2, reward="win_rate")
    window = replace(v2_agents, history_rounds=1)
    cases = []
    # Rebuilt prompts never extend: one datum per turn. Growing ones always do: one datum per agent.
    for name, groups in [
        ("v1", play(v1, "well_formed", agents=3, rounds=3, count=40)),
        ("v1, mixed (some abort)", play(v1, "mixed", agents=4, rounds=3, count=40)),
    ]:
        cases.append(Case(name, groups, expected=turns_in(groups)))
    for name, groups in [
        ("v2", play(v2_agents, "well_formed", agents=5, rounds=3, count=40)),
        ("v2, mixed (some fail)", play(v2_agents, "mixed", agents=4, rounds=4, count=40)),
        ("v2, hostile, turns cut short", play(v2_agents, "hostile", agents=3, rounds=3, count=40, max_tokens=150)),
        ("v2, one round", play(v2_agents, "mixed", agents=7, rounds=1, count=20)),
    ]:
        cases.append(Case(name, groups, expected=speakers_in(groups)))
    cases.append(Case("v2, only the last round shown", play(window, "mixed", agents=3, rounds=4, count=20)))
    step_by_step = play(v2, "mixed", agents=5, rounds=3, count=20)
    cases.append(Case("v2, advantages by section", step_by_step, BUT_ADVANTAGES, speakers_in(step_by_step)))
    return cases


# ---------------------------------------------------------------- what is known to differ


def known_differences() -> list[str]:
    """What happens today where the two are known to part. Shown, so that the list above can be seen to be true."""
    lines = []
    warm = [Step([1, 2], None, [3], [-0.5], 1.0), Step([1, 2, 3, 4], None, [5], [-0.25], 0.5)]
    changed = group([warm], [1.0], never)
    apart = [datum for item in warm for datum in group([[item]], [1.0], never).theirs()]
    same = "equal" if compare(changed.ours(), apart, FIELDS) is None else "NOT equal"
    lines.append(
        f"temperature changes between turns: moot {len(changed.ours())} datums, the cookbook {len(changed.theirs())}; "
        f"moot's are {same} to the cookbook's of the two turns as trajectories of their own"
    )
    for what, tokens in (("one token", [7]), ("no token", [])):
        tiny = group([[Step([], None, tokens, [-1.0] * len(tokens))]], [1.0], never)
        try:
            theirs = f"{len(tiny.theirs())} datums"
        except DataValidationError as error:
            theirs = f"an error ({error})"
        lines.append(
            f"a sequence of {what}: moot {[len(datum) for datum in tiny.ours()]} (lengths of its datums), the cookbook {theirs}"
        )
    equal = TrajectoryGroup([trajectory([]) for _ in range(7)], [0.7] * 7, [{} for _ in range(7)])
    silent = Debate(Question("?"), 7)
    (ours,) = advantages([(silent, agent_scores(silent, [0.7] * 7))], ESTIMATORS["center_group"])
    assert ours.per == "agent"
    lines.append(
        f"seven rewards of 0.7 centred: moot {ours.values[0]}, the cookbook {float(compute_advantages([equal])[0][0]):.1e}"
    )
    return lines


# ---------------------------------------------------------------- time


def seconds(build: Callable[[], object], repeats: int = 5) -> float:
    """The best of a few, since anything else on the machine only adds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        build()
        best = min(best, time.perf_counter() - start)
    return best


def timing(cases: Sequence[Case]) -> tuple[float, float, int]:
    groups = [item for case in cases for item in case.groups]
    tokens = sum(len(datum) for item in groups for datum in item.ours())
    return (
        seconds(lambda: [item.ours() for item in groups]),
        seconds(lambda: [item.theirs() for item in groups]),
        tokens,
    )


# ---------------------------------------------------------------- all of it


def inside() -> int:
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    names = ("tinker-cookbook", "tinker", "torch", "numpy", "moot")
    console.print(
        f"{', '.join(f'{name} {version(name)}' for name in names)}, Python {sys.version.split()[0]}, seed {SEED}"
    )

    hand, chance, debates = by_hand(), from_chance(), from_debates()
    rows = [check(case) for case in [*hand, *chance, *debates]]
    rows += [
        check_centring(f"cookbook's centring: {case.name}", case.groups)
        for case in debates
        if all(item.advantages.per == "agent" for item in case.groups)
    ]
    table = Table("case", "trajectories", "turns", "datums", "fields", "verdict")
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        verdict = "DIFFERENT" if row.difference else "equal" + (f", {row.note}" if row.note else "")
        table.add_row(row.name, str(row.trajectories), str(row.turns), str(row.datums), row.fields, verdict)
    console.print(table)

    console.print("Known differences, as they are today:")
    for line in known_differences():
        console.print(f"- {line}")

    console.print(
        "Time to build the same datums, one thread, best of 5 (information only: each side makes its own kind of object):"
    )
    kinds = {
        "random": chance,
        "v1 debates": [case for case in debates if case.name.startswith("v1")],
        "v2 debates": [case for case in debates if case.name.startswith("v2")],
    }
    for name, cases in kinds.items():
        ours, theirs, tokens = timing(cases)
        console.print(
            f"- {name}: {tokens:,} tokens, moot {ours * 1e3:.1f} ms, cookbook {theirs * 1e3:.1f} ms, moot / cookbook = {ours / theirs:.3f}"
        )

    bad = [row for row in rows if row.difference]
    if bad:
        console.print(
            f"{len(bad)} of {len(rows)} cases differ. The first: {bad[0].name}: {bad[0].difference}", style="bold red"
        )
        return 1
    console.print(f"All {len(rows)} cases are equal: {sum(row.datums for row in rows)} datums compared.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--venv", type=Path, default=ROOT / ".cache" / "cookbook-venv", help="where the virtual environment is, or goes"
    )
    parser.add_argument("--python", default="python3.11", help="the interpreter it is made with")
    parser.add_argument("--fresh", action="store_true", help="make it anew")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    return inside() if options.inside else outside(options)


if __name__ == "__main__":
    sys.exit(main())
