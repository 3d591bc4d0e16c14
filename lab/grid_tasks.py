"""Grid tasks that are small enough for the tiny model: a set made from a fixed seed, and any number of further tasks.

A task shows three pairs (2 train, 1 test) of 3x3 grids; no other recipe of the catalogue, and not the identity,
explains all three. Six more pairs are its arc-gen pairs: three are tests, three stay hidden. No pair of a held-out task
occurs in the training tasks. Training shows single steps, which the tiny model can find. Half of the held-out tasks
follow a recipe that occurs neither in the training tasks nor in `random_task` by default: two steps, or one step with
constants that training does not use. They carry the tag `unseen-recipe`. The others are known recipes on new grids.
"""

from dataclasses import replace
from functools import cache
from random import Random

from lab.grid_families import Programs, Recipe, explanations, random_grid, recipes
from lab.lessons import Lesson, lesson_of
from lab.problems import SEED, Split
from lab.settings import WarmUp
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.problems.grids import Grid, GridPair, GridTask, compact_description, to_problem

TRAIN_SIZE, HELD_OUT_SIZE = 200, 60
UNSEEN_RECIPE = "unseen-recipe"
"""Tag of the held-out tasks whose recipe does not occur in training."""

_TRAIN_PAIRS, _TEST_PAIRS, _ARC_GEN_PAIRS = 2, 1, 6
_SHOWN_TASKS = 3000
"""Number of distinct tasks in the demonstrations."""
_COMPOSED = 0.5
"""Share of two-step recipes among the recipes that are kept from training."""


# ---------------------------------------------------------------- drawing


def random_task(rng: Random, *, unseen: bool = False) -> tuple[GridTask, Programs]:
    """Returns a random task and its programs. With `unseen` its recipe is one that is kept from training, otherwise one
    that training uses."""
    recipe = random_recipe(rng, unseen=unseen)
    return draw_task(recipe, f"grid-{rng.getrandbits(40):010x}", rng), recipe.programs()


def random_recipe(rng: Random, *, unseen: bool = False) -> Recipe:
    """Draws a recipe; each first family is equally likely, regardless of how many constants it takes."""
    by_family = _catalogue(unseen, composed=unseen and rng.random() < _COMPOSED)
    return rng.choice(by_family[rng.choice(list(by_family))])


@cache
def _catalogue(unseen: bool, composed: bool) -> dict[str, list[Recipe]]:
    """Returns the recipes by their first family."""
    by_family: dict[str, list[Recipe]] = {}
    for recipe in recipes():
        if is_unseen(recipe) == unseen and (len(recipe.steps) == 2) == composed:
            by_family.setdefault(recipe.steps[0][0], []).append(recipe)
    return by_family


def is_unseen(recipe: Recipe) -> bool:
    """Returns whether the recipe is kept from training: all recipes of two steps are, and a fourth of those with
    constants."""
    has_constants = any(constants for _, constants in recipe.steps)
    return len(recipe.steps) == 2 or (has_constants and derive_seed("unseen recipe", recipe.name) % 4 == 0)


def draw_task(recipe: Recipe, task_id: str, rng: Random) -> GridTask:
    """Returns a task of this recipe on random grids, all different."""
    inputs: dict[Grid, None] = {}
    while True:
        while len(inputs) < _TRAIN_PAIRS + _TEST_PAIRS + _ARC_GEN_PAIRS:
            inputs[random_grid(rng)] = None
        pairs = tuple(GridPair(grid, recipe.apply(grid)) for grid in inputs)
        shown, arc_gen = pairs[:-_ARC_GEN_PAIRS], pairs[-_ARC_GEN_PAIRS:]
        unchanged = all(pair.input == pair.output for pair in shown)
        if not unchanged and explanations(shown) == [recipe]:
            return GridTask(task_id, shown[:_TRAIN_PAIRS], shown[_TRAIN_PAIRS:], arc_gen)
        inputs.clear()


# ---------------------------------------------------------------- the set


@cache
def made_tasks(split: Split) -> tuple[tuple[GridTask, Recipe], ...]:
    """Returns a split's tasks, each with its recipe. It takes a second or two."""
    is_train = split == "train"
    shown = set() if is_train else {pair for task, _ in made_tasks("train") for pair in task.pairs}
    made = []
    for number in range(TRAIN_SIZE if is_train else HELD_OUT_SIZE):
        rng = Random(derive_seed(SEED, "grid task", split, number))
        recipe = random_recipe(rng, unseen=not is_train and number % 2 == 1)
        task_id = f"grid-{split.replace('_', '-')}-{number:03d}"
        task = draw_task(recipe, task_id, rng)
        while not shown.isdisjoint(task.pairs):
            task = draw_task(recipe, task_id, rng)
        made.append((task, recipe))
    return tuple(made)


def grid_problems(split: Split) -> list[Problem]:
    """Returns a split's tasks as problems: with compact descriptions, half of the arc-gen pairs hidden, and the verbose
    program as reference solution."""
    return [_problem(task, recipe, split) for task, recipe in made_tasks(split)]


def named(program: str, task: GridTask) -> str:
    """Returns the program with the task's name as a docstring. Held-out tasks need it: a training problem with the same
    reference would be left out, and the rules of held-out tasks occur in training."""
    head, body = program.split("\n", 1)
    return f"{head}\n    {task.id!r}\n{body}"


def _problem(task: GridTask, recipe: Recipe, split: Split) -> Problem:
    programs = recipe.programs()
    families = dict.fromkeys(family for family, _ in recipe.steps)
    reference = programs.verbose if split == "train" else named(programs.verbose, task)
    return replace(
        to_problem(task, hold_out_arc_gen=True, reference_solution=reference),
        description=compact_description(task),
        tags=(*families, *[UNSEEN_RECIPE] * is_unseen(recipe)),
        other_solutions=(programs.plain, programs.terse),
    )


# ---------------------------------------------------------------- the lesson


def lesson(rules: CodeGolfRules, role: str, settings: WarmUp) -> Lesson:
    def example(rng: Random) -> tuple[str, str]:
        task, programs = _shown_task(rng.randrange(_SHOWN_TASKS))
        terse = rng.random() >= settings.misconceptions
        program = programs.terse if terse else rng.choice((programs.verbose, programs.plain))
        return compact_description(task), program

    return lesson_of(example)


@cache
def _shown_task(number: int) -> tuple[GridTask, Programs]:
    """Draws a demonstrated task. It takes some milliseconds, so each task is drawn once, when it is first needed."""
    return random_task(Random(derive_seed("grid task of the lesson", number)))
