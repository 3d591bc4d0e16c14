"""Grid tasks small enough for the tiny model, made from a fixed seed, and any number of further ones.

    python -m embedded.grid_tasks            # writes grid_train.json and grid_held_out.json
    python -m embedded.grid_tasks --check    # exits 1 if the files differ from what would be written

A task shows three pairs (2 train, 1 test) of 3x3 grids; no other recipe of the catalogue, nor doing nothing, explains
them all. Six more pairs are its arc-gen: three are tests, three stay hidden. No pair of a held-out task occurs in
the training file. Training shows single steps, which the tiny model can find. Half of the held-out tasks follow a
recipe that training never shows, neither its file nor `random_task`: two steps, or one with constants of its own.
They carry the tag `unseen-recipe`. The others are known recipes on new grids.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Literal

from core.problem import Problem
from core.seeding import derive_seed
from embedded.grid_families import Programs, Recipe, explanations, random_grid, recipes
from embedded.made_files import make_or_check
from problems.grids import Grid, GridTask, Pair, compact_description, parse_task, to_problem

Split = Literal["train", "held_out"]

SEED = 0
TRAIN_SIZE, HELD_OUT_SIZE = 200, 60
UNSEEN_RECIPE = "unseen-recipe"
"""Tag of the held-out tasks whose recipe does not occur in training."""

_TRAIN_PAIRS, _TEST_PAIRS, _ARC_GEN_PAIRS = 2, 1, 6
_COMPOSED = 0.5
"""Share of two steps among the recipes that are kept from training."""
_SPLITS = ("train", "test", "arc-gen")
_FOLDER = Path(__file__).parent
_FILES: dict[Split, Path] = {
    "train": _FOLDER / "grid_train.json",
    "held_out": _FOLDER / "grid_held_out.json",
}


# ---------------------------------------------------------------- drawing


def random_task(rng: Random, *, unseen: bool = False) -> tuple[GridTask, Programs]:
    """A task and its programs. unseen: of a recipe that is kept from training; else of one that is not."""
    recipe = random_recipe(rng, unseen=unseen)
    return draw_task(recipe, f"grid-{rng.getrandbits(40):010x}", rng), recipe.programs()


def random_recipe(rng: Random, *, unseen: bool = False) -> Recipe:
    """Each first family is as likely as any other, however many constants it takes."""
    by_family = _catalogue(unseen, composed=unseen and rng.random() < _COMPOSED)
    return rng.choice(by_family[rng.choice(list(by_family))])


@cache
def _catalogue(unseen: bool, composed: bool) -> dict[str, list[Recipe]]:
    """Recipes by their first family."""
    by_family: dict[str, list[Recipe]] = {}
    for recipe in recipes():
        if is_unseen(recipe) == unseen and (len(recipe.steps) == 2) == composed:
            by_family.setdefault(recipe.steps[0][0], []).append(recipe)
    return by_family


def is_unseen(recipe: Recipe) -> bool:
    """Whether it is kept from training: two steps, and a fourth of those with constants."""
    has_constants = any(constants for _, constants in recipe.steps)
    return len(recipe.steps) == 2 or (has_constants and derive_seed("unseen recipe", recipe.name) % 4 == 0)


def draw_task(recipe: Recipe, task_id: str, rng: Random) -> GridTask:
    """A task of this recipe on random grids, all different."""
    inputs: dict[Grid, None] = {}
    while True:
        while len(inputs) < _TRAIN_PAIRS + _TEST_PAIRS + _ARC_GEN_PAIRS:
            inputs[random_grid(rng)] = None
        pairs = tuple(Pair(grid, recipe.apply(grid)) for grid in inputs)
        shown, arc_gen = pairs[:-_ARC_GEN_PAIRS], pairs[-_ARC_GEN_PAIRS:]
        unchanged = all(pair.input == pair.output for pair in shown)
        if not unchanged and explanations(shown) == [recipe]:
            return GridTask(task_id, shown[:_TRAIN_PAIRS], shown[_TRAIN_PAIRS:], arc_gen)
        inputs.clear()


# ---------------------------------------------------------------- files


def _made_tasks(split: Split) -> Iterator[tuple[GridTask, Recipe]]:
    is_train = split == "train"
    shown = set() if is_train else {pair for task, _ in _made_tasks("train") for pair in task.pairs}
    for number in range(TRAIN_SIZE if is_train else HELD_OUT_SIZE):
        rng = Random(derive_seed(SEED, "grid task", split, number))
        recipe = random_recipe(rng, unseen=not is_train and number % 2 == 1)
        task_id = f"grid-{split.replace('_', '-')}-{number:03d}"
        task = draw_task(recipe, task_id, rng)
        while not shown.isdisjoint(task.pairs):
            task = draw_task(recipe, task_id, rng)
        yield task, recipe


def file_text(split: Split) -> str:
    """The split's JSON, one task a line."""
    lines = (json.dumps(_entry(task, recipe), separators=(",", ":")) for task, recipe in _made_tasks(split))
    return '{"tasks":[\n' + ",\n".join(lines) + "\n]}\n"


def _entry(task: GridTask, recipe: Recipe) -> dict[str, Any]:
    tags = [*dict.fromkeys(family for family, _ in recipe.steps), *[UNSEEN_RECIPE] * is_unseen(recipe)]
    splits = zip(_SPLITS, (task.train, task.test, task.arc_gen), strict=True)
    pairs = {split: [asdict(pair) for pair in part] for split, part in splits}
    return {"id": task.id, "tags": tags, **pairs, **asdict(recipe.programs())}


def grid_problems(split: Split) -> list[Problem]:
    """The tasks of a split's file as problems: compact descriptions, half of arc-gen hidden, the verbose program as
    reference."""
    return [
        replace(
            to_problem(_task(entry), hold_out_arc_gen=True, reference_solution=entry["verbose"]),
            description=compact_description(_task(entry)),
            tags=tuple(entry["tags"]),
            other_solutions=(entry["plain"], entry["terse"]),
        )
        for entry in _entries(split)
    ]


def _entries(split: Split) -> list[dict[str, Any]]:
    return json.loads(_FILES[split].read_text(encoding="utf-8"))["tasks"]


def _task(entry: dict[str, Any]) -> GridTask:
    return parse_task({split: entry[split] for split in _SPLITS}, entry["id"], entry["id"])


def main(arguments: Sequence[str] | None = None) -> int:
    texts = {path: partial(file_text, split) for split, path in _FILES.items()}
    return make_or_check(texts, "python -m embedded.grid_tasks", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
