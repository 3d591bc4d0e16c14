"""What the author of an output prediction may write, and what it earns: a section of the config."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from core.evaluation import EvaluationSettings, Evaluator
from core.interfaces import Game, Sandbox
from core.problem import Problem
from core.source import parse
from core.verdict import Limits
from games.rules import Need, Rules

AUTHOR, OPPONENT = "author", "opponent"

_BANNED_NAMES = frozenset((
    "id", "hash", "input", "open", "exec", "eval", "compile", "globals", "locals", "vars", "object", "getattr",
    "breakpoint", "help",
))  # fmt: skip
"""Names that begin with two underscores are banned, too."""
_BANNED_ATTRIBUTES = frozenset(["mro", "format", "format_map", "gi_frame", "cr_frame", "ag_frame"])
"""The other ways to what a program may not name: to `object`, to attributes by text, to a frame's builtins."""

_CONSTANTS = (str, int, float, complex, bool, bytes, tuple, frozenset, type)
_METHODS = frozenset(name for kind in _CONSTANTS for name in dir(kind))
"""A constant may have an address that is the same in every process, and its methods print it: they must be called."""


class OutputPredictionRules(Rules):
    """R1's adversarial game: a program against who predicts its output."""

    kind: Literal["output_prediction"] = "output_prediction"
    self_play: bool = False
    """Train one policy (the generator) as both players; else the discriminator is the opponent."""
    max_output_chars: int = Field(default=40, ge=1)
    """Maximum length of the one line that a program may print, in characters."""
    max_program_chars: int = Field(default=1000, ge=1)
    """Maximum length of a program, in bytes of UTF-8, since a character beyond ASCII may take as many tokens."""
    allowed_modules: tuple[str, ...] = ("math",)
    """Modules that a program may import. None of them may depend on time, chance or the machine."""
    foul_reward: float = Field(default=-1.0, le=0)
    """Reward of the author for a program that breaks a rule."""
    sandbox_limits: Limits = Limits()

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox", "problems", "bank"))

    @property
    def seats(self) -> dict[str, str]:
        return {AUTHOR: "generator", OPPONENT: "generator" if self.self_play else "discriminator"}

    def game(self) -> Game:
        from games.prediction.game import OutputPredictionGame

        return OutputPredictionGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from games.prediction.evaluator import PredictionEvaluator

        return PredictionEvaluator(held_out, settings.bank_programs)

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if player == OPPONENT:
            return "predicted the output" if components["predicted"] else "predicted another output"
        if fouls := [name.removeprefix("foul_") for name in components if name.startswith("foul_")]:
            return f"the program breaks a rule: {fouls[0]} (game.foul_reward)"
        return f"{components['stumped']:.0%} of the predictions were wrong"


def foul(program: str, rules: OutputPredictionRules) -> str | None:
    """Which rule the program's text breaks; None where it breaks none."""
    if not program.strip() or len(program.encode("utf-8", "surrogatepass")) > rules.max_program_chars:
        return "size"
    try:
        tree = parse(program)
        text = ast.unparse(tree)  # deeper than parsing
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "syntax"
    if _holds_a_method(tree, text):
        return "banned"
    for node in ast.walk(tree):
        if any(module not in rules.allowed_modules for module in _imported(node)):
            return "banned"
        if any(name in _BANNED_NAMES or name.startswith("__") for name in _named(node)):
            return "banned"
        if isinstance(node, ast.Attribute) and node.attr in _BANNED_ATTRIBUTES:
            return "banned"
    return None


def _holds_a_method(tree: ast.Module, text: str) -> bool:
    """Whether a method of a constant is read and not called. A type's own, such as `str.upper`, has no address.

    text: of the tree; names are written there as Python knows them, whatever letters the program wrote.
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
    """Names and attributes that the node alone reads."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(names=names):
            return [alias.name for alias in names]
        case ast.MatchClass(kwd_attrs=names):
            return names
    return []
