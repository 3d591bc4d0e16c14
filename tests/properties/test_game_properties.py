"""What holds in every game, whoever plays and whatever the sandbox says."""

import asyncio
import json
import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.episodes import EpisodeRunner, PolicyClient
from actors.loading import LocalPolicy
from sparring.core.episode import Episode, Trajectory
from sparring.core.interfaces import Sampling, SandboxFailure
from sparring.core.play import PlayRequest
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits, OutputTest, Status, Test, Verdict
from sparring.games import GameRules
from sparring.games.boards.rules import ILLEGAL, KuhnRules, TicTacToeRules, evaluation_matches
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.games.rps.payoffs import EDGE
from sparring.games.rps.rules import RpsRules
from sparring.games.rules import matches
from tests.playing import Letters, ScriptedPolicy, a_problem, by_player, letters, sample_of

examples = settings(max_examples=100, deadline=None)

PROBLEM = a_problem(
    baseline_tests=("assert f(2) == 4", "assert f(0) == 0", "assert f(-3) == -6", "assert f(1) == 2")
)
REMEMBERED = ("print(1)", "def f(n): return 0")
TEXTS = [
    "def f(n): return n * 2", "```python\nprint(1)\n```", "print(2)", "1 / 0", "def f(n) return", "", "\n", "é🙂",
    "assert f(1) == 2\nassert f(3) == 7\nassert f(1) == 2", "f(1)\nf(2)\nf(x)", "import time",
    "<reasoning>r</reasoning><answer>print(1)</answer>", "<answer>", "pass", "bet", "raise", "7", *"123456789",
]  # fmt: skip
KIND = {
    "tictactoe": [*"123456789"] * 3,
    "kuhn": ["pass", "bet"] * 3,
    "rps": ["rock", "paper", "scissors"] * 3,
    "output_prediction": ["print(1)", "print(2)", "7", "8"] * 5,
}
"""What is said most often: else few matches would get beyond their first move."""


class Drawn:
    """A sandbox that answers by lot, always the same to the same question, and fails now and then."""

    def __init__(self, seed: int, failing: float) -> None:
        self._seed, self._failing = seed, failing

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        await asyncio.sleep(0)
        rng = Random(derive_seed(self._seed, program, repr(tests), run))
        if rng.random() < self._failing:
            raise SandboxFailure("by lot")
        return [self._verdict(test, rng) for test in tests]

    def _verdict(self, test: Test, rng: Random) -> Verdict:
        statuses = [s for s in Status if not s.is_infrastructure()]
        status = rng.choice([Status.PASSED] * 8 + statuses)
        if isinstance(test, OutputTest):
            return Verdict(status=status, stdout=rng.choice(["7\n"] * 6 + ["8\n", "", "a\nb"]))
        value = None if test.startswith("assert") or status is not Status.PASSED else str(rng.randrange(3))
        return Verdict(status=status, value=value, cpu_ms=rng.choice([1.0, 900.0]))

    def stats(self) -> dict[str, float]:
        return {}


weights = st.floats(0, 4)
rules_of = {
    "multistage": st.builds(
        MultistageRules, test_format=st.sampled_from(["strict", "relabel", "input_only"]), max_tests=st.integers(1, 4)
    ),
    "code_execution": st.just(CodeExecutionRules())
    | st.builds(CodeExecutionRules, gate_on_tests=st.just(True)),
    "output_prediction": st.builds(OutputPredictionRules, self_play=st.booleans()),
    "unit_tests": st.builds(
        UnitTestsRules,
        base_weight=weights,
        perfect_weight=weights,
        max_tests=st.integers(1, 6),
        answer_format=st.sampled_from(["direct", "reasoning"]),
    ),
    "code_golf": st.builds(CodeGolfRules, show_best=st.booleans()),
    "tictactoe": st.just(TicTacToeRules()),
    "kuhn": st.just(KuhnRules()),
    "rps": st.just(RpsRules()),
}  # fmt: skip
all_rules = st.one_of(*rules_of.values())


def bounds(rules: GameRules) -> tuple[float, float]:
    """The range of rewards that each game documents."""
    match rules:
        case UnitTestsRules():
            return 0.0, rules.base_weight + rules.perfect_weight
        case CodeGolfRules():
            golf = rules.rewards
            worst = max(golf.syntax_error_penalty, golf.runtime_error_penalty, golf.limit_penalty)
            return -worst, golf.pass_weight + golf.length_weight
        case TicTacToeRules() | KuhnRules():
            return ILLEGAL[rules.kind], 1.0 if rules.kind == "tictactoe" else 2.0
        case RpsRules():
            return -3.0, EDGE
    return -1.0, 1.0


def problems_of(rules: GameRules) -> list[Problem]:
    if isinstance(rules, TicTacToeRules | KuhnRules):
        return [*matches(rules.kind, 2), *evaluation_matches(rules.kind, 1)]
    return [PROBLEM]


def run(rules: GameRules, draw_seed: int, *, failing: float = 0.1, attempts: int = 3, address: int = 1,
        max_tokens: int = 200, illegal: bool = True) -> list[Episode]:  # fmt: skip
    """Everyone says something by lot; what is said depends on the sampling seed and the prompt alone."""
    style = Letters()
    texts = KIND.get(rules.kind, []) + (TEXTS if illegal else [])

    def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
        rng = Random(derive_seed(sampling.seed or 0, *prompt))
        if not illegal and rules.kind == "tictactoe":
            seen = "".join(map(chr, prompt)).split("\0")[-1]
            return style.completion(str(rng.choice([i for i in range(9) if seen[i] == "0"]) + 1))
        return style.completion(rng.choice(texts))

    policies = sorted(set(rules.seats.values()))
    speaker = PolicyClient(
        engines=[LocalPolicy(ScriptedPolicy(script), 1.0)],
        format=style,
        decode=letters,
        max_tokens=max_tokens,
    )
    runner = EpisodeRunner(
        rules.game(), Drawn(draw_seed, failing), dict.fromkeys(policies, speaker), rules.seats, draw_seed
    )
    request = PlayRequest(
        address=("step", address),
        problems=tuple(problems_of(rules)),
        attempts=dict.fromkeys(rules.seats, attempts),
        temperatures=dict.fromkeys(rules.seats, 1.0),
        memory={"double": REMEMBERED},
    )
    return asyncio.run(runner.play(request))[0].episodes


def trajectories(episodes: Sequence[Episode]) -> list[Trajectory]:
    return [t for e in episodes for t in e.trajectories]


# ---------------------------------------------------------------------- every game
@pytest.mark.parametrize("kind", rules_of)
@examples
@given(st.data(), st.integers(0, 2**40), st.sampled_from([0.0, 0.2, 1.0]), st.integers(1, 200))
def test_rewards_are_finite_in_their_range_and_absent_where_the_sandbox_failed(
    kind, data, seed, failing, max_tokens
):
    rules = data.draw(rules_of[kind])
    low, high = bounds(rules)
    for trajectory in trajectories(run(rules, seed, failing=failing, max_tokens=max_tokens)):
        if trajectory.reward is None:
            assert "sandbox_failure" in trajectory.components or not {"no_valid_test", "bet"}.isdisjoint(
                trajectory.components
            )
            continue
        assert "sandbox_failure" not in trajectory.components
        assert low - 1e-9 <= trajectory.reward <= high + 1e-9
        assert all(math.isfinite(value) for value in trajectory.components.values())


@pytest.mark.parametrize("kind", rules_of)
@examples
@given(st.data(), st.integers(0, 2**40), st.integers(1, 200))
def test_every_judged_trajectory_is_one_token_sequence_no_longer_than_the_game_says(
    kind, data, seed, max_tokens
):
    rules = data.draw(rules_of[kind])
    for problem, episode in zip(problems_of(rules), run(rules, seed, max_tokens=max_tokens), strict=True):
        for trajectory in (t for t in episode.trajectories if t.reward is not None):
            sample = sample_of(trajectory)
            assert sum(sample.sampled) == sum(sample.trained) == trajectory.token_count > 0
            last = trajectory.turns[-1]
            assert list(sample.tokens) == [*last.prompt_tokens, *last.completion.tokens]
            if max_tokens >= max(map(len, REMEMBERED)):  # as a player that wrote them has
                longest = rules.game().longest(problem, trajectory.player, Letters(), max_tokens)
                assert len(sample.tokens) <= longest


@examples
@given(all_rules, st.integers(0, 2**40), st.integers(1, 4))
def test_attempts_of_a_player_are_numbered_apart(rules, seed, attempts):
    for episode in run(rules, seed, attempts=attempts):
        for player in {t.player for t in episode.trajectories}:
            numbers = [t.attempt for t in by_player(episode, player)]
            assert len(numbers) == len(set(numbers))
            if rules.kind != "output_prediction":
                assert set(numbers) <= set(range(attempts))


@examples
@given(all_rules, st.integers(0, 2**40))
def test_the_same_request_gives_the_same_episodes(rules, seed):
    first, again = run(rules, seed), run(rules, seed)
    assert first == again
    json.dumps([[t.components for t in e.trajectories] for e in first])


@examples
@given(st.sampled_from([KuhnRules(), TicTacToeRules()]), st.integers(0, 2**40))
def test_another_step_gives_other_matches(rules, seed):
    both = [run(rules, seed, attempts=4, address=a, illegal=False)[:2] for a in (1, 2)]
    said = [[t.artifact for t in trajectories(episodes)] for episodes in both]
    assert said[0] != said[1]


# ---------------------------------------------------------------------- zero sum
@examples
@given(
    st.one_of(rules_of["tictactoe"], rules_of["kuhn"]), st.integers(0, 2**40), st.integers(1, 5)
)  # fmt: skip
def test_matches_without_illegal_moves_sum_to_zero(rules, seed, attempts):
    for episode in run(rules, seed, attempts=attempts, illegal=False)[:2]:
        assert len(episode.trajectories) == 2 * attempts
        for attempt in range(attempts):
            pair = [t for t in episode.trajectories if t.attempt == attempt]
            assert sum(t.reward or 0.0 for t in pair) == 0.0
            assert [t.components["illegal"] for t in pair] == [0.0, 0.0]
            assert sum(t.components["win"] - t.components["loss"] for t in pair) == 0.0


@examples
@given(st.one_of(rules_of["tictactoe"], rules_of["kuhn"]), st.integers(0, 2**40))
def test_an_illegal_move_costs_the_offender_alone(rules, seed):
    for episode in run(rules, seed, attempts=4)[:2]:
        for attempt in range(4):
            pair = [t for t in episode.trajectories if t.attempt == attempt]
            offenders = [t for t in pair if t.components["illegal"]]
            assert len(offenders) <= 1
            for offender in offenders:
                assert offender.reward == ILLEGAL[rules.kind]
                others = [t for t in pair if t is not offender]
                assert all(t.reward == 0 for t in others)


@examples
@given(rules_of["output_prediction"], st.integers(0, 2**40), st.integers(1, 4))
def test_each_program_and_its_predictions_sum_to_zero(rules, seed, attempts):
    (episode,) = run(rules, seed, attempts=attempts)
    groups = {g[0].group: [t.reward for t in g] for g in episode.groups("opponent")}
    for author in by_player(episode, "author"):
        asked = str(author.attempt) in groups
        assert asked == bool(author.components.get("valid"))
        if asked:
            predicted = groups[str(author.attempt)]
            assert len(predicted) == attempts
            assert author.reward + sum(predicted) / attempts == pytest.approx(0.0)
        elif author.reward is not None:
            assert author.reward == -1
