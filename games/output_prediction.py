"""Output prediction (R1): an author writes a program, an opponent predicts what it prints. Zero sum.

The author earns +1 where the opponent mispredicts and -1 where it predicts the output; the opponent the opposite.
Guards: the program must run and print something short, twice the same; what makes output depend on anything but the
program (clocks, random numbers, hashes, addresses) is banned; a program that breaks a rule is not put to the opponent.
"""

import ast
import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from core.episode import Episode, Outcome, Trajectory
from core.interfaces import Message, Player, PromptFormat, Sandbox, SandboxFailure
from core.problem import Problem
from core.settings import Settings
from core.source import parse
from core.verdict import Limits, OutputTest, Status
from games.judging import outcomes_of
from games.parsing import extract_program
from games.turns import answer_all, take_turn

AUTHOR, OPPONENT = "author", "opponent"

_WRITE = """Write a short Python program whose output another programmer will find hard to predict by reading it.

Topic: {topic}

It must print one short line, always the same: no input, no random numbers, clocks, hashes, files or imports but math.
Answer with one ```python block."""
_PREDICT = """What does this Python program print?

```python
{program}
```

Answer with the output only."""

_BANNED_NAMES = frozenset(
    [
        "id",
        "hash",
        "input",
        "open",
        "exec",
        "eval",
        "compile",
        "globals",
        "locals",
        "vars",
        "object",
        "getattr",
        "breakpoint",
        "help",
    ]
)
"""Names that begin with two underscores are banned, too."""
_BANNED_ATTRIBUTES = frozenset(["mro", "format", "format_map", "gi_frame", "cr_frame", "ag_frame"])
"""The other ways to what a program may not name: to `object`, to attributes by text, to a frame's builtins."""

_CONSTANTS = (str, int, float, complex, bool, bytes, tuple, frozenset, type)
_METHODS = frozenset(name for kind in _CONSTANTS for name in dir(kind))
"""A constant may have an address that is the same in every process, and its methods print it: they must be called."""
_OTHER_HEAP = "__doc__ = [*map(bytes, [*range(0, 512, 8)] * 50), *map(bytes, range(512, 8192, 16))]\n"
"""Before a program: blocks of many sizes. An object's address, which its repr prints, then differs in its low bits as
well; the high ones differ between processes anyway."""


class OutputPredictionRules(Settings):
    """R1's adversarial game: a program against who predicts its output."""

    kind: Literal["output_prediction"] = "output_prediction"
    self_play: bool = False
    """One policy (the generator) sits in both seats; else the discriminator is the opponent."""
    max_output_chars: int = Field(default=40, ge=1)
    """Of the one line that a program may print."""
    max_program_chars: int = Field(default=1000, ge=1)
    """Of a program; a character beyond ASCII counts as its bytes in UTF-8, for it may take as many tokens."""
    allowed_modules: tuple[str, ...] = ("math",)
    """What a program may import: nothing here may depend on time, chance or the machine."""
    foul_reward: float = Field(default=-1.0, le=0)
    """What the author earns by a program that breaks a rule."""
    sandbox_limits: Limits = Limits()

    @property
    def seats(self) -> dict[str, str]:
        """Who plays what: player -> policy."""
        return {AUTHOR: "generator", OPPONENT: "generator" if self.self_play else "discriminator"}

    def why(self, player: str, components: Mapping[str, float]) -> str:
        """How a reward came about, from its components."""
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


class OutputPredictionGame:
    def __init__(self, rules: OutputPredictionRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """memory: programs for the opponent to predict besides the author's."""
        programs = await answer_all(players[AUTHOR], self.topic(problem))
        for program in programs:
            program.artifact = extract_program(program.artifact)
        earlier = [
            Trajectory(player=AUTHOR, attempt=len(programs) + i, turns=[], artifact=program)
            for i, program in enumerate(memory)
        ]
        asked = [*programs, *earlier]
        outputs = await asyncio.gather(*(self._output(p, sandbox) for p in asked))
        predictions = await asyncio.gather(
            *(
                self._predict(players[OPPONENT], program, output)
                for program, output in zip(asked, outputs, strict=True)
                if output is not None
            )
        )
        return Episode(
            problem_id=problem.id, trajectories=[*programs, *(t for of_one in predictions for t in of_one)]
        )

    def topic(self, problem: Problem) -> Message:
        return Message(brief=problem.description, full=_WRITE.format(topic=problem.description))

    def question(self, program: str) -> Message:
        return Message(brief=program, full=_PREDICT.format(program=program.rstrip()))

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        """The opponent's prompt holds a program that is not yet written: as long as its author may make it, with a
        token for each character."""
        if player == AUTHOR:
            return len(style.say((), self.topic(problem))) + max_tokens
        return len(style.say((), self.question("x"))) + self.rules.max_program_chars + max_tokens

    async def _output(self, program: Trajectory, sandbox: Sandbox) -> str | None:
        """The line that the program prints; None where there is nothing to predict: then the author is rewarded
        here, or not at all."""
        broken = foul(program.artifact, self.rules)
        if broken is None:
            test, limits = OutputTest(stdout=None), self.rules.sandbox_limits
            sources = (program.artifact, _OTHER_HEAP + program.artifact)
            try:
                runs = [(await sandbox.judge(source, [test], limits=limits))[0] for source in sources]
            except SandboxFailure:
                program.components["sandbox_failure"] = 1.0
                return None
            output = runs[0].stdout.rstrip("\n")
            program.outcomes = outcomes_of([str(test), f"{test} once more"], runs, owner="the rules")
            if not all(run.passed for run in runs):
                broken = "fails"
            elif runs[0].stdout != runs[1].stdout:
                broken = "not_deterministic"
            elif (
                not output.strip()
                or len(output) > self.rules.max_output_chars
                or len(output.splitlines()) > 1
            ):
                broken = "output"
            else:
                program.components |= {"valid": 1.0, "lines": float(len(program.artifact.splitlines()))}
                return output
        program.reward = self.rules.foul_reward
        program.components |= {"valid": 0.0, f"foul_{broken}": 1.0}
        return None

    async def _predict(self, opponent: Player, program: Trajectory, output: str) -> list[Trajectory]:
        """All predictions of one program: one group. Rewards both sides."""
        tokens = opponent.format.say((), self.question(program.artifact))
        first = program.attempt * opponent.attempts
        turns = await asyncio.gather(
            *(take_turn(opponent, tokens, first + i, 0) for i in range(opponent.attempts))
        )
        made = []
        for i, turn in enumerate(turns):
            right = turn.text.strip() == output.strip()
            made.append(
                Trajectory(
                    player=OPPONENT,
                    attempt=first + i,
                    turns=[turn],
                    reward=1.0 if right else -1.0,
                    components={"predicted": float(right)},
                    artifact=turn.text,
                    outcomes=(
                        Outcome(
                            test=f"the program prints {output!r}",
                            owner=f"{AUTHOR} #{program.attempt}",
                            status=Status.PASSED if right else Status.WRONG_ANSWER,
                        ),
                    ),
                    group=str(program.attempt),
                )
            )
        if not made:  # nobody was asked
            return made
        missed = [t.reward == -1.0 for t in made]
        program.reward = sum(1.0 if m else -1.0 for m in missed) / len(missed)
        program.components["stumped"] = sum(missed) / len(missed)
        return made
