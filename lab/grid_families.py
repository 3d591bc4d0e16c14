"""The transformations of the toy grid tasks, and programs for them in three styles.

A family is one transformation up to its constants; a recipe is one or two families with their constants. Grids are 3x3
with colours 0-3, and outputs are small enough for a short prompt.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from random import Random

from sparring.problems.grids import Grid, GridPair, as_grid

SIDE, GRID_COLOURS = 3, 4

Constants = tuple[int, ...]
Steps = tuple[tuple[str, Constants], ...]
"""Names of families with their constants, in the order in which they are applied."""

_PROBES = 24
"""Number of random grids that decide whether two recipes behave alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One transformation.

    Example:
        Family(name="keep_colour", constants=((1,), (2,)), golfed="[[c*(c=={a})for c in r]for r in {g}]",
               block="result = []\\nfor row in grid:\\n    result.append([cell if cell == {a} else 0 for cell in row])")
    """

    name: str
    golfed: str
    """An expression of the grid {g} and the constants {a}, {b}; its rows may be tuples. If {g} occurs twice, the family
    cannot be the second of a recipe."""
    block: str
    """Statements that compute `result`, a list of lists, from `grid`."""
    constants: tuple[Constants, ...] = ((),)

    def expression(self, grid: str, constants: Constants) -> str:
        return self.golfed.format(g=grid, **_named(constants))

    def statements(self, constants: Constants) -> str:
        return self.block.format(**_named(constants))


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """One task's solution in three styles: they differ in style and length and return the same."""

    verbose: str
    """The solution step by step, with descriptive names."""
    plain: str
    """A function with a single expression."""
    terse: str
    """A golfed program; if it is a composition of two families, it can still be shortened."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One transformation, or two in sequence, with constants filled in.

    Example:
        Recipe((("transpose", ()), ("recolour", (1, 2))))
    """

    steps: Steps

    @property
    def name(self) -> str:
        return "+".join("-".join([family, *map(str, constants)]) for family, constants in self.steps)

    def apply(self, grid: Grid) -> Grid:
        return as_grid(_run(self.steps, _as_lists(grid)))

    def programs(self) -> Programs:
        blocks = [_BY_NAME[family].statements(constants) for family, constants in self.steps]
        body = "\ngrid = result\n".join(blocks).replace("\n", "\n    ")
        expression = "g"
        for family, constants in self.steps:
            expression = _BY_NAME[family].expression(_operand(expression, _BY_NAME[family]), constants)
        golfed = expression.replace("in [", "in[").replace("in (", "in(").replace("] for", "]for")
        return Programs(
            verbose=f"def p(grid):\n    {body}\n    return result\n",
            plain=f"def p(g):\n    return {ast.unparse(ast.parse(expression))}\n",
            terse=f"p=lambda g:{golfed}\n",
        )


def _named(constants: Constants) -> dict[str, int]:
    return dict(zip("ab", constants, strict=False))


def _operand(expression: str, family: Family) -> str:
    """Puts the expression in brackets if the family's own operator binds tighter than the expression's."""
    binds = "{g}[" in family.golfed or "{g}*" in family.golfed
    is_sum = isinstance(ast.parse(expression, mode="eval").body, ast.BinOp)
    return f"({expression})" if binds and is_sum else expression


def _by_row(row: str) -> str:
    return f"result = []\nfor row in grid:\n    result.append({row})"


def _by_cell(*lines: str) -> str:
    body = "\n        ".join(lines)
    return f"result = []\nfor row in grid:\n    new = []\n    for cell in row:\n        {body}\n    result.append(new)"


_ONE = tuple((colour,) for colour in range(1, GRID_COLOURS))
_TWO = tuple(permutations(range(GRID_COLOURS), 2))
_PAIRS = tuple((a, b) for a, b in _TWO if a < b)

_FAMILIES = (
    Family(name="flip_columns", golfed="[r[::-1]for r in {g}]", block=_by_row("row[::-1]")),
    Family(
        name="flip_rows", golfed="{g}[::-1]", block="result = []\nfor row in grid:\n    result.insert(0, row)"
    ),
    Family(
        name="transpose",
        golfed="[*zip(*{g})]",
        block="result = []\nfor column in zip(*grid):\n    result.append(list(column))",
    ),
    Family(
        name="rotate_right",
        golfed="[*zip(*{g}[::-1])]",
        block="result = []\nfor column in zip(*grid):\n    result.append(list(column)[::-1])",
    ),
    Family(
        name="rotate_left",
        golfed="[*zip(*{g})][::-1]",
        block="result = []\nfor column in zip(*grid):\n    result.insert(0, list(column))",
    ),
    Family(
        name="rotate_half",
        golfed="[r[::-1]for r in {g}[::-1]]",
        block="result = []\nfor row in grid:\n    result.insert(0, row[::-1])",
    ),
    Family(name="shift_right", golfed="[r[-1:]+r[:-1]for r in {g}]", block=_by_row("row[-1:] + row[:-1]")),
    Family(name="shift_left", golfed="[r[1:]+r[:1]for r in {g}]", block=_by_row("row[1:] + row[:1]")),
    Family(
        name="shift_down",
        golfed="{g}[-1:]+{g}[:-1]",
        block="result = [grid[-1]]\nfor row in grid[:-1]:\n    result.append(row)",
    ),
    Family(
        name="shift_up",
        golfed="{g}[1:]+{g}[:1]",
        block="result = []\nfor row in grid[1:]:\n    result.append(row)\nresult.append(grid[0])",
    ),
    Family(name="sort_cells", golfed="[sorted(r)for r in {g}]", block=_by_row("sorted(row)")),
    Family(
        name="sort_cells_down",
        golfed="[sorted(r)[::-1]for r in {g}]",
        block=_by_row("sorted(row, reverse=True)"),
    ),
    Family(
        name="sort_rows",
        golfed="sorted({g})",
        block="result = []\nfor row in sorted(grid):\n    result.append(row)",
    ),
    Family(
        name="fall_right",
        golfed="[sorted(r,key=bool)for r in {g}]",
        block="result = []\nfor row in grid:\n    full = [cell for cell in row if cell]\n"
        "    result.append([0] * (len(row) - len(full)) + full)",
    ),
    Family(name="double_width", golfed="[r+r for r in {g}]", block=_by_row("row + row")),
    Family(name="mirror_right", golfed="[r+r[::-1]for r in {g}]", block=_by_row("row + row[::-1]")),
    Family(
        name="stretch_width",
        golfed="[[c for c in r for _ in'ab']for r in {g}]",
        block=_by_cell("new.append(cell)", "new.append(cell)"),
    ),
    Family(
        name="double_height",
        golfed="{g}*2",
        block="result = []\nfor row in grid:\n    result.append(row)\nfor row in grid:\n    result.append(row)",
    ),
    Family(
        name="stretch_height",
        golfed="[r for r in {g} for _ in'ab']",
        block="result = []\nfor row in grid:\n    result.append(row)\n    result.append(row)",
    ),
    Family(
        name="mirror_down",
        golfed="{g}+{g}[::-1]",
        block="result = []\nfor row in grid:\n    result.append(row)\nfor row in grid[::-1]:\n    result.append(row)",
    ),
    Family(
        name="top_row", golfed="{g}[:1]*3", block="result = []\nfor row in grid:\n    result.append(grid[0])"
    ),
    Family(
        name="first_column",
        golfed="[r[:1]*3 for r in {g}]",
        block=_by_row("[row[0], row[0], row[0]]"),
    ),
    Family(name="row_maximum", golfed="[[max(r)]*3 for r in {g}]", block=_by_row("[max(row)] * 3")),
    Family(
        name="crop",
        golfed="[r[:2]for r in {g}[:2]]",
        block="result = []\nfor row in grid[:2]:\n    result.append(row[:2])",
    ),
    Family(
        name="invert",
        golfed="[[3-c for c in r]for r in {g}]",
        block=_by_cell("new.append(3 - cell)"),
    ),
    Family(
        name="next_colour",
        golfed="[[(c+{a})%4 for c in r]for r in {g}]",
        block=_by_cell("new.append((cell + {a}) % 4)"),
        constants=_ONE,
    ),
    Family(
        name="recolour",
        golfed="[[[c,{b}][c=={a}]for c in r]for r in {g}]",
        block=_by_cell("new.append({b} if cell == {a} else cell)"),
        constants=_TWO,
    ),
    Family(
        name="swap_colours",
        golfed="[[{{{a}:{b},{b}:{a}}}.get(c,c)for c in r]for r in {g}]",
        block=_by_cell(
            "if cell == {a}:", "    cell = {b}", "elif cell == {b}:", "    cell = {a}", "new.append(cell)"
        ),
        constants=_PAIRS,
    ),
    Family(
        name="keep_colour",
        golfed="[[c*(c=={a})for c in r]for r in {g}]",
        block=_by_cell("new.append(cell if cell == {a} else 0)"),
        constants=_ONE,
    ),
    Family(
        name="paint",
        golfed="[[{a}*(c>0)for c in r]for r in {g}]",
        block=_by_cell("new.append({a} if cell > 0 else 0)"),
        constants=_ONE,
    ),
)
_RESIZING = {
    "double_width",
    "mirror_right",
    "stretch_width",
    "double_height",
    "stretch_height",
    "mirror_down",
    "crop",
}
_FOR_SIDE_3 = {"top_row", "first_column", "row_maximum"}
"""Families that always make three rows or three columns."""
_BY_NAME = {family.name: family for family in _FAMILIES}


def families() -> tuple[Family, ...]:
    return _FAMILIES


@cache
def recipes() -> tuple[Recipe, ...]:
    """Returns every recipe with distinct behaviour: first the recipes of one family, then the compositions of two."""
    rng = Random(0)
    probes = [_as_lists(random_grid(rng)) for _ in range(_PROBES)]
    seen = {repr(probes)}  # the identity is not a recipe
    found = []
    for steps in _candidates():
        made = [_run(steps, grid) for grid in probes]
        near_constant = len(set(map(repr, made))) <= _PROBES // 2  # such a task could be guessed
        if repr(made) not in seen and not near_constant:
            found.append(Recipe(steps))
        seen.add(repr(made))
    return tuple(found)


def _candidates() -> list[Steps]:
    single = [(family.name, constants) for family in _FAMILIES for constants in family.constants]
    return [(step,) for step in single] + [
        (first, second) for first in single for second in single if _composable(first[0], second[0])
    ]


def explanations(pairs: Sequence[GridPair]) -> list[Recipe]:
    """Returns the recipes that turn every input into its output."""
    known = [(_as_lists(pair.input), _as_lists(pair.output)) for pair in pairs]
    return [recipe for recipe in recipes() if all(_run(recipe.steps, given) == made for given, made in known)]


def _composable(first: str, second: str) -> bool:
    if _BY_NAME[first].name in _RESIZING and _BY_NAME[second].name in _RESIZING | _FOR_SIDE_3:
        return False
    return _BY_NAME[second].golfed.count("{g}") == 1


def random_grid(rng: Random) -> Grid:
    return tuple(tuple(rng.randrange(GRID_COLOURS) for _ in range(SIDE)) for _ in range(SIDE))


def _run(steps: Steps, rows: list[list[int]]) -> list[list[int]]:
    for family, constants in steps:
        rows = _function(family, constants)(rows)
    return rows


def _as_lists(grid: Grid) -> list[list[int]]:
    return [list(row) for row in grid]


@cache
def _function(family: str, constants: Constants) -> Callable[[list[list[int]]], list[list[int]]]:
    """Returns a family's block as a function. It is executed in this process, since the source is from this file and
    never from a model."""
    namespace: dict = {}
    exec(Recipe(((family, constants),)).programs().verbose, namespace)
    return namespace["p"]
