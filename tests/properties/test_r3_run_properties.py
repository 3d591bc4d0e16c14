"""Properties of the code golf requirements (R3) about curricula, sampling and evaluation, by their numbers."""

import asyncio
import re
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.settings import TransformersEngineSettings
from actors.transformers_policy import TransformersPolicy
from configs.schema import Config
from sparring.core.episode import Completion, Episode, Trajectory
from sparring.core.evaluation import EvaluationSettings
from sparring.core.interfaces import Sampling, SandboxFailure
from sparring.core.verdict import Status, Verdict
from sparring.curriculum.curriculum import Curriculum, Schedule
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.evaluator import SolverEvaluator
from sparring.problems.loader import ProblemFileError
from sparring.runtime.build import ordered_ids
from sparring.runtime.problem_sets import load_splits
from tests.datasets import problem_file
from tests.learning import VOCABULARY, one_torch_thread, save_tiny_model
from tests.playing import a_problem

examples = settings(max_examples=100, deadline=None)


# ---------------------------------------------------------------------- curriculum
difficulties = st.lists(st.integers(0, 50), min_size=1, max_size=40)


def played(levels: list[int], per_step: int, steps: int) -> list[list[int]]:
    """Difficulties of each step's problems."""
    by_id = {f"p{i}": level for i, level in enumerate(levels)}
    config = Config.model_validate(
        {
            "game": {"kind": "unit_tests"},
            "generator": {"model": "a"},
            "problems": {"file": "p.json"},
            "curriculum": {"order": "difficulty", "problems_per_step": per_step, "n_generator_steps": steps},
        }
    )
    problems = [a_problem(id=i, description=i, difficulty=d) for i, d in by_id.items()]
    curriculum = Curriculum(**config.curriculum_arguments(ordered_ids(config, problems)))
    found = []
    while (assignment := curriculum.next()) is not None:
        found.append([by_id[i] for i in assignment.problem_ids])
        curriculum.observe(assignment.step, {})
    return found


# R3, property 26: initial task difficulty. R3, property 27: difficulty progression monotonicity.
@examples
@given(difficulties, st.integers(1, 12), st.integers(1, 30))
def test_steps_go_from_the_easiest_to_the_hardest_and_never_back(levels, per_step, steps):
    found = played(levels, per_step, steps)
    size = min(per_step, len(levels))
    assert len(found) == steps and all(len(step) == size for step in found)
    means = [sum(step) / size for step in found]
    assert means == sorted(means) and means[0] == min(means)
    for low, high in pairwise(found):
        assert all(a <= b for a, b in zip(sorted(low), sorted(high), strict=True))
    assert sorted(found[0]) == sorted(levels)[:size]
    if steps > 1:
        assert sorted(found[-1]) == sorted(levels)[-size:]


@examples
@given(
    st.integers(1, 12), st.integers(0, 5), st.integers(0, 5), st.lists(st.integers(1, 5), min_size=1, max_size=5)
)  # fmt: skip
def test_with_one_policy_there_are_its_steps_only(steps, others, both, stages):
    schedule = Schedule(
        n_generator_steps=steps, n_discriminator_steps=others, k_alternating_steps=both, stages=tuple(stages)
    )
    curriculum = Curriculum(schedule, ("p",), 1, policies=("generator",), stages=(0,))
    assert curriculum.total_steps == steps
    for step in range(1, steps + 1):
        assignment = curriculum.next()
        assert assignment is not None
        assert (assignment.stage, assignment.learning, assignment.step) == (0, ("generator",), step)
        assert curriculum.is_last_of_stage(step) == (step == steps)
        curriculum.observe(step, {})
    assert curriculum.next() is None


# ---------------------------------------------------------------------- sampling
@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def generate(policy: TransformersPolicy, *asked: tuple[Sequence[int], Sampling]) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        return list(await asyncio.gather(*(policy.generate(prompt, how) for prompt, how in asked)))

    with one_torch_thread():
        return asyncio.run(all_at_once())


def how(seed: int, temperature: float, max_tokens: int = 8) -> Sampling:
    return Sampling(max_tokens=max_tokens, stop_token_ids=(), temperature=temperature, seed=seed)


def new_policy(model: Path) -> TransformersPolicy:
    return TransformersPolicy(str(model), TransformersEngineSettings(max_model_len=64))


prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)


# R3, property 11: sampling diversity. R3, property 29: sampling strategy diversity.
def test_greedy_and_sampled_completions_differ_with_high_probability(model):
    policy, rng = new_policy(model), Random(0)
    tasks = [[rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))] for _ in range(150)]
    greedy, again, one, other = (
        [c.tokens for c in generate(policy, *((p, how(seed, t)) for p in tasks))]
        for seed, t in ((1, 0.0), (2, 0.0), (1, 1.0), (2, 1.0))
    )
    assert greedy == again, "greedy has no seed"
    for pair in ((greedy, one), (greedy, other), (one, other)):
        assert sum(a != b for a, b in zip(*pair, strict=True)) > 0.95 * len(tasks)


# R3, property 30: batch inference consistency.
def test_a_batch_gives_what_each_task_gives_alone(model):
    policy = new_policy(model)

    @examples
    @given(
        st.lists(
            st.tuples(prompts, st.integers(0, 9), st.sampled_from([0.0, 0.7, 1.0])), min_size=2, max_size=4
        )
    )
    def holds(tasks):
        asked = [(prompt, how(seed, temperature, 3)) for prompt, seed, temperature in tasks]
        for (task,), together in zip(([a] for a in asked), generate(policy, *asked), strict=True):
            (alone,) = generate(policy, task)
            assert alone.tokens == together.tokens
            assert alone.logprobs == pytest.approx(together.logprobs, abs=1e-4)

    holds()


# ---------------------------------------------------------------------- evaluation
# R3, property 35: aggregate metric correctness.
@examples
@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(-4, 4), st.lists(st.booleans(), min_size=1, max_size=4), st.booleans()
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_mean_is_the_sum_over_the_tasks_by_their_number(results):
    class Known:
        async def judge(self, program, tests, **_):
            _, passed, fails = results[int(program)]
            if fails:
                raise SandboxFailure("by lot")
            statuses = [Status.PASSED if p else Status.WRONG_ANSWER for p in passed]
            return [Verdict(status=s) for s in statuses]

    problems = [a_problem(id=f"p{i}") for i in range(len(results))]
    episodes = [
        Episode(
            problem_id=f"p{i}",
            trajectories=[
                Trajectory(player="generator", attempt=0, turns=[], artifact=str(i), reward=reward)
            ],
        )
        for i, (reward, *_) in enumerate(results)
    ]
    sandbox: Any = Known()
    evaluator = SolverEvaluator(problems, sandbox, CodeExecutionRules(), EvaluationSettings())
    scores = asyncio.run(evaluator.scores([episodes], None))
    rewards = [r for r, _, _ in results if r is not None]
    shares = {f"p{i}": sum(p) / len(p) for i, (_, p, fails) in enumerate(results) if not fails}
    expected = pytest.approx(sum(rewards) / len(rewards)) if rewards else None
    assert scores.values.get("reward") == expected
    assert scores.tasks == shares
    if shares:
        assert scores.values["generator_test_rate"] == pytest.approx(sum(shares.values()) / len(shares))
        solved = sum(s == 1.0 for s in shares.values())
        assert scores.values["generator_pass_rate"] == pytest.approx(solved / len(shares))
    assert scores.values["unjudged"] == len(results) - len(shares)


def said(text: str) -> list[str]:
    """The words of a description, found in another way than the code under test finds them."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).split()


disguises = st.sampled_from(
    [str, str.upper, str.title, lambda t: f"  {t}.\n", lambda t: t.replace(" ", " - ")]
)
entries = st.lists(st.tuples(st.integers(0, 9), disguises), min_size=2, max_size=10)


def problems_file(path: Path, chosen: list, prefix: str) -> str:
    problems = [
        a_problem(
            id=f"{prefix}{i}",
            description=disguise(f"return n plus {number}"),
            baseline_tests=(f"assert f(1) == {number + 1}",),
            reference_solution=f"def f(n): return n + {number}",
        )
        for i, (number, disguise) in enumerate(chosen)
    ]
    return str(problem_file(path, problems))


# R3, property 36: validation separation.
@examples
@given(entries, st.none() | entries)
def test_what_is_held_out_is_never_trained_on_whatever_it_is_called(train, held_out):
    with tempfile.TemporaryDirectory() as folder:
        keys = {"file": problems_file(Path(folder) / "train.json", train, "a")}
        if held_out is not None:
            keys["held_out"] = {"file": problems_file(Path(folder) / "held_out.json", held_out, "b")}
        config = Config.model_validate(
            {"generator": {"model": "a"}, "discriminator": {"model": "b"}, "problems": keys}
        )
        try:
            kept, aside = load_splits(config)
        except ProblemFileError as error:
            assert "also held out" in str(error)
            if held_out is not None:
                assert {number for number, _ in train} <= {number for number, _ in held_out}
            return
    forbidden = [said(p.description) for p in aside]
    assert kept and aside
    assert not any(said(p.description) in forbidden for p in kept)
    if held_out is not None:  # and nothing else is left out
        numbers = {number for number, _ in held_out}
        assert len(kept) == sum(number not in numbers for number, _ in train)
