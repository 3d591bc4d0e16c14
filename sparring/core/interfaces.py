"""The interfaces between the packages: Policy, Sandbox, Game. The implementations are in other packages, and the driver
injects them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sparring.core.episode import Completion, Episode, Turn
from sparring.core.errors import RunFailed, SparringError
from sparring.core.problem import Problem
from sparring.core.verdict import Limits, Test, Verdict
from sparring.core.weights import PublishReceipt, WeightUpdate

SandboxKind = Literal["auto", "docker", "namespace", "process"]
"""auto: the first of the other kinds that can run on this machine (sandbox_workers/backends.py)."""
CodeTests = Literal["run", "refuse"]


class SandboxFailure(SparringError):
    """The sandbox could not judge a program, even after retries. The caller drops the attempt, without a reward, and counts
    it."""


class EngineFailure(RunFailed):
    """An inference engine cannot start, or has ended. The message contains the engine's own reason."""


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
        """Runs a program on tests. Returns one Verdict per test, in order.

        A test is an OutputTest or, for Python programs, Python source. An `assert` (or other statements) gives PASSED or
        the failure; a single expression gives PASSED with `value`, the repr of its plain value.
        Equal (program, test, limits, run, language) may be answered from a cache; a new `run` is judged afresh.
        Raises SandboxFailure.
        """
        ...

    def stats(self) -> dict[str, float]:
        """Returns counters since the start, for the log."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """The sampling parameters of one completion."""

    max_tokens: int
    stop_token_ids: tuple[int, ...]
    stop_texts: tuple[str, ...] = ()
    """Texts that end the completion, too, whichever tokens the model spells them with. The token that completes one is kept."""
    temperature: float = 1.0
    """0 means greedy."""
    seed: int | None = None
    top_p: float = 1.0
    """Sample from the likeliest tokens whose probabilities add up to this value. top_p and top_k are never set for training:
    the log-probabilities would be those of the truncated distribution, which the learner does not compute."""
    top_k: int = 0
    """Sample from this number of likeliest tokens, before top_p applies; 0: from all."""
    on_tokens: Callable[[Sequence[int]], None] | None = None
    """Callback that receives all tokens so far after each token, if the engine is in this process."""


class Actor(Protocol):
    """The part of a policy that a game needs: it takes token ids and returns sampled token ids with log-probabilities."""

    @property
    def version(self) -> int: ...

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion: ...


class Policy(Actor, Protocol):
    """An inference engine whose model's weights can be replaced in place."""

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Loads the weights of an update that holds its tensors; the tensors are not changed."""
        ...

    async def sleep(self) -> None:
        """Frees the GPU's memory until the next use, if the engine's settings say so. Call it only while no completion is
        being generated."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A game's message to a player.

    Example: Message(brief="100020000", full="You are X. The board: ... Answer with one digit.")
    """

    brief: str
    """Text for models that were trained on this game only."""
    full: str
    """Text for chat models, with all instructions."""
    marks: tuple[str, str] = ("<p>", "<w>")
    """Marker tokens before and after `brief`, for models with marker tokens (sparring/games/prompts.py); "" stands for no token."""
    begins: str = ""
    """Beginning of a chat model's answer, for example "```python\\n". These tokens are part of the prompt: they are not
    sampled and carry no loss. Models with marker tokens were trained on whole answers and do not get them."""


class PromptFormat(Protocol):
    """The conversion between messages and a model's tokens. Only its implementations know chat templates and marker
    tokens."""

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        """Returns the prompt for a message. It starts with `tokens`, which are all tokens of the trajectory so far, and ends
        with the beginning of the answer if the message gives one."""
        ...

    def shown(self, message: Message) -> str:
        """Returns the text of the message that the prompt contains."""
        ...

    def stop_token_ids(self) -> tuple[int, ...]:
        """Returns the tokens that end the model's turn."""
        ...

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        """Returns further texts that end an answer. If the answer begins a code block, the fence that closes the block is
        one, since text after the block is not used. A base model has no token that ends its turn: its turn ends if it
        begins to write the user's next message.

        begins: the message's `begins`.
        """
        ...

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        """Decodes an answer without the structural tokens.

        begins: the message's `begins`. The result starts with it if the format put it into the prompt.
        """
        ...

    def completion(self, text: str, closes: str = "<end>") -> list[int]:
        """Returns the token ids of an answer for supervised training, the inverse of `text`. They end with the token that ends
        the turn; for models with marker tokens this is `closes`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Branching:
    """A tree of attempts that share the turns before one stage: each such prefix has `branches` turns at that stage, and
    each of these has `continuations` after it."""

    stage: int
    branches: int
    continuations: int

    def place(self, attempt: int) -> tuple[int, int]:
        """Returns (prefix, branch) of an attempt. Branches are numbered over all prefixes."""
        return attempt // (self.branches * self.continuations), attempt // self.continuations

    def node(self, attempt: int, stage: int) -> int:
        """Returns the tree node of an attempt at a stage. Attempts with the same node share the turn of this stage."""
        prefix, branch = self.place(attempt)
        return prefix if stage < self.stage else branch if stage == self.stage else attempt

    def turns(self, attempts: int, stages: Sequence[int]) -> int:
        """Returns the number of distinct turns in a number of attempts. stages: the numbers of the stages that are played."""
        return len({(s, self.node(a, s)) for s in stages for a in range(attempts)})


@dataclass(frozen=True, kw_only=True)
class Player:
    """A player of a game, with the policy that acts for it and the parameters of its play."""

    name: str
    policy: Actor
    format: PromptFormat
    attempts: int
    """Number of attempts that this player makes at the problem in one episode."""
    temperature: float
    seed: int
    """Seed of this (run, step, problem, player). The seeds of turns are derived from it."""
    max_tokens: int
    """Maximum number of tokens per turn."""
    top_p: float = 1.0
    top_k: int = 0
    """See Sampling. Set outside of training only."""
    branching: Branching | None = None
    """None: all attempts are played independently."""
    once: bool = False
    """See PlayRequest."""
    past: tuple[str, ...] = ()
    """Programs or tests that this player wrote for this problem in earlier steps and that its opponents play against in
    addition (episode.Mistakes)."""
    on_turn: Callable[[int, Turn], None] | None = None
    """Callback that receives each finished turn with its attempt, so that play can be shown while it goes on."""
    on_text: Callable[[int, str], None] | None = None
    """Callback that receives the stage (or move) of the unfinished turn and its text so far, after each token
    (Sampling.on_tokens)."""


class Game(Protocol):
    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """Plays one problem: all attempts of all players.

        memory: earlier programs for this problem.

        An attempt that the sandbox could not judge keeps reward None. Errors of a policy propagate.
        """
        ...

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        """Returns an upper bound for the tokens of one attempt of the player at this problem: its prompts, and completions of
        up to max_tokens each."""
        ...
