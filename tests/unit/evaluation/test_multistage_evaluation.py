import asyncio
from collections.abc import Sequence

import pytest

from core.episode import Episode, Trajectory
from core.interfaces import SandboxFailure
from core.problem import Problem
from core.verdict import Limits, Status, Verdict
from evaluation.evaluator import Scores, load_bank, save_bank
from evaluation.multistage import MultistageEvaluator

PROBLEMS = [
    Problem(
        id=name,
        description="",
        function_signature="def f():",
        baseline_tests=("baseline",),
        reference_solution="",
        hidden_tests=hidden,
    )
    for name, hidden in (("p", ("t1", "t2")), ("q", ()))
]
LIMITS = Limits(cpu_s=1.0)


class Programs:
    """A sandbox that knows which tests each program fails."""

    def __init__(self, failures: dict[str, set[str]]) -> None:
        self.failures = failures
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def judge(
        self, program: str, tests: Sequence[str], *, limits=None, run=0, language="python"
    ) -> list[Verdict]:
        assert limits == LIMITS
        self.asked.append((program, tuple(tests)))
        if program not in self.failures:
            raise SandboxFailure("broken")
        wrong = self.failures[program]
        return [Verdict(status=Status.WRONG_ANSWER if t in wrong else Status.PASSED) for t in tests]

    def stats(self) -> dict[str, float]:
        return {}


def evaluator(sandbox: Programs) -> MultistageEvaluator:
    return MultistageEvaluator(PROBLEMS, sandbox, LIMITS, suites=2, bank_programs=3)


def episode(
    problem: str, programs: Sequence[str], suites: Sequence[tuple[float, list[str]] | None] = ()
) -> Episode:
    """suites: (validity, valid tests), None where the sandbox could not judge."""
    trajectories = [
        Trajectory(player="generator", attempt=i, turns=[], artifact=p) for i, p in enumerate(programs)
    ]
    for i, suite in enumerate(suites):
        components = {"validity": suite[0]} if suite else {}
        trajectories.append(Trajectory(player="discriminator", attempt=i, turns=[], components=components))
    info = {"valid_tests": [suite[1] if suite else None for suite in suites]}
    return Episode(problem_id=problem, trajectories=trajectories, info=info)


def score(episodes: Sequence[Episode], bank, **failures: set[str]) -> Scores:
    return asyncio.run(evaluator(Programs(failures)).scores([episodes], bank))


# ---------------------------------------------------------------------- requests
def test_evaluation_is_greedy_for_the_generator_and_sampled_for_the_discriminator():
    (request,) = evaluator(Programs({})).requests({})
    assert request.problems == tuple(PROBLEMS)
    assert request.attempts == {"generator": 1, "discriminator": 2}
    assert request.temperatures == {"generator": 0.0, "discriminator": 1.0}
    assert [request] == evaluator(Programs({})).requests({})


def test_the_bank_is_sampled_without_suites():
    request = evaluator(Programs({})).bank_request()
    assert request.attempts == {"generator": 3, "discriminator": 0}
    assert request.temperatures["generator"] > 0
    assert request.address != evaluator(Programs({})).requests({})[0].address


# ---------------------------------------------------------------------- the bank
def test_the_bank_holds_each_wrong_program_once():
    sandbox = Programs({"right": set(), "wrong": {"t2"}, "worse": {"t1", "t2"}})
    episodes = [episode("p", ["wrong", "right", "wrong", "worse"]), episode("q", ["right"])]
    bank = asyncio.run(evaluator(sandbox).bank_of(episodes))
    assert bank == {"p": ["wrong", "worse"], "q": []}
    assert len(sandbox.asked) == 4


def test_hidden_tests_decide_where_there_are_any_and_baseline_tests_elsewhere():
    sandbox = Programs({"x": {"baseline"}})
    bank = asyncio.run(evaluator(sandbox).bank_of([episode("p", ["x"]), episode("q", ["x"])]))
    assert bank == {"p": [], "q": ["x"]}


def test_a_bank_survives_its_file(tmp_path):
    bank = {"p": ["def f():\n    return 'ü'\n"], "q": []}
    save_bank(tmp_path / "bank.json", bank)
    assert load_bank(tmp_path / "bank.json") == bank


# ---------------------------------------------------------------------- scores
def test_the_generators_scores_by_hand():
    scores = score([episode("p", ["half"]), episode("q", ["right"])], {}, half={"t1"}, right=set())
    assert scores.values["generator_pass_rate"] == 0.5
    assert scores.values["generator_test_rate"] == pytest.approx((0.5 + 1.0) / 2)
    assert scores.values["test_validity"] == scores.values["kill_rate"] == 0.0
    assert scores.tasks == {"p": 0.5, "q": 1.0}


def test_the_discriminators_scores_by_hand():
    """Four (suite, wrong program) pairs: k1 kills a, nothing kills b, an empty suite kills nothing."""
    scores = score([episode("p", [], [(1.0, ["k1", "k2"]), (0.0, [])])], {"p": ["a", "b"]}, a={"k1"}, b=set())
    assert scores.values["test_validity"] == 0.5
    assert scores.values["kill_rate"] == 0.25


def test_problems_without_a_bank_say_nothing_of_the_kill_rate():
    scores = score(
        [episode("p", [], [(1.0, ["k1"])]), episode("q", [], [(1.0, ["k1"])])], {"p": ["a"]}, a={"k1"}
    )
    assert scores.values["kill_rate"] == 1.0


def test_a_suite_that_the_sandbox_could_not_judge_is_left_out():
    scores = score([episode("p", [], [(1.0, ["k1"]), None])], {"p": ["a"]}, a={"k1"})
    assert scores.values["test_validity"] == scores.values["kill_rate"] == 1.0


def test_a_sandbox_failure_is_no_score():
    """What cannot be judged is left out of the mean, and counted."""
    scores = score([episode("p", ["unknown"])], {})
    assert scores.values["unjudged"] >= 1
    assert scores.values["generator_pass_rate"] == 0.0


def test_nothing_played_scores_nothing():
    assert set(score([], {}).values.values()) == {0.0}


def test_the_best_is_seven_parts_generator_and_three_parts_validity():
    scores = score(
        [episode("p", ["half"], [(0.8, [])]), episode("q", ["right"])], {}, half={"t1"}, right=set()
    )
    assert scores.combined == pytest.approx(0.7 * 0.5 + 0.3 * 0.8)
    assert set(scores.values) == {
        "generator_pass_rate",
        "generator_test_rate",
        "test_validity",
        "kill_rate",
        "unjudged",
    }
