import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparring.core.episode import Episode, Trajectory
from sparring.core.evaluation import Scores
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, Status, Verdict
from sparring.games.multistage.evaluator import MultistageEvaluator
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from tests.playing import play, player
from tests.recorded import DOUBLE

REFERENCE = "reference"
K1, K2, BREAKS = "assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"
PROBLEMS = [
    replace(DOUBLE, id=name, baseline_tests=("baseline",), reference_solution=REFERENCE, hidden_tests=hidden)
    for name, hidden in (("p", ("t1", "t2")), ("q", ()))
]
LIMITS = Limits(cpu_s=1.0)
RULES = MultistageRules(sandbox_limits=LIMITS)


class Programs:
    """A sandbox that knows which tests each program fails."""

    def __init__(self, failures: dict[str, set[str]]) -> None:
        self.failures = {REFERENCE: set(), **failures}
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def judge(
        self, program: str, tests: Sequence[str], *, limits=None, run=0, language="python"
    ) -> list[Verdict]:
        assert limits == LIMITS
        self.asked.append((program, tuple(tests)))
        if program not in self.failures or BREAKS in tests:
            raise SandboxFailure("broken")
        wrong = self.failures[program]
        return [Verdict(status=Status.WRONG_ANSWER if t in wrong else Status.PASSED) for t in tests]

    def stats(self) -> dict[str, float]:
        return {}


def evaluator(sandbox: Programs, **rules) -> MultistageEvaluator:
    changed = RULES.model_copy(update=rules)
    return MultistageEvaluator(PROBLEMS, sandbox, changed, suites=2, bank_programs=3)


def episode(
    problem: str, programs: Sequence[str], suites: Sequence[tuple[float, dict[str, float]] | None] = ()
) -> Episode:
    """suites: (validity, valid tests), None where the sandbox could not judge."""
    made = [Trajectory(player="generator", attempt=i, turns=[], artifact=p) for i, p in enumerate(programs)]
    for i, suite in enumerate(suites):
        validity = {"validity": suite[0]} if suite else {}
        valid = suite[1] if suite else {K1: 1.0}
        made.append(
            Trajectory(player="discriminator", attempt=i, turns=[], components=validity, valid_tests=valid)
        )
    return Episode(problem_id=problem, trajectories=made)


def score(episodes: Sequence[Episode], bank, **failures: set[str]) -> Scores:
    return asyncio.run(evaluator(Programs(failures)).scores([episodes], bank))


# ---------------------------------------------------------------------- requests
def test_evaluation_is_greedy_for_the_generator_and_sampled_for_the_discriminator():
    (request,) = evaluator(Programs({})).requests({})
    assert request.problems == tuple(PROBLEMS)
    assert request.attempts == {"generator": 1, "discriminator": 2}
    assert request.temperatures == {"generator": 0.0, "discriminator": 1.0}
    assert [request] == evaluator(Programs({})).requests({})


def test_where_programs_are_shown_a_suite_is_written_against_each_of_the_bank():
    (request,) = evaluator(Programs({}), attack="program").requests({"p": ["a", "b"]})
    assert request.attempts == {"generator": 1, "discriminator": 4}
    assert request.past == {"p": {"generator": ("a", "b")}}


def test_and_kills_count_of_that_one():
    """Suites 0 and 3 were written against the greedy program, 1 against a, 2 against b."""
    white = evaluator(Programs({"a": {K1}, "b": {K1}, "greedy": set()}), attack="program")
    played = [episode("p", ["greedy"], [(1.0, {test: 1.0}) for test in (K1, K1, K2, K1)])]
    assert asyncio.run(white.scores([played], {"p": ["a", "b"]})).values["kill_rate"] == 0.5


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


# ---------------------------------------------------------------------- scores
def test_the_generators_scores_by_hand():
    scores = score([episode("p", ["half"]), episode("q", ["right"])], {}, half={"t1"}, right=set())
    assert scores.values["generator_pass_rate"] == 0.5
    assert scores.values["generator_test_rate"] == pytest.approx((0.5 + 1.0) / 2)
    assert scores.missing == ("test_validity", "kill_rate")  # no suite was written
    assert scores.tasks == {"p": 0.5, "q": 1.0}


def test_the_discriminators_scores_by_hand():
    """Four (suite, wrong program) pairs: K1 kills a, nothing kills b, an empty suite kills nothing."""
    played = [episode("p", [], [(1.0, {K1: 1.0, K2: 1.0}), (0.0, {})])]
    scores = score(played, {"p": ["a", "b"]}, a={K1}, b=set())
    assert (scores.values["test_validity"], scores.values["kill_rate"]) == (0.5, 0.25)


def test_problems_without_a_bank_say_nothing_of_the_kill_rate():
    scores = score([episode(i, [], [(1.0, {K1: 1.0})]) for i in ("p", "q")], {"p": ["a"]}, a={K1})
    assert scores.values["kill_rate"] == 1.0


def test_a_mean_over_nothing_is_no_score():
    """No wrong program, so no kill rate; no judged suite, so no validity, and no measure of the best checkpoint."""
    scores = score([episode("p", [], [(1.0, {K1: 1.0})])], {"p": []}, a={K1})
    assert "kill_rate" not in scores.values and "kill_rate" in scores.missing
    assert scores.values["test_validity"] == 1.0
    scores = score([episode("p", [], [None])], {"p": ["a"]}, a={K1})
    assert not scores.values.keys() & {"test_validity", "kill_rate"}
    assert scores.combined is None  # nor was a program judged


def test_a_suite_that_the_sandbox_could_not_judge_is_left_out():
    scores = score([episode("p", [], [(1.0, {K1: 1.0}), None])], {"p": ["a"]}, a={K1})
    assert scores.values["test_validity"] == scores.values["kill_rate"] == 1.0
    assert scores.values["unjudged"] == 1.0


def test_a_limit_kills_only_where_the_reference_is_fast():
    """As in the reward (rewards.outcome)."""

    class Slow(Programs):
        async def judge(self, program, tests, **options) -> list[Verdict]:
            return [Verdict(status=Status.TIME_LIMIT) for _ in tests]

    for tests, rate in (({K2: 900.0}, 0.0), ({K1: 1.0, K2: 900.0}, 1.0)):
        played = [episode("p", [], [(1.0, tests)])]
        values = asyncio.run(evaluator(Slow({})).scores([played], {"p": ["slow"]})).values
        assert values["kill_rate"] == rate


def test_pairs_that_the_sandbox_could_not_judge_are_counted():
    played = [episode("p", [], [(1.0, {K1: 1.0}), (1.0, {BREAKS: 1.0})])]
    scores = score(played, {"p": ["a", "b"]}, a={K1}, b={K1})
    assert (scores.values["kill_rate"], scores.values["unjudged"]) == (1.0, 2.0)


def test_no_test_is_confirmed_again():
    """Play did it: the evaluator asks of the wrong programs only."""
    sandbox = Programs({"a": {K1}})
    asyncio.run(evaluator(sandbox).scores([[episode("p", [], [(1.0, {K1: 1.0})])]], {"p": ["a"]}))
    assert sandbox.asked == [("a", (K1,))]


def test_a_sandbox_failure_is_no_score():
    scores = score([episode("p", ["unknown"])], {})
    assert scores.values["unjudged"] >= 1 and "generator_pass_rate" in scores.missing


def test_nothing_played_scores_nothing():
    assert score([], {}).values == {"unjudged": 0.0} and score([], {}).combined is None


def test_the_best_is_seven_parts_generator_and_three_parts_validity():
    played = [episode("p", ["half"], [(0.5, {})]), episode("q", ["right"])]
    scores = score(played, {}, half={"t1"}, right=set())
    assert scores.combined == pytest.approx(0.7 * 0.5 + 0.3 * 0.5)


def test_from_play_to_scores(sandbox):
    """What play has confirmed is what the bank's programs meet."""
    double = DOUBLE.reference_solution
    problem = replace(DOUBLE, baseline_tests=("assert f(0) == 0",))
    suite = "assert f(1) == 2\nassert f(2) == 5\nassert f(3) == 6"
    seats = [player("generator", lambda *_: double), player("discriminator", lambda *_: suite)]
    rules = MultistageRules(test_format="strict", sandbox_limits=Limits(cpu_s=0.2, wall_s=3.0))
    played = play(MultistageGame(rules), problem, seats, sandbox)
    evaluator = MultistageEvaluator([problem], sandbox, rules, suites=1, bank_programs=1)
    bank = {"double": ["def f(n): return n + 1", double]}
    values = asyncio.run(evaluator.scores([[played]], bank)).values
    assert (values["generator_pass_rate"], values["kill_rate"]) == (1.0, 0.5)
    assert values["test_validity"] == pytest.approx(2 / 3)
