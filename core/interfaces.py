"""The seams between rooms: Policy, Sandbox, Game. Implementations live elsewhere and are injected by the driver."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from core.episode import Completion, Episode, Turn
from core.errors import RunFailed, SparringError
from core.problem import Problem
from core.verdict import Limits, Test, Verdict
from core.weights import PublishReceipt, WeightUpdate

SandboxKind = Literal["auto", "docker", "namespace", "process"]
CodeTests = Literal["run", "refuse"]
"""auto: the first of the others that runs here (sandbox_workers/backends.py)."""


class SandboxFailure(SparringError):
    """The sandbox could not judge after its retries. Never a reward: the caller drops the attempt and counts it."""


class EngineFailure(RunFailed):
    """An inference engine cannot start, or has ended; the message holds its own reason."""


class Sandbox(Protocol):
    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        """One Verdict per test, in order.

        A test is an OutputTest or, for Python programs, Python source. An `assert` (or any statements) gives PASSED or what went wrong; a single
        expression gives PASSED with `value`, the repr of its plain value.
        Equal (program, test, limits, run, language) may be answered from a cache; another `run` is judged afresh.
        Raises SandboxFailure.
        """
        ...

    def stats(self) -> dict[str, float]:
        """Counters since the start, for the log."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to sample one completion."""

    max_tokens: int
    stop_token_ids: tuple[int, ...]
    temperature: float = 1.0
    """0 means greedy."""
    seed: int | None = None
    top_p: float = 1.0
    """Sample among the likeliest tokens that together have this much probability. This and top_k are never set for
    training: the log-probabilities are then those of the truncated distribution, which the learner does not compute."""
    top_k: int = 0
    """Sample among so many likeliest tokens, before top_p; 0: all."""
    heard: Callable[[Sequence[int]], None] | None = None
    """Is told all tokens so far after each token, if the engine is in this process."""


class Actor(Protocol):
    """What a game needs of a policy: token ids in, token ids and sampled logprobs out."""

    @property
    def version(self) -> int: ...

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion: ...


class Policy(Actor, Protocol):
    """A model that acts, and whose weights can be replaced in place."""

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Of an update with its tensors, which are only read."""
        ...

    async def sleep(self) -> None:
        """Give the GPU's memory back until it is next needed, where the engine's settings say so. To be called while no
        completion is wanted."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What a game says to a player.

    Example: Message(brief="100020000", full="You are X. The board: ... Answer with one digit.")
    """

    brief: str
    """For models that were trained on this game and nothing else."""
    full: str
    """For chat models: all that one needs to know."""
    marks: tuple[str, str] = ("<p>", "<w>")
    """Before and after `brief`, for models with marker tokens (games/prompts.py); "" is none."""
    begins: str = ""
    """How a chat model's answer begins, for example "```python\\n". These tokens are given to the model: they are part of
    the prompt, are not sampled and carry no loss. A model with marker tokens was trained on whole answers and is given
    none."""


class PromptFormat(Protocol):
    """How a policy's model is spoken to: the only place that knows of chat templates and marker tokens."""

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        """The prompt that puts a message to the player: starts with `tokens`, all that was said so far, and ends with the
        beginning of the answer if the message gives one."""
        ...

    def stop_token_ids(self, begins: str = "") -> tuple[int, ...]:
        """Return the tokens that end an answer: those that end the model's turn and, if the answer begins a code block,
        those that close it. What would come after the block is not used.

        begins: the message's `begins`.
        """
        ...

    def own_turn(self, completion: Completion) -> Completion:
        """Return the completion up to the end of the model's own turn: a base model that knows no end token for it may go
        on and write the user's next message."""
        ...

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        """Decode an answer without the structural tokens.

        begins: the message's `begins`. The result starts with it if the format put it into the prompt.
        """
        ...

    def completion(self, text: str, closes: str = "<end>") -> list[int]:
        """The inverse of `text` for supervised training: ids with the token that ends the turn, for models with marker
        tokens `closes`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Branching:
    """Attempts that share what comes before one stage: `branches` at that stage, `continuations` of each after it."""

    stage: int
    branches: int
    continuations: int

    def place(self, attempt: int) -> tuple[int, int]:
        """(prefix, branch) of an attempt; both counted over all."""
        return attempt // (self.branches * self.continuations), attempt // self.continuations

    def node(self, attempt: int, stage: int) -> int:
        """Attempts of one node have the turn of this stage in common."""
        prefix, branch = self.place(attempt)
        return prefix if stage < self.stage else branch if stage == self.stage else attempt

    def turns(self, attempts: int, stages: Sequence[int]) -> int:
        """Returns the number of distinct turns of so many attempts. stages: the numbers of those that are played."""
        return len({(s, self.node(a, s)) for s in stages for a in range(attempts)})


@dataclass(frozen=True, kw_only=True)
class Player:
    """A seat in a game, and who sits in it."""

    name: str
    policy: Actor
    format: PromptFormat
    attempts: int
    """How many attempts this player makes at the problem in one episode."""
    temperature: float
    seed: int
    """Seed of this (run, step, problem, player); turns derive theirs from it."""
    max_tokens: int
    """Per turn."""
    top_p: float = 1.0
    top_k: int = 0
    """See Sampling; only where nothing learns."""
    branching: Branching | None = None
    """None: all attempts are played apart."""
    once: bool = False
    """See PlayRequest."""
    past: tuple[str, ...] = ()
    """What this player wrote at this problem in earlier steps, and its opponents meet besides (episode.Mistakes)."""
    heard: Callable[[int, Turn], None] | None = None
    """Told of each turn when it is there, with its attempt: for who shows play while it goes on."""
    writing: Callable[[int, str], None] | None = None
    """Told of the turn under way after each token (Sampling.heard): its place, and its text so far."""


class Game(Protocol):
    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """One play, all attempts of all players. memory: earlier programs for this problem.

        An attempt that the sandbox could not judge keeps reward None. Policy errors propagate.
        """
        ...

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        """Tokens of the longest sequence that an attempt of the player at this problem may take, prompts and
        completions of up to max_tokens each."""
        ...
