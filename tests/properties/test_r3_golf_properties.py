"""Properties of the code golf requirements (R3) that are about grids and rewards, by their numbers."""

import contextlib
import io
import json
import re
import tempfile
import warnings
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.grid_tasks import random_recipe
from learners.advantages.task_norm import TaskNormaliser
from sparring.core.source import is_valid_python
from sparring.core.verdict import Status
from sparring.games.programs.golf_rewards import GolfRules, golf_reward, utf8_bytes
from sparring.problems.grids import (
    GridPair,
    GridTask,
    by_difficulty,
    compact_description,
    complexity,
    describe,
    difficulty,
    grid_to_text,
    load_tasks,
    parse_task,
    to_problem,
)
from sparring.problems.loader import ProblemFileError

examples = settings(max_examples=100, deadline=None)

SPLITS = ("train", "test", "arc-gen")
FAULTS = [None, *(s for s in Status if not s.is_infrastructure() and s is not Status.PASSED)]


@st.composite
def grids(draw):
    """Mostly small; the cells come from a seed, which is quicker than drawing 900 of them."""
    sides = st.integers(1, 5) | st.sampled_from([2, 9, 30])
    rows, columns = draw(sides), draw(sides)
    rng = Random(draw(st.integers(0, 2**32)))
    colours = draw(st.integers(1, 10))
    return tuple(tuple(rng.randrange(colours) for _ in range(columns)) for _ in range(rows))


pairs = st.builds(GridPair, grids(), grids())


def some_pairs(least: int):
    return st.lists(pairs, min_size=least, max_size=3).map(tuple)


tasks = st.builds(
    GridTask, st.text("abc0123456789_", min_size=1, max_size=8), some_pairs(1), some_pairs(1), some_pairs(0)
)
programs = st.tuples(
    st.integers(0, 2**32), st.booleans(), st.sampled_from(["verbose", "plain", "terse"])
).map(lambda drawn: getattr(random_recipe(Random(drawn[0]), unseen=drawn[1]).programs(), drawn[2]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 11) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SPLITS, "input", "output", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
rules = st.builds(
    GolfRules,
    pass_weight=st.floats(0.01, 10),
    length_weight=st.floats(0, 10),
    length_scale=st.integers(1, 5000),
    syntax_error_penalty=st.floats(0, 5),
    runtime_error_penalty=st.floats(0, 5),
    limit_penalty=st.floats(0, 5),
)


def document(task: GridTask) -> dict:
    parts = zip(SPLITS, (task.train, task.test, task.arc_gen), strict=True)
    return {
        split: [{"input": list(map(list, p.input)), "output": list(map(list, p.output))} for p in part]
        for split, part in parts
    }


# R3, property 1: task loading completeness.
@examples
@given(tasks, st.booleans())
def test_a_file_is_loaded_without_loss(task, plain_arc):
    content = document(task)
    if plain_arc and not task.arc_gen:
        del content["arc-gen"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{task.id}.json"
        path.write_text(json.dumps(content))
        assert load_tasks(path) == [task]
        assert load_tasks(folder) == [task]


# R3, property 2: grid-to-text round trip preservation.
@examples
@given(grids())
def test_a_grid_survives_as_text(grid):
    assert tuple(tuple(map(int, row)) for row in grid_to_text(grid).split("\n")) == grid


# R3, property 3: batch difficulty ordering.
@examples
@given(st.lists(tasks, max_size=4))
def test_levels_and_tasks_within_them_ascend(some):
    levels = by_difficulty(some)
    assert list(levels) == sorted(levels) and set(levels) <= set(range(1, 6))
    for level, of_level in levels.items():
        assert of_level and all(difficulty(task) == level for task in of_level)
    ordered = [complexity(task) for of_level in levels.values() for task in of_level]
    assert ordered == sorted(ordered)
    assert sorted(map(repr, some)) == sorted(repr(task) for level in levels.values() for task in level)


# R3, property 3: what the order rests on does not depend on the order of pairs.
@examples
@given(tasks, st.randoms(use_true_random=False))
def test_complexity_is_a_tasks_own(task, rng):
    shuffled = GridTask(
        task.id, *(tuple(rng.sample(part, len(part))) for part in (task.train, task.test, task.arc_gen))
    )
    assert complexity(shuffled) == pytest.approx(complexity(task))
    assert 0 <= complexity(task) <= 1 + 1e-9


# R3, property 4: prompt completeness (the examples; the game adds the instructions).
@examples
@given(tasks, st.none() | st.integers(0, 4))
def test_every_example_is_in_the_prompt(task, max_shown):
    problem = to_problem(task, max_shown)
    shown = task.train + task.test + task.arc_gen[:max_shown]
    expected = [part for p in shown for part in (grid_to_text(p.input), grid_to_text(p.output))]
    written = re.findall(r"put:\n([0-9\n]*[0-9])", problem.description)
    assert written == expected
    assert len(problem.baseline_tests) == len(task.pairs)
    compact = [part.split(">") for part in compact_description(task).replace("/", "\n").split(" ")]
    assert compact == [[grid_to_text(p.input), grid_to_text(p.output)] for p in task.train + task.test]


# R3, property 4: and nothing of the pairs held out.
@examples
@given(tasks, st.none() | st.integers(0, 4))
def test_a_held_out_pair_is_not_in_the_prompt(task, max_shown):
    problem = to_problem(task, max_shown, hold_out_arc_gen=True)
    visible = GridTask(task.id, task.train, task.test, task.arc_gen[: -(len(task.arc_gen) // 2) or None])
    assert problem.description == describe(visible, max_shown)
    assert set(problem.baseline_tests).isdisjoint(problem.hidden_tests)


def corrupt(content: dict, rng: Random) -> str:
    """Break one thing somewhere, in place; says where the error must point."""
    split = rng.choice([split for split in SPLITS if content[split]])
    index = rng.randrange(len(content[split]))
    pair, field = content[split][index], rng.choice(["input", "output"])
    row = rng.randrange(len(pair[field]))
    column = rng.randrange(len(pair[field][row]))
    where = f"split {split!r}, pair {index}, field {field!r}: "
    match rng.randrange(6):
        case 0:
            del pair[field]
        case 1:
            pair[field] = rng.choice([None, [], "0", 3, {}, [[]]])
        case 2:
            pair[field][row][column] = rng.choice([-1, 10, True, 1.5, "1", None, [1]])
        case 3:
            pair[field] = [[0]] * 31
        case 4:
            pair[field] = [[0, 0], [0]]
        case 5 if split != "arc-gen":
            del content[split]
            where = f"split {split!r}: missing"
        case 5:
            content[split][index] = None
            where = f"split {split!r}, pair {index}: "
    return where


# R3, property 5: task validation consistency.
@examples
@given(tasks, st.integers(0, 2**32))
def test_a_broken_task_is_refused_whole_and_told_where(task, seed):
    content = document(task)
    where = corrupt(content, Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.json").write_text(json.dumps(content))
        (Path(folder) / "b.json").write_text(json.dumps(document(task)))
        with pytest.raises(ProblemFileError) as caught:
            load_tasks(folder)
        assert str(caught.value).startswith(f"{folder}/a.json: {where}")
        assert [loaded.id for loaded in load_tasks(folder, faults=[])] == ["b"]


# R3, property 5: whatever the JSON says, it is a whole task or none.
@examples
@given(json_values)
def test_any_json_is_a_task_or_refused(raw):
    try:
        task = parse_task(raw, "t", "here")
    except ProblemFileError as error:
        assert str(error).startswith("here: ") and "\n" not in str(error)
    else:
        assert document(task) == {"arc-gen": [], **raw}


# R3, property 12: reward proportionality.
@examples
@given(rules, st.data())
def test_a_higher_pass_rate_never_earns_less(rule, data):
    total = data.draw(st.integers(1, 300))
    less, more = sorted((data.draw(st.integers(0, total)), data.draw(st.integers(0, total))))
    sizes, faults = st.integers(0, 10_000), st.sampled_from(FAULTS)
    worse = golf_reward(less, total, data.draw(sizes), rule, data.draw(faults))[0]
    better = golf_reward(more, total, data.draw(sizes), rule, data.draw(faults))[0]
    if less < more:
        assert worse < better


# R3, property 15: maximum reward for perfect solutions.
@examples
@given(rules, st.integers(1, 300), st.integers(1, 300), st.data())
def test_any_solution_earns_more_than_any_other_program(rule, total, others, data):
    sizes = st.integers(0, 10_000)
    solution = golf_reward(total, total, data.draw(sizes), rule)[0]
    wrong = golf_reward(
        data.draw(st.integers(0, others - 1)),
        others,
        data.draw(sizes),
        rule,
        data.draw(st.sampled_from(FAULTS)),
    )[0]
    assert wrong < solution <= golf_reward(1, 1, 0, rule)[0]
    assert golf_reward(1, 1, 0, rule)[0] == pytest.approx(rule.pass_weight + rule.length_weight)


# R3, property 16: code length reward monotonicity.
@examples
@given(rules, st.integers(1, 300), st.sampled_from(FAULTS), st.data())
def test_at_equal_correctness_shorter_never_earns_less(rule, total, fault, data):
    passed = data.draw(st.sampled_from([0, total // 2, total]))
    short, long = sorted((data.draw(st.integers(0, 10_000)), data.draw(st.integers(0, 10_000))))
    better, worse = (golf_reward(passed, total, size, rule, fault)[0] for size in (short, long))
    assert better >= worse
    if passed == total and short < long and rule.length_weight >= 0.01:
        assert better > worse


# R3, property 16: length is in bytes of UTF-8.
@examples
@given(st.text())
def test_length_is_that_of_the_file(program):
    assert utf8_bytes(program) == len(program.encode())


# R3, property 17: reward normalisation consistency, exactly over a task's first batch.
@examples
@given(st.lists(st.floats(-10, 10).map(lambda x: round(x, 6)), min_size=2, max_size=50), st.text())
def test_a_batch_has_mean_0_and_std_1(rewards, task_id):
    normalised = TaskNormaliser().normalise(task_id, rewards)
    if max(rewards) == min(rewards):
        assert normalised == [0.0] * len(rewards)
    else:
        assert fmean(normalised) == pytest.approx(0, abs=1e-6)
        assert pstdev(normalised) == pytest.approx(1, abs=1e-6)


# R3, property 17: and nearly over all its episodes, among those of other tasks.
@examples
@given(st.integers(0, 2**32), st.floats(0.15, 0.85), st.floats(-5, 5), st.floats(0.1, 10), st.integers(4, 16))
def test_all_episodes_of_a_task_have_mean_0_and_std_1(seed, rate, offset, scale, group):
    rng, normaliser = Random(seed), TaskNormaliser()
    seen: list[float] = []
    for _ in range(3200 // group):
        rewards = [offset + scale * ((rng.random() < rate) + 0.2 * rng.random()) for _ in range(group)]
        seen += normaliser.normalise("t", rewards)
        normaliser.normalise("other", [100 * rng.random()])
    later = seen[len(seen) // 2 :]  # the first are normalised by the figures of few
    assert abs(fmean(later)) < 0.25
    assert abs(pstdev(later) - 1) < 0.1


# R3, property 17: the running figures are those of the whole past, however it was cut into batches.
@examples
@given(st.lists(st.lists(st.floats(-10, 10), max_size=8), min_size=1, max_size=8))
def test_running_statistics_are_those_of_the_past(batches):
    normaliser = TaskNormaliser()
    for batch in batches:
        normaliser.normalise("t", batch)
    past = [reward for batch in batches for reward in batch]
    assert normaliser.mean("t") == pytest.approx(fmean(past) if past else 0.0, abs=1e-9)
    assert normaliser.std("t") == pytest.approx(pstdev(past) if past else 0.0, abs=1e-7)


def compiles(code: str) -> bool:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            compile(code, "p.py", "exec")
        except (SyntaxError, ValueError):
            return False
    return True


# R3, property 28: syntax validation.
@examples
@given(programs, st.data())
def test_validation_agrees_with_the_compiler(program, data):
    assert is_valid_python(program)
    start = data.draw(st.integers(0, len(program)))
    end = data.draw(st.integers(start, min(len(program), start + 5)))
    damaged = program[:start] + data.draw(st.text("()[]:=\n \0x1é'", max_size=3)) + program[end:]
    assert is_valid_python(damaged) == compiles(damaged)


# R3, property 28: for any text.
@examples
@given(st.text())
def test_validation_has_an_answer_for_any_text(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_valid_python(text) == compiles(text)
