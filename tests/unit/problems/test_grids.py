"""Grid tasks: what loads, the one line that every mistake becomes, difficulty, and the tests of a pair."""

import json
import math
from pathlib import Path
from random import Random

import pytest

from sparring.problems.grids import (
    GridPair,
    GridTask,
    as_grid,
    complexity,
    complexity_metrics,
    describe,
    difficulty,
    load_tasks,
    main,
    pair_tests,
    task_statistics,
    to_problem,
)
from sparring.problems.loader import ProblemFileError
from tests.datasets import outcome

PAIR = {"input": [[0, 1], [2, 3]], "output": [[1, 0], [3, 2]]}
GOOD = {"train": [PAIR, PAIR], "test": [PAIR], "arc-gen": [PAIR]}


def write(folder: Path, content: object, name: str = "task007.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def pair(given: list[list[int]], wanted: list[list[int]]) -> GridPair:
    return GridPair(as_grid(given), as_grid(wanted))


def numbered(count: int, start: int = 0) -> tuple[GridPair, ...]:
    """Pairs that can be told apart."""
    return tuple(
        pair([[n // 10, n % 10, 0]], [[0, n % 10, n // 10]]) for n in range(10 + start, 10 + start + count)
    )


TASK = GridTask("t", numbered(2), numbered(1, 10), numbered(5, 20))


def random_pairs(count: int, rows: int, columns: int, colours: int) -> tuple[GridPair, ...]:
    rng = Random(0)

    def grid() -> list[list[int]]:
        return [[rng.randrange(colours) for _ in range(columns)] for _ in range(rows)]

    return tuple(pair(grid(), grid()) for _ in range(count))


def test_a_directory_is_read_in_the_order_of_names(tmp_path):
    for name in ("task010.json", "task002.json"):
        write(tmp_path, GOOD, name)
    write(tmp_path, "not a task", "notes.txt")
    assert [task.id for task in load_tasks(tmp_path)] == ["task002", "task010"]
    assert [task.id for task in load_tasks(tmp_path / "task010.json")] == ["task010"]


def test_a_bad_file_stops_or_is_left_out(tmp_path):
    write(tmp_path, GOOD, "task001.json")
    write(tmp_path, "{", "task002.json")
    write(tmp_path, {"train": [PAIR]}, "task003.json")
    with pytest.raises(ProblemFileError, match=r"task002\.json: malformed JSON at line 1"):
        load_tasks(tmp_path)
    faults: list[ProblemFileError] = []
    assert [task.id for task in load_tasks(tmp_path, faults)] == ["task001"]
    malformed, incomplete = map(str, faults)
    assert "task002.json: malformed" in malformed and "split 'test': missing" in incomplete


def test_no_usable_task_is_an_error_even_when_skipping(tmp_path):
    with pytest.raises(ProblemFileError, match=r"no \.json file in it"):
        load_tasks(tmp_path, faults=[])
    path = write(tmp_path, "[]")
    for place in (tmp_path, path):
        with pytest.raises(ProblemFileError, match=r"expected an object"):
            load_tasks(place, faults=[])
    with pytest.raises(ProblemFileError, match="no such file"):
        load_tasks(tmp_path / "absent.json")


def broken(split: str, **fields) -> dict:
    """GOOD, its split's last pair with other fields."""
    return {**GOOD, split: [*GOOD[split][:-1], {**PAIR, **fields}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("[" * 100_000, "nested too deeply"),
        ([], "expected an object, found a list of 0"),
        ({"train": [PAIR]}, "split 'test': missing"),
        ({**GOOD, "arcgen": []}, "unknown key 'arcgen'; remove it, or correct it to one of train, test, arc-gen"),
        ({**GOOD, "train": []}, "split 'train': an empty list; add at least one pair"),
        ({**GOOD, "arc-gen": None}, "split 'arc-gen': expected a list of pairs, found null"),
        ({**GOOD, "test": [3]}, "split 'test', pair 0: expected"),
        (broken("train", size=3), "split 'train', pair 1, field 'size': unknown field"),
        (broken("train", input=[]), "split 'train', pair 1, field 'input': found a list of 0; expected a grid"),
        (broken("train", input="01"), "field 'input': found \"01\"; expected a grid: a list of 1 to 30 rows"),
        (broken("arc-gen", output=[[1], []]), "split 'arc-gen', pair 0, field 'output': row 1 is a list of 0"),
        (broken("test", input=[[1] * 31]), "row 0 is a list of 31; expected a list of 1 to 30 cells"),
        (broken("test", input=[[1, 2], [3]]), "row 1 has 1 cells, row 0 has 2; make all rows equally long"),
        (broken("test", input=[[1, 10]]), "row 0, column 1 is 10; expected a whole number from 0 to 9"),
        (broken("test", input=[["x" * 99]]), 'row 0, column 0 is "' + "x" * 39 + "..."),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line_that_names_its_place(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ProblemFileError) as caught:
        load_tasks(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and message in text and "\n" not in text


def test_what_is_no_readable_text(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b"\xff")
    with pytest.raises(ProblemFileError, match="not UTF-8 text"):
        load_tasks(path)


ARC = {"one": {"train": [PAIR], "test": [{"input": [[1]]}, {"input": [[2]]}]}}


def test_a_file_of_arc_prize_holds_tasks_by_id_and_another_their_solutions(tmp_path):
    challenges = write(tmp_path, ARC, "arc-agi_training_challenges.json")
    with pytest.raises(ProblemFileError, match=r"NAME_solutions\.json"):
        load_tasks(challenges)
    write(tmp_path, {"one": [[[3]], [[4]]]}, "arc-agi_training_solutions.json")
    for place in (challenges, tmp_path):
        (task,) = load_tasks(place)
        assert task.id == "one" and task.test == (GridPair(((1,),), ((3,),)), GridPair(((2,),), ((4,),)))
    write(tmp_path, {"one": [[[3]]]}, "arc-agi_training_solutions.json")
    with pytest.raises(ProblemFileError, match="task one: expected an output for each of its tests"):
        load_tasks(challenges)


def test_tasks_by_id_may_hold_the_outputs_of_their_tests(tmp_path):
    by_id = {
        "a1": {"train": [PAIR], "test": [PAIR]},
        "b2": {"train": [PAIR, PAIR], "test": [PAIR], "name": "b"},
    }
    assert [task.id for task in load_tasks(write(tmp_path, by_id))] == ["a1", "b2"]
    by_id["b2"]["test"] = [PAIR, {"input": [[1]]}]
    with pytest.raises(ProblemFileError, match=r"task b2: split 'test', pair 1, field 'output': missing"):
        load_tasks(write(tmp_path, by_id))


def test_of_many_tasks_by_id_only_the_faulty_ones_are_left_out(tmp_path):
    good = {"train": [PAIR], "test": [{"input": [[1]]}]}
    two, three = {**good, "train": [{**PAIR, "input": [[11]]}]}, {**good, "test": [[1]]}
    challenges = write(tmp_path, {"one": good, "two": two, "three": three, "four": good}, "a_challenges.json")
    write(tmp_path, {name: [[[3]]] for name in ("one", "two", "three")}, "a_solutions.json")
    faults = [ProblemFileError("of another file")]
    assert [task.id for task in load_tasks(challenges, faults)] == ["one"]
    for name, fault in zip(("two", "three", "four"), faults[1:], strict=True):
        assert f"task {name}" in str(fault)
    write(tmp_path, {"two": two}, "a_challenges.json")
    with pytest.raises(ProblemFileError, match="task two"):
        load_tasks(challenges, [])


def test_descriptions():
    assert describe(TASK, max_shown=1) == (
        "train 1\ninput:\n100\noutput:\n001\n\ntrain 2\ninput:\n110\noutput:\n011\n\n"
        "test 1\ninput:\n200\noutput:\n002\n\narc-gen 1\ninput:\n300\noutput:\n003"
    )
    assert describe(TASK).count("arc-gen") == 5


def test_a_problem_tests_every_pair():
    problem = to_problem(TASK, 0, reference_solution="p=lambda g:[r[::-1]for r in g]")
    assert (problem.id, problem.entry_point, problem.tags) == ("t", "p", ("grid", "same-size"))
    assert problem.difficulty == difficulty(TASK)
    assert problem.baseline_tests == pair_tests(TASK.pairs)
    assert problem.hidden_tests == ()
    assert "arc-gen" not in problem.description
    assert {outcome(problem.reference_solution, test) for test in problem.baseline_tests} == {"passed"}


def test_held_out_pairs_are_hidden_and_never_shown():
    problem = to_problem(TASK, hold_out_arc_gen=True)
    assert problem.baseline_tests == pair_tests(TASK.pairs[:6])
    assert problem.hidden_tests == pair_tests(TASK.arc_gen[3:])
    assert "arc-gen 3" in problem.description and "arc-gen 4" not in problem.description
    again = GridTask("t", TASK.train, TASK.test, (*numbered(1, 30), *TASK.train[:1]))
    assert to_problem(again, hold_out_arc_gen=True).hidden_tests == (), "a shown pair is not hidden"


ONES = GridPair(((1, 0), (0, 1)), ((1, 0), (0, 1)))


@pytest.mark.parametrize(
    ("returned", "passes"),
    [
        ("[[1, 0], [0, 1]]", True),
        ("((1, 0), (0, 1))", True),
        ("[(1, 0), [0, 1]]", True),
        ("[[True, False], [False, True]]", True),
        ("[[1, 0], [0, 2]]", False),
        ("[[1, 0]]", False),
        ("[[1, 0], [0, 1], [0, 0]]", False),
        ("[[1, 0], [0, 1, 0]]", False),
        ("[[1, 0], [0]]", False),
        ("[1, 0, 0, 1]", False),
        ("[]", False),
        ("None", False),
        ("{(1, 0): 1, (0, 1): 1}", False),
        ("[bytes([1, 0]), bytes([0, 1])]", False),
        ("['10', '01']", False),
        ("[['1', '0'], ['0', '1']]", False),
        ("(r for r in [[1, 0], [0, 1]])", False),
        ("[map(int, '10'), map(int, '01')]", False),
        ("[[[1], 0], [0, 1]]", False),
    ],
)
def test_what_passes_a_pairs_test(returned, passes):
    (test,) = pair_tests([ONES])
    assert outcome(f"p = lambda g: {returned}", test) == ("passed" if passes else "AssertionError")


def test_complexity_follows_its_formula():
    recolour = GridTask(
        "t", (pair([[1, 1], [2, 1]], [[1, 1], [3, 1]]),), (pair([[2, 2], [1, 1]], [[3, 3], [1, 1]]),)
    )
    metrics = complexity_metrics(recolour)
    size = math.log(4) / math.log(900)
    assert metrics == pytest.approx(
        {
            "size": size,
            "colours": 2 / 9,
            "resized": 0,
            "changed": (1 / 4 + 2 / 4) / 2,
            "new_colours": 1,
            "few_examples": 1,
            "mean_cells": 4,
            "pairs": 2,
        }
    )
    assert complexity(recolour) == pytest.approx(0.3 * size + 0.15 * 2 / 9 + 0.15 * 0.375 + 0.1 + 0.1)


def test_the_extremes():
    still = GridTask("t", (GridPair(((0,),), ((0,),)),) * 50, (GridPair(((0,),), ((0,),)),))
    assert complexity(still) == pytest.approx(0.1 / 50) and difficulty(still) == 1
    hardest = GridTask("t", random_pairs(1, 30, 30, 10), (pair([[1]], [[2, 3]]),) * 9)
    assert 0 <= complexity(hardest) <= 1
    resized = GridTask("t", (GridPair(random_pairs(1, 30, 30, 9)[0].input, ((9,) * 29,) * 30),), ())
    assert difficulty(resized) == 5


def test_larger_grids_are_harder():
    levels = [
        complexity(GridTask("t", random_pairs(3, side, side, 4), random_pairs(1, side, side, 4)))
        for side in (3, 8, 15, 30)
    ]
    assert levels == sorted(levels)


def test_statistics():
    small = GridTask("s", random_pairs(3, 3, 3, 2), random_pairs(1, 3, 3, 2))
    large = GridTask("l", random_pairs(2, 20, 25, 9), random_pairs(1, 20, 25, 9), random_pairs(4, 20, 25, 9))
    counts = task_statistics([small, large])
    assert (counts["tasks"], counts["smallest_side"], counts["largest_side"]) == (2, 3, 25)
    assert counts["pairs"] == {"train": 5, "test": 2, "arc-gen": 4}
    assert sum(counts["difficulty"].values()) == 2 and set(counts["difficulty"]) == set("12345")
    assert counts["means"]["mean_cells"] == (9 + 500) / 2
    assert json.loads(json.dumps(counts)) == counts
    assert task_statistics([])["means"] is None


def test_the_command_tells_of_a_directory(tmp_path, capsys):
    write(tmp_path, GOOD, "task001.json")
    write(tmp_path, "{", "task002.json")
    main([str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert told["tasks"] == 1 and told["pairs"]["train"] == 2
    (tasks,) = told["tasks_by_difficulty"].values()
    assert tasks == ["task001"]
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "absent")])
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
