"""The kill matrix on rows written by hand."""

from typing import Any

from sparring.tracking.kills import KillMatrix

TESTS = {"a": "assert f(1) == 2", "b": "assert f(3) == 6", "c": "assert f(" + "1" * 190 + "…"}


def program(step: int, text: str, fails: str = "", passes: str = "", **more: Any) -> dict[str, Any]:
    outcomes = [{"test": TESTS[t], "status": "WRONG_ANSWER"} for t in fails]
    outcomes += [{"test": TESTS[t], "status": "PASSED"} for t in passes]
    return {"step": step, "problem": "p", "artifact": text, "reward": 0.5, "outcomes": outcomes} | more


def suite(step: int, valid: str, invalid: str = "", **more: Any) -> dict[str, Any]:
    outcomes = [{"test": TESTS[t], "status": "valid"} for t in valid]
    outcomes += [{"test": TESTS[t], "status": "rejected"} for t in invalid]
    return {"step": step, "problem": "p", "artifact": valid, "reward": 0.5, "outcomes": outcomes} | more


def cells(*rows: dict[str, Any], bins: Any = ([1], [2])) -> list[list[tuple[int, int]]]:
    matrix = KillMatrix()
    for row in rows:
        matrix.add(row)
    return matrix.cells(bins)


def test_a_step_of_programs_on_its_own_suites() -> None:
    programs = [program(1, "good", passes="ab"), program(1, "bad", fails="b", passes="a")]
    assert cells(*programs, suite(1, "a"), suite(1, "ab")) == [[(1, 4), (0, 0)], [(0, 0), (0, 0)]]


def test_another_steps_pair_is_known_only_where_the_same_program_met_all_its_tests() -> None:
    rows = [
        program(1, "bad", fails="b", passes="a"),
        suite(1, "ab"),
        program(2, "bad", passes="a"),
        program(2, "new", passes="a"),
        suite(2, "a"),
    ]
    # the suite of step 1 kills "bad" again; of "new" its test b is not known. The suite of step 2 kills neither.
    assert cells(*rows) == [[(1, 1), (1, 1)], [(0, 1), (0, 2)]]


def test_the_same_text_at_another_problem_says_nothing() -> None:
    rows = [program(1, "bad", fails="a"), suite(1, "a")]
    rows += [program(2, "bad", fails="b"), suite(2, "b", problem="q")]
    assert cells(*rows) == [[(1, 1), (1, 1)], [(0, 0), (0, 0)]]


def test_what_was_not_judged_or_does_not_count_kills_nothing() -> None:
    slow = program(1, "slow", passes="a")
    slow["outcomes"][0] |= {"status": "TIME_LIMIT", "counts": False}
    rows = [slow, program(1, "lost", fails="a", reward=None), suite(1, "a"), suite(1, "", invalid="a")]
    assert cells(*rows, bins=([1],)) == [[(0, 1)]]


def test_a_test_that_was_cut_off_is_known_in_its_own_step_only() -> None:
    rows = [program(1, "bad", fails="c"), suite(1, "c"), program(2, "bad", fails="a"), suite(2, "c")]
    assert cells(*rows) == [[(1, 1), (1, 1)], [(0, 0), (0, 0)]]


def test_steps_share_a_row_and_a_column_in_a_long_run() -> None:
    rows = [program(1, "bad", fails="a"), suite(1, "a"), program(2, "good", passes="a"), suite(2, "a")]
    assert cells(*rows, bins=([1, 2],)) == [[(2, 4)]]


def test_without_suites_there_is_no_matrix() -> None:
    assert cells(program(1, "x", passes="a")) == []
