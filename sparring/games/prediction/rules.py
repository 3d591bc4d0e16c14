"""Config of the output prediction game, and the check of what its author may write."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from sparring.core.evaluation import EvaluationSettings, Evaluator
from sparring.core.interfaces import Game, Sandbox
from sparring.core.problem import Problem
from sparring.core.source import parse
from sparring.core.verdict import Limits
from sparring.games.rules import Need, Rules

AUTHOR, OPPONENT = "author", "opponent"
FOUL_REWARD = -1.0
"""Reward of the author for a program that breaks a rule."""

_BANNED_NAMES = frozenset((
    "id", "hash", "input", "open", "exec", "eval", "compile", "globals", "locals", "vars", "object", "getattr",
    "breakpoint", "help",
))  # fmt: skip
"""Names that a program may not use. Names that begin with two underscores are banned, too."""
_BANNED_ATTRIBUTES = frozenset(["mro", "format", "format_map", "gi_frame", "cr_frame", "ag_frame"])
"""Attributes through which a program could reach what it may not name: the class `object`, attributes whose names are in
a string, the builtins of a frame."""

_ALLOWED_MODULES = ("math",)
"""Modules that a program may import. None of them may depend on time, chance or the machine."""

_CONSTANTS = (str, int, float, complex, bool, bytes, tuple, frozenset, type)
_METHODS = frozenset(name for kind in _CONSTANTS for name in dir(kind))
"""Names of the methods of constants. The repr of a method shows the address of its object, and a constant may have the
same address in every process, so that running the program twice does not reveal it. A program may therefore call these
methods, but not use them as values."""


class OutputPredictionRules(Rules):
    """Config of the output prediction game: an author writes a program, and an opponent predicts its output."""

    kind: Literal["output_prediction"] = "output_prediction"
    self_play: bool = False
    """Train one policy (the generator) as both players; else the discriminator is the opponent."""
    max_output_chars: int = Field(default=40, ge=1)
    """Maximum length of the one line that a program may print, in characters."""
    max_program_chars: int = Field(default=1000, ge=1)
    """Maximum length of a program, in bytes of UTF-8, since a character beyond ASCII may take as many tokens."""
    sandbox_limits: Limits = Limits()

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox", "problems", "bank"))

    @property
    def seats(self) -> dict[str, str]:
        return {AUTHOR: "generator", OPPONENT: "generator" if self.self_play else "discriminator"}

    def game(self) -> Game:
        from sparring.games.prediction.game import OutputPredictionGame

        return OutputPredictionGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from sparring.games.prediction.evaluator import PredictionEvaluator

        return PredictionEvaluator(held_out, settings.bank_programs)

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if player == OPPONENT:
            return "predicted the output" if components["predicted"] else "predicted another output"
        if fouls := [name.removeprefix("foul_") for name in components if name.startswith("foul_")]:
            return f"the program breaks a rule: {fouls[0]}"
        return f"{components['stumped']:.0%} of the predictions were wrong"


def foul(program: str, rules: OutputPredictionRules) -> str | None:
    """Returns the rule that the program's text breaks, "size", "syntax" or "banned"; None if it breaks none."""
    if not program.strip() or len(program.encode("utf-8", "surrogatepass")) > rules.max_program_chars:
        return "size"
    try:
        tree = parse(program)
        text = ast.unparse(tree)  # recurses deeper than the parser, so it may fail after it
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "syntax"
    if _holds_a_method(tree, text):
        return "banned"
    for node in ast.walk(tree):
        if any(module not in _ALLOWED_MODULES for module in _imported(node)):
            return "banned"
        if any(name in _BANNED_NAMES or name.startswith("__") for name in _named(node)):
            return "banned"
        if isinstance(node, ast.Attribute) and node.attr in _BANNED_ATTRIBUTES:
            return "banned"
    return None


def _holds_a_method(tree: ast.Module, text: str) -> bool:
    """Returns whether the program reads a method of a constant without calling it. The repr of a type's method, such as
    `str.upper`, shows no address.

    text: the unparsed tree. Its names are spelled as Python normalises them, whatever letters the program used.
    """
    types = {kind.__name__ for kind in _CONSTANTS}
    rebound = {name for name in types if re.search(rf"\b{name}\b(?![.(])", text)}
    harmless = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} | {
        id(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in types - rebound
    }
    read = (
        n for n in ast.walk(tree) if isinstance(n, ast.Attribute | ast.MatchClass) and id(n) not in harmless
    )
    return any(not _METHODS.isdisjoint(_named(node)) for node in read)


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module):
            return [module or ""]
    return []


def _named(node: ast.AST) -> list[str]:
    """Returns the names and attributes that the node reads, without those of its child nodes."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(names=names):
            return [alias.name for alias in names]
        case ast.MatchClass(kwd_attrs=names):
            return names
    return []
