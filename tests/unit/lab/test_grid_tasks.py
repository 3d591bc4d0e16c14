"""The toy grid tasks: what the set holds, and that every program of every recipe is right."""

from pathlib import Path
from random import Random

import pytest

from lab.grid_families import Programs, Recipe, explanations, families, random_grid, recipes
from lab.grid_tasks import (
    UNSEEN_RECIPE,
    grid_problems,
    made_tasks,
    named,
    random_recipe,
    random_task,
)
from sparring.problems.grids import Grid, GridPair, as_grid

ROOT = Path(__file__).parents[3]
SPLITS = ("train", "held_out")

GRID = ((1, 0, 2), (3, 3, 0), (0, 1, 1))
EXAMPLES = {
    "flip_columns": "201/033/110",
    "flip_rows": "011/330/102",
    "transpose": "130/031/201",
    "rotate_right": "031/130/102",
    "rotate_left": "201/031/130",
    "rotate_half": "110/033/201",
    "shift_right": "210/033/101",
    "shift_left": "021/303/110",
    "shift_down": "011/102/330",
    "shift_up": "330/011/102",
    "sort_cells": "012/033/011",
    "sort_cells_down": "210/330/110",
    "sort_rows": "011/102/330",
    "fall_right": "012/033/011",
    "double_width": "102102/330330/011011",
    "mirror_right": "102201/330033/011110",
    "stretch_width": "110022/333300/001111",
    "double_height": "102/330/011/102/330/011",
    "stretch_height": "102/102/330/330/011/011",
    "mirror_down": "102/330/011/011/330/102",
    "top_row": "102/102/102",
    "first_column": "111/333/000",
    "row_maximum": "222/333/111",
    "crop": "10/33",
    "invert": "231/003/322",
    "next_colour-1": "213/001/122",
    "recolour-0-2": "122/332/211",
    "swap_colours-1-3": "302/110/033",
    "keep_colour-1": "100/000/011",
    "paint-2": "202/220/022",
}


def solves(program: str, pairs: tuple[GridPair, ...] | list[GridPair]) -> bool:
    namespace: dict = {}
    exec(program, namespace)
    return all(as_grid(namespace["p"]([list(row) for row in p.input])) == p.output for p in pairs)


def styles(programs: Programs) -> tuple[str, str, str]:
    return programs.verbose, programs.plain, programs.terse


def shown(grid: Grid) -> str:
    return "/".join("".join(map(str, row)) for row in grid)


def test_each_family_does_what_its_name_says():
    single = {recipe.name: recipe for recipe in recipes() if len(recipe.steps) == 1}
    assert {name: shown(single[name].apply(GRID)) for name in EXAMPLES} == EXAMPLES
    assert {name.split("-")[0] for name in EXAMPLES} == {family.name for family in families()}


def test_two_steps_are_done_in_order():
    recipe = Recipe((("shift_up", ()), ("recolour", (1, 2))))
    assert (recipe.name, shown(recipe.apply(GRID))) == ("shift_up+recolour-1-2", "330/022/202")
    assert recipe.programs().terse == "p=lambda g:[[[c,2][c==1]for c in r]for r in g[1:]+g[:1]]\n"


def test_every_program_of_every_recipe_is_right_and_terse_is_shortest():
    rng = Random(1)
    for recipe in recipes():
        grids = [random_grid(rng) for _ in range(3)]
        verbose, plain, terse = styles(recipe.programs())
        pairs = [GridPair(grid, recipe.apply(grid)) for grid in grids]
        assert all(solves(program, pairs) for program in (verbose, plain, terse)), recipe.name
        assert len(terse) < len(plain) < len(verbose)


def test_no_pair_of_unlike_shapes_is_explained():
    assert explanations([GridPair(GRID, ((1,),))]) == []
    assert Recipe((("crop", ()),)) in explanations([GridPair(GRID, ((1, 0), (3, 3)))])


@pytest.mark.parametrize(("split", "size"), [("train", 200), ("held_out", 60)])
def test_a_splits_problems(split, size):
    problems, made = grid_problems(split), made_tasks(split)
    assert len(problems) == len(made) == size
    for problem, (task, recipe) in zip(problems, made, strict=True):
        assert problem.id == task.id and problem.tags
        assert len(problem.description) <= 110
        assert (len(problem.baseline_tests), len(problem.hidden_tests)) == (6, 3)
        solutions = (problem.reference_solution, *problem.other_solutions)
        verbose, *others = styles(recipe.programs())
        assert solutions == (verbose if split == "train" else named(verbose, task), *others)
        assert all(solves(program, task.pairs) for program in solutions)
        assert not solves("p=lambda g:g", task.pairs)


def test_splits_share_no_task():
    train, held_out = ([task for task, _ in made_tasks(split)] for split in SPLITS)
    for tasks in (train, held_out):
        assert len({task.id for task in tasks}) == len({task.pairs for task in tasks}) == len(tasks)
    seen = {pair for task in train for pair in task.pairs}
    assert seen.isdisjoint(pair for task in held_out for pair in task.pairs)


def test_half_of_held_out_follows_unseen_recipes():
    trained = {recipe.programs().verbose for _, recipe in made_tasks("train")}
    rng = Random(3)
    trained |= {random_recipe(rng).programs().verbose for _ in range(2000)}
    unseen = [problem for problem in grid_problems("held_out") if UNSEEN_RECIPE in problem.tags]
    assert len(unseen) == 30
    assert trained.isdisjoint(problem.reference_solution for problem in unseen)
    assert not any(UNSEEN_RECIPE in problem.tags for problem in grid_problems("train"))


def test_the_shown_pairs_have_one_explanation():
    for task, recipe in made_tasks("held_out"):
        assert explanations(task.train + task.test) == [recipe]


def test_random_tasks_depend_on_the_seed_alone():
    first, again, other = (random_task(Random(seed)) for seed in (4, 4, 5))
    assert first == again != other
    task, programs = random_task(Random(6), unseen=True)
    assert all(solves(program, task.pairs) for program in styles(programs))
