"""How good the programs are that tests choose."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.core.errors import SparringError
from sparring.evaluation.best_of import best_of, choice_scores, sampled_programs, spearman
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from tests.playing import Breaking
from tests.recorded import DOUBLE as OF_RUNS

DOUBLE = replace(OF_RUNS, baseline_tests=("assert f(2) == 4", "assert f(5) == 10"))
RIGHT, SQUARE, PLUS = "def f(n): return n * 2", "def f(n): return n ** 2", "def f(n): return n + 2"
PROGRAMS = [(SQUARE, 0.5), (RIGHT, 1.0), (PLUS, 0.5), (RIGHT, 1.0)]
STRICT = MultistageGame(MultistageRules(test_format="strict"))
CALLS = MultistageGame(MultistageRules(test_format="relabel"))


def scores(sandbox, suites, *, game=STRICT, known=1):
    return asyncio.run(choice_scores([DOUBLE], [suites], {DOUBLE.id: PROGRAMS}, game, sandbox, known))


def test_a_test_that_tells_chooses_the_right_program_and_one_that_does_not_draws(sandbox) -> None:
    told = scores(sandbox, ["assert f(3) == 6"])
    assert told["pass_at_1"] == 0.5 and told["any_of_2"] == pytest.approx(5 / 6) and told["any_of_4"] == 1
    assert told["best_of_2_by_1_suites"] == told["best_of_4_by_1_suites"] == 1
    assert told["fidelity_of_1_suites"] == pytest.approx(1)
    # all four pass the known test, which cannot choose
    assert told["best_of_4_by_known_tests"] == 0.5
    assert told["best_of_4_by_known_tests_and_1_suites"] == 1


def test_more_suites_choose_by_all_of_their_tests(sandbox) -> None:
    told = scores(sandbox, ["assert f(2) == 4", "assert f(3) == 6"])
    assert (told["best_of_4_by_1_suites"], told["best_of_4_by_2_suites"]) == (0.5, 1)
    assert told["fidelity_of_1_suites"] is None, "all programs have the same votes"


def test_calls_choose_by_the_majority_of_outputs(sandbox) -> None:
    told = scores(sandbox, ["assert f(3) == 99"], game=CALLS)
    assert told["best_of_4_by_1_suites"] == 1, "two of the four agree, whatever the suite expected"


def test_without_known_tests_nothing_is_chosen_by_them(sandbox) -> None:
    assert not [way for way in scores(sandbox, [""], known=0) if "known" in way or "majority" in way]


def test_a_failure_of_the_sandbox_is_no_wrong_choice() -> None:
    assert scores(Breaking(), ["assert f(3) == 6"]) == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=12), st.integers(1, 6))
def test_a_choice_lies_between_the_worst_and_the_best_program(programs, size) -> None:
    size = min(size, len(programs))
    results = [["" if i < passed else None for i in range(3)] for passed, _ in programs]
    solved = [right for _, right in programs]
    assert min(solved) <= best_of(size, solved, results) <= max(solved)
    oracle = [["" if right else None] for right in solved]
    groups = [solved[i : i + size] for i in range(0, len(solved) - size + 1, size)]
    assert best_of(size, solved, oracle) == pytest.approx(sum(map(any, groups)) / len(groups))
    nothing = [[None]] * len(solved)
    assert best_of(size, solved, nothing, oracle) == best_of(size, solved, oracle)


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=20))
def test_a_rank_correlation_sees_the_order_only(values) -> None:
    if len(set(values)) < 2:
        assert spearman(values, values) is None
        return
    assert spearman(values, [v**3 + 7 for v in values]) == pytest.approx(1)
    assert spearman(values, [-v for v in values]) == pytest.approx(-1)
    assert spearman(values, [1.0] * len(values)) is None


def test_equal_values_share_their_mean_rank() -> None:
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: the textbook's 1 - 6 * .5 / 60, but for the ties' correction
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)


@pytest.mark.parametrize(
    "content",
    ["no JSON", "[]", "{}", '{"tasks": {}}', '{"tasks": {"d": {"status": "PASSED"}}}', '{"tasks": [1]}'],
)
def test_a_file_without_sampled_programs_is_refused(content, tmp_path) -> None:
    file = tmp_path / "programs.json"
    file.write_text(content)
    with pytest.raises(SparringError, match=r"programs\.json: no sampled programs"):
        sampled_programs(file, [DOUBLE])
    with pytest.raises(SparringError, match=r"nowhere\.json"):
        sampled_programs(tmp_path / "nowhere.json", [DOUBLE])


def test_programs_that_were_not_judged_and_other_problems_are_left_out(tmp_path) -> None:
    file = tmp_path / "programs.json"
    samples = [{"program": RIGHT, "test_rate": 1.0}, {"program": PLUS, "test_rate": None}]
    tasks = {"double": samples, "e": samples[1:], "other": samples}
    file.write_text(json.dumps({"tasks": {name: {"samples": found} for name, found in tasks.items()}}))
    assert sampled_programs(file, [DOUBLE, replace(DOUBLE, id="e")]) == {"double": [(RIGHT, 1.0)]}
