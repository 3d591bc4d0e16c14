"""When does sparring pay? A map over two questions: how many problems share a mistake, and how many of the mistakes the
tests catch. The problems, their reasoning mistakes, programs, inputs and outputs are those of the toy problems; the players are
tables, so that a run takes seconds: the map shows where to look with real models and does not replace them.

    python -m benchmarks.experiments.phase_diagram

The generator has a probability for each of its misconceptions (lab/misconceptions.py): one for all problems, one
per type of function, one per structure, or one per problem (SHARED). The discriminator has, per kind of function,
probabilities of ways to draw an input (WAYS); at first most of the probability is on inputs on which hardly any mistake
shows. Both learn by REINFORCE with the group's mean as baseline. Each step plays some problems: all programs against
all suites of three inputs; programs earn the share of the inputs that they pass, suites the share of the programs that
they fail.

Compared with, at equal steps and samples: the discriminator frozen; random inputs drawn anew at each step, as many as
in sparring, and four times as many; tests that come with the problem, the same at each step, one to sixteen (TESTERS);
an oracle that tests every misconception that a problem can have. The tests that come with a problem are fewer than
sparring's, so each of these arms has a second run with more programs per step, such that the number of test executions
is equal. (The executions of the reference are not counted: sparring's 24 tests twice, the others' once.) Random inputs
are drawn from 1 to 9, where the toy problems' constants lie, or from -99 to 99 (RANGES), which seldom hits a
boundary by chance; the discriminator has both, and the numbers in the problem's text.

The score is the share of right programs on the training problems; a program is right if it is right on inputs that no
arm is trained on.
"""

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.report import arguments, write
from lab.grammar import Kind, Op, Spec, code, structure
from lab.misconceptions import MISCONCEPTIONS, Misconception
from lab.problems import toy_specs
from lab.sampling import Input, bland_input, edge_input
from lab.traces import weak_input
from sparring.evaluation.intervals import Interval, interval, print_table

ATTEMPTS, SUITES, TESTS = 8, 8, 3
RUNS = SUITES * TESTS
"""Number of tests for each program, in the arms with a discriminator."""
PROBLEMS, PER_STEP, STEPS = 64, 16, 160
RATES = 2.0, 2.0
"""Learning rates of the generator's and the discriminator's logits."""
FLAWED, WEAK = 0.65, 0.95
"""Initial probabilities, as in the recipe `toy`: that of each possible mistake, and that of an input on which
hardly any mistake shows."""

SHARED: dict[str, Callable[[Spec], Hashable]] = {
    "all problems": lambda spec: None,
    "a type": lambda spec: (spec.kind, spec.collect),
    "a structure": structure,
    "one problem": lambda spec: spec,
}
RANGES = {"1 to 9": range(1, 10), "-99 to 99": range(-99, 100)}
TESTERS: dict[str, Callable[[Spec, Random, range], list[Input]]] = {
    "12 random and 4 at edges": lambda s, r, n: [
        *(fuzzed(s, r, n) for _ in range(12)),
        *(edge_input(s, r) for _ in range(4)),
    ],
    "3 random and 1 at an edge": lambda s, r, n: [*(fuzzed(s, r, n) for _ in range(3)), edge_input(s, r)],
    "3 random": lambda s, r, n: [fuzzed(s, r, n) for _ in range(3)],
    "3 typical, none at a boundary": lambda s, r, n: [bland_input(s, r, False) for _ in range(3)],
    "1 that shows little": lambda s, r, n: [weak_input(s, r)],
}


def fuzzed(spec: Spec, rng: Random, numbers: range) -> Input:
    if spec.kind.takes_list:
        return [rng.choice(numbers) for _ in range(rng.randint(0, 4))]
    return (
        "".join(rng.choice("abeBAE1x") for _ in range(rng.randint(0, 4)))
        if spec.kind.takes_str
        else rng.choice(numbers)
    )


def named(spec: Spec, rng: Random) -> Input:
    """Returns an input with the numbers of the problem's text among small numbers."""
    parts: tuple[Op | None, ...] = (*spec.filters, spec.transform, spec.otherwise, spec.post)
    constants = [op.constant for op in parts if op and op.constant]
    if spec.kind.takes_str or not constants:
        return edge_input(spec, rng)
    if spec.kind is Kind.INT_TO_INT:
        return rng.choice(constants)
    return [rng.choice([*constants, rng.randint(1, 9)]) for _ in range(rng.randint(1, 4))]


def negative(spec: Spec, rng: Random) -> Input:
    if spec.kind.takes_list:
        return [-rng.randint(1, 9) for _ in range(rng.randint(1, 4))]
    return edge_input(spec, rng) if spec.kind.takes_str else -rng.randint(1, 9)


WAYS: tuple[Callable[[Spec, Random], Input], ...] = (
    weak_input,
    *(lambda s, r, n=numbers: fuzzed(s, r, n) for numbers in RANGES.values()),
    bland_input,
    edge_input,
    named,
    negative,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseSettings:
    shared: str
    numbers: str
    judged_by: str
    """Judge of the programs: "sparring", "frozen", "random", "oracle", or one of TESTERS."""
    attempts: int = ATTEMPTS
    drawn: int = RUNS
    """Number of random inputs for a problem."""
    problems: int = PROBLEMS
    steps: int = STEPS
    rates: tuple[float, float] = RATES


def arms(numbers: range) -> dict[str, dict[str, Any]]:
    """Returns the settings of each arm by name."""
    spec = toy_specs("train")[0]
    plain = {by: {"judged_by": by} for by in ("sparring", "frozen", "random", "oracle", *TESTERS)}
    more: dict[str, dict[str, Any]] = {
        "random, four times as many": {"judged_by": "random", "drawn": 4 * RUNS}
    }
    for name, tests in TESTERS.items():
        times = RUNS / len(tests(spec, Random(0), numbers))
        more[f"{name}, equal runs"] = {"judged_by": name, "attempts": round(times * ATTEMPTS)}
    return {**plain, **more}


@cache
def function(spec: Spec) -> Callable[[Input], Input]:
    """Returns the Spec's function. It is executed in this process, since the source is generated by the grammar."""
    namespace: dict[str, Any] = {}
    exec(code(spec), namespace)
    return namespace["f"]


@cache
def biting(spec: Spec) -> tuple[Misconception, ...]:
    """Returns the misconceptions that change the result of a problem's program on some input."""
    probes, right = _probes(spec), function(spec)
    wrong = {m: function(m.distort(spec)) for m in MISCONCEPTIONS}
    return tuple(m for m, f in wrong.items() if any(f(i) != right(i) for i in probes))


@cache
def _probes(spec: Spec) -> tuple[Input, ...]:
    """Returns the inputs of the final score, which are drawn in all ways."""
    rng = Random(f"probes {spec}")
    return tuple(way(spec, rng) for way in WAYS for _ in range(12))


@cache
def showing(spec: Spec) -> tuple[Input, ...]:
    """Returns the oracle's tests: for each misconception that changes a result an input that shows it, and one more
    input."""
    rng, right = Random(f"oracle {spec}"), function(spec)
    shown = []
    for misconception in biting(spec):
        wrong = function(misconception.distort(spec))
        shown += [next(i for i in _probes(spec) if wrong(i) != right(i))]
    return (*shown, edge_input(spec, rng))


class LogitTable:
    """Logits by key, all initialised to the same values."""

    def __init__(self, first: Sequence[float]) -> None:
        self._first, self._logits = list(first), dict[Hashable, list[float]]()

    def __getitem__(self, key: Hashable) -> list[float]:
        return self._logits.setdefault(key, list(self._first))


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def softmax(logits: Sequence[float]) -> list[float]:
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


class World:
    def __init__(self, settings: PhaseSettings, seed: int) -> None:
        # the figures were drawn when the class had a shorter name, which is part of their seed
        self.settings, self.rng = (
            settings,
            Random(f"{seed} {settings}".replace("PhaseSettings(", "Settings(", 1)),
        )
        specs = [spec for spec in toy_specs("train") if biting(spec)]
        self.specs = Random(f"problems {seed}").sample(specs, settings.problems)
        self.beliefs = LogitTable([math.log(FLAWED / (1 - FLAWED))])
        rest = (1 - WEAK) / (len(WAYS) - 1)
        self.ways = LogitTable([math.log(share) for share in (WEAK, *[rest] * (len(WAYS) - 1))])
        tester, numbers = TESTERS.get(settings.judged_by), RANGES[settings.numbers]
        self.static = {
            spec: tester(spec, Random(f"tests {seed} {spec}"), numbers) for spec in self.specs if tester
        }

    def run(self) -> None:
        for _ in range(self.settings.steps):
            for spec in self.rng.sample(self.specs, min(PER_STEP, len(self.specs))):
                self.play(spec)

    def play(self, spec: Spec) -> None:
        """Plays one problem; the generator learns from it, and so does the discriminator in the arm "sparring"."""
        struck = self.mistakes(spec, self.settings.attempts)
        chosen, inputs = self.tests(spec)
        right = [function(spec)(i) for i in inputs]
        outcomes = {}
        for mistakes in set(struck):  # many programs are equal
            wrong = function(_distorted(spec, mistakes))
            outcomes[mistakes] = [wrong(i) == r for i, r in zip(inputs, right, strict=True)]
        passed = [outcomes[mistakes] for mistakes in struck]
        self._learn_beliefs(spec, struck, _less_mean([statistics.fmean(outcomes) for outcomes in passed]))
        if self.settings.judged_by == "sparring":
            suites = [range(s * TESTS, (s + 1) * TESTS) for s in range(SUITES)]
            kills = [statistics.fmean(not all(o[t] for t in suite) for o in passed) for suite in suites]
            self._learn_ways(spec, [[chosen[t] for t in suite] for suite in suites], _less_mean(kills))

    def mistakes(self, spec: Spec, attempts: int) -> list[tuple[Misconception, ...]]:
        chances = [(m, sigmoid(self.beliefs[self._key(m, spec)][0])) for m in biting(spec)]
        return [tuple(m for m, p in chances if self.rng.random() < p) for _ in range(attempts)]

    def tests(self, spec: Spec) -> tuple[list[int], list[Input]]:
        """Returns (ways, inputs); the ways are empty if no discriminator wrote the inputs."""
        by = self.settings.judged_by
        if by in ("sparring", "frozen"):
            ways = self.rng.choices(range(len(WAYS)), softmax(self.ways[spec.kind]), k=RUNS)
            return ways, [WAYS[way](spec, self.rng) for way in ways]
        if by == "random":
            numbers = RANGES[self.settings.numbers]
            return [], [fuzzed(spec, self.rng, numbers) for _ in range(self.settings.drawn)]
        return [], list(showing(spec)) if by == "oracle" else self.static[spec]

    def _learn_beliefs(
        self, spec: Spec, struck: Sequence[Sequence[Misconception]], advantages: list[float]
    ) -> None:
        for m in biting(spec):
            logit = self.beliefs[self._key(m, spec)]
            p = sigmoid(logit[0])
            score = statistics.fmean(a * ((m in s) - p) for a, s in zip(advantages, struck, strict=True))
            logit[0] += self.settings.rates[0] * score

    def _learn_ways(self, spec: Spec, chosen: list[list[int]], advantages: list[float]) -> None:
        logits = self.ways[spec.kind]
        shares = softmax(logits)
        for way, share in enumerate(shares):
            score = statistics.fmean(
                a * (ways.count(way) - TESTS * share) for a, ways in zip(advantages, chosen, strict=True)
            )
            logits[way] += self.settings.rates[1] * score

    def _key(self, misconception: Misconception, spec: Spec) -> Hashable:
        return misconception.summary, SHARED[self.settings.shared](spec)

    def right(self) -> float:
        """Returns the share of right programs, of 32 per problem."""
        drawn = [(spec, _distorted(spec, made)) for spec in self.specs for made in self.mistakes(spec, 32)]
        return statistics.fmean(_is_right(spec, written) for spec, written in drawn)


def _distorted(spec: Spec, mistakes: Sequence[Misconception]) -> Spec:
    for misconception in mistakes:
        spec = misconception.distort(spec)
    return spec


@cache
def _is_right(spec: Spec, written: Spec) -> bool:
    right, wrong = function(spec), function(written)
    return all(right(i) == wrong(i) for i in _probes(spec))


def _less_mean(rewards: list[float]) -> list[float]:
    mean = statistics.fmean(rewards)
    return [reward - mean for reward in rewards]


def share_caught(tests: Callable[[Spec, Random, range], list[Input]], numbers: range) -> float:
    """Returns the share of single mistakes that the tests catch, over the problems in which the mistake changes a
    result."""
    caught = []
    for spec in toy_specs("train"):
        rng, right = Random(f"caught {spec}"), function(spec)
        for m in biting(spec):
            wrong = function(m.distort(spec))
            caught.append(any(wrong(i) != right(i) for i in tests(spec, rng, numbers)))
    return statistics.fmean(caught)


def measured(settings: PhaseSettings, seeds: Sequence[int]) -> Interval:
    found = []
    for seed in seeds:
        world = World(settings, seed)
        world.run()
        found.append(world.right())
    return interval(found)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 6)))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rates", type=float, nargs=2, default=RATES, metavar=("GENERATOR", "DISCRIMINATOR"))
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.steps = options.seeds[:2], 8
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    for numbers, span in RANGES.items():
        caught = {name: share_caught(tests, span) for name, tests in TESTERS.items()}
        for name, share in caught.items():
            print(f"numbers {numbers}: {name}: {share:.2f} of single mistakes caught")
        rows = []
        for arm, own in arms(span).items():
            row: list[object] = [arm]
            for shared in SHARED:
                settings = PhaseSettings(
                    shared=shared, numbers=numbers, steps=options.steps, rates=tuple(options.rates), **own
                )
                found = measured(settings, options.seeds)
                figures[f"{numbers}: {arm}: {shared}"] = found.plain()
                row.append(found)
            rows.append(row)
        print_table(f"right programs, numbers {numbers}", ["judged by", *SHARED], rows)
        figures |= {f"{numbers}: {name}: caught": share for name, share in caught.items()}
    figures["seconds"] = time.perf_counter() - start
    write(options.json, figures, {})
    if options.json:
        draw(figures, options.json.with_suffix(".svg"))


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draws the shares of right programs with their intervals over how many problems share a mistake, one panel for
    each range of random inputs."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    named = {
        "sparring": "a discriminator that learns",
        "frozen": "the same one, frozen",
        "random": f"{RUNS} random inputs, drawn anew",
        "oracle": "tests of every mistake",
        "3 random and 1 at an edge": "3 random inputs and 1 at an edge, always the same",
        "1 that shows little": "1 that shows little, always the same",
    }
    figure = Figure(figsize=(11, 4.5))
    panels = figure.subplots(1, len(RANGES), sharey=True)
    for panel, numbers in zip(panels, RANGES, strict=True):
        for judged_by, label in named.items():
            found = [figures[f"{numbers}: {judged_by}: {shared}"] for shared in SHARED]
            means, widths = ([of[name] for of in found] for name in ("mean", "half_width"))
            width = 3 if judged_by == "sparring" else 1
            panel.errorbar(list(SHARED), means, widths, label=label, linewidth=width, capsize=3, marker="o")
        panel.set(title=f"random numbers from {numbers}", xlabel="who shares a mistake")
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="right programs, ± 95%")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=9)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    with rc_context({"svg.hashsalt": "phase diagram"}):  # equal figures give equal files
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
