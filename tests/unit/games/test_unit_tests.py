"""R4's reward by hand, and what counts as an answer."""

from dataclasses import replace

import pytest

from sparring.core.problem import Problem
from sparring.games.programs.game import SolverGame
from sparring.games.programs.unit_tests import UnitTestsRules, read_answer, unit_test_reward
from tests.playing import Breaking, play, reader

PROBLEM = Problem(
    id="add",
    description="Return a plus b.",
    function_signature="def f(a, b):",
    baseline_tests=(
        "assert f(1, 2) == 3",
        "assert f(0, 0) == 0",
        "assert f(2, 2) == 4",
        "assert f(1, 1) == 1",
    ),
    reference_solution="def f(a, b): return a + b",
)
"""The fourth test is wrong, and by default does not count."""
RIGHT = "def f(a, b): return a + b"
FAULTS = {
    RIGHT: 3,
    "def f(a, b): return a * b": 2,
    "def f(a, b): return 3": 1,
    "def f(a, b): return None": 0,
    "def f(a, b) return": 0,
    "": 0,
}


def game(**rules) -> SolverGame:
    return SolverGame(UnitTestsRules(**rules))


def rewards(episode):
    return [t.reward for t in episode.trajectories]


# ---------------------------------------------------------------------- the formula
@pytest.mark.parametrize(
    ("passed", "total", "weights", "base", "bonus"),
    [
        (0, 3, {}, 0.0, 0.0),
        (1, 3, {}, 1 / 3, 0.0),
        (2, 3, {}, 2 / 3, 0.0),
        (3, 3, {}, 1.0, 1.0),
        (1, 1, {}, 1.0, 1.0),
        (3, 3, {"perfect_weight": 0.0}, 1.0, 0.0),
        (2, 4, {"base_weight": 0.5, "perfect_weight": 2.0}, 0.25, 0.0),
        (4, 4, {"base_weight": 0.5, "perfect_weight": 2.0}, 0.5, 2.0),
        (2, 2, {"base_weight": 0.0}, 0.0, 1.0),
    ],
)
def test_base_and_bonus(passed, total, weights, base, bonus):
    reward, parts = unit_test_reward(passed, total, UnitTestsRules(**weights))
    assert reward == pytest.approx(base + bonus)
    assert parts == pytest.approx(
        {"base": base, "bonus": bonus, "pass_rate": passed / total, "solved": float(passed == total)}
    )


# ---------------------------------------------------------------------- played
def test_rewards_of_programs_that_are_run(sandbox):
    episode = play(game(), PROBLEM, [reader("generator", list(FAULTS))], sandbox)
    expected = [passed / 3 + (passed == 3) for passed in FAULTS.values()]
    assert rewards(episode) == pytest.approx(expected)
    faults = [{k for k in t.components if k.startswith("ended_")} for t in episode.trajectories]
    assert faults[0] == set() and faults[1] == {"ended_wrong_answer"} and faults[4] == {"ended_syntax_error"}
    assert all(t.components["format"] == 1.0 for t in episode.trajectories)


@pytest.mark.parametrize(("max_tests", "reward"), [(1, 2.0), (3, 2.0), (4, 0.75), (99, 0.75)])
def test_the_first_tests_count(sandbox, max_tests, reward):
    watched = Breaking(sandbox, on=set())
    episode = play(game(max_tests=max_tests), PROBLEM, [reader("generator", [RIGHT])], watched)
    assert rewards(episode) == [reward]
    assert [tests for _, tests, *_ in watched.jobs] == [PROBLEM.baseline_tests[:max_tests]]


def test_a_problems_own_language_is_kept():
    elsewhere = Breaking()
    play(game(), replace(PROBLEM, language="lua"), [reader("generator", [RIGHT])], elsewhere)
    assert [language for *_, language in elsewhere.jobs] == ["lua"]


# ---------------------------------------------------------------------- <reasoning> and <answer>
@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("<reasoning>why</reasoning><answer>x = 1</answer>", "x = 1"),
        ("<reasoning>why</reasoning>\n\n <answer>\nx = 1\n</answer>\n", "x = 1"),
        ("Well. <reasoning>why</reasoning><answer>x</answer> Done.", "x"),
        ("<reasoning>a\nb</reasoning><answer>```python\nx = 1\n```</answer>", "x = 1"),
        ("<reasoning></reasoning><answer>x</answer>", "x"),
        ("<reasoning>why</reasoning><answer></answer>", ""),
        ("<reasoning>why</reasoning><answer> \n </answer>", ""),
        # nested: what stands in the reasoning is no answer
        ("<reasoning>not <answer>no</answer></reasoning><answer>yes</answer>", "yes"),
        ("<reasoning>a <reasoning>b</reasoning> c</reasoning><answer>x</answer>", "x"),
        # repeated: the first whole pair
        ("<reasoning>a</reasoning><answer>1</answer><reasoning>b</reasoning><answer>2</answer>", "1"),
        ("<reasoning>a</reasoning> so <reasoning>b</reasoning><answer>2</answer>", "2"),
        ("<reasoning>a</reasoning><answer>1</answer><answer>2</answer>", "1"),
        # missing, in the wrong order, not closed, not these tags
        ("x = 1", None),
        ("", None),
        ("<answer>x</answer>", None),
        ("<reasoning>why</reasoning>", None),
        ("<reasoning>why</reasoning>x = 1", None),
        ("<answer>x</answer><reasoning>why</reasoning>", None),
        ("<reasoning>why<answer>x</answer>", None),
        ("<reasoning>why</reasoning><answer>x", None),
        ("</reasoning><answer>x</answer>", None),
        ("<reasoning>why</reasoning> Then: <answer>x</answer>", None),
        ("<Reasoning>why</Reasoning><Answer>x</Answer>", None),
        ("<reasoning >why</reasoning><answer>x</answer>", None),
    ],
)
def test_what_an_answer_is(text, program):
    assert read_answer(text, "reasoning", PROBLEM) == program


@pytest.mark.timeout(60)
def test_an_answer_is_looked_for_once():
    for text in (
        "<reasoning>" * 100_000,
        "<reasoning>" + "</reasoning>" * 100_000,
        "<reasoning></reasoning><answer>" * 50_000,
    ):
        assert read_answer(text, "reasoning", PROBLEM) is None


def test_without_the_format_there_is_nothing_to_judge(sandbox):
    watched = Breaking(sandbox, on=set())
    texts = [
        RIGHT,
        f"<reasoning>add</reasoning><answer>{RIGHT}</answer>",
        "<reasoning></reasoning><answer></answer>",
    ]
    episode = play(game(answer_format="reasoning"), PROBLEM, [reader("generator", texts)], watched)
    assert rewards(episode) == [0.0, 2.0, 0.0]
    assert [t.components["format"] for t in episode.trajectories] == [0.0, 1.0, 1.0]
    assert [t.artifact for t in episode.trajectories] == ["", RIGHT, ""]
    assert [program for program, *_ in watched.jobs] == [RIGHT, ""]


def test_directly_the_last_block_or_all_of_it():
    assert read_answer("```lua\nx = 1\n```", "direct", PROBLEM) == "x = 1\n"
    assert read_answer("x = 1", "direct", PROBLEM) == "x = 1"
    assert read_answer("", "direct", PROBLEM) == ""


def test_the_prompt_says_which_format_and_language():
    asked = game(answer_format="reasoning").rules.message(PROBLEM).full
    assert "<reasoning>" in asked and "</answer>" in asked and "def f(a, b):" in asked
    assert "```python block" in game().rules.message(PROBLEM).full
    bare = game().rules.message(replace(PROBLEM, function_signature="", language="lua")).full
    assert "Signature" not in bare and "lua" in bare
