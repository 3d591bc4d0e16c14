"""Offers every game as an environment of `verifiers`, the library of prime-rl: other trainers' models play.

A task is one problem (in board games, one match), and an episode is one episode of the game. Each attempt of a player is a
conversation with the agent named after the player's policy, `generator` or `discriminator`. The attempt's reward and its
components are recorded in the conversation's trace. Prompts, judging and rewards are the game's own.

With `--env.generator-writes seeded_bugs`, a model plays the discriminator only: it writes tests against programs that are
seeded bugs of the reference solution.

An attempt that the sandbox could not judge fails the episode; verifiers plays it again if `--env.retries` says so. An attempt
without a reward for another reason, such as a program without a valid test, is marked as not trainable.

Needs verifiers 0.4, which loads this module by the package in examples/sparring_env.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, Protocol, Self

import openai
import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
from pydantic import Field, model_validator
from verifiers.v1.dialects.chat import message_to_wire  # pyright: ignore[reportMissingImports]

from configs.sections import ProblemFormat
from sandbox_workers.local import LocalSandbox
from sparring.core.episode import Completion, Episode, FinishReason, Trajectory
from sparring.core.errors import SparringError
from sparring.core.interfaces import Message, Player, Sampling, SandboxFailure, SandboxKind
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits
from sparring.evaluation.mutants import seeded_bugs
from sparring.games import USUAL, GameRules
from sparring.problems.formats import load_dataset
from sparring.problems.references import judge_references
from sparring.runtime.problem_sets import playable

_MUTANTS = 12
"""Number of mutants of a reference solution that are tried as bugs."""


class SparringTasksetConfig(vf.TasksetConfig):
    dataset: str = "sparring/examples/toy/train.json"
    """Data set: a file, "owner/name" on the hub, or a directory (formats q and grids). Not used by games without coding
    problems."""
    format: ProblemFormat = "problems"
    """Format of the data set; see sparring/problems/formats."""
    split: str | None = None
    """Split of the data set, if it has splits (on the hub; mbpp, q)."""
    fields: dict[str, str] = {}
    """Mapping from our names to the data set's columns; with format fields only."""
    game: GameRules = USUAL
    """The game, with its settings."""


class SparringTask(vf.Task[vf.TaskData]):
    """One problem. The task's data hold the problem's id only: no trace contains the tests or the reference solution."""


class SparringTaskset(vf.Taskset[SparringTask, SparringTasksetConfig]):
    def __init__(self, config: SparringTasksetConfig) -> None:
        """Reads the data set. Raises SparringError if it is unusable, or if the game can play none of its problems."""
        super().__init__(config)
        rules = config.game
        if "problems" in rules.uses:
            problems = load_dataset(config.dataset, config.format, fields=config.fields, split=config.split)
            problems = playable(problems, config.dataset, rules.refuse, leave_out=True)
        else:
            problems, _ = rules.own_problems(0)
        self.problems = {problem.id: problem for problem in problems}

    def load(self) -> Iterator[SparringTask]:
        for name in self.problems:
            yield SparringTask(vf.TaskData(id=name, name=name), self.config.task)


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model for the next answer of a conversation, from this process. verifiers' own harness for this, `null`,
    starts a Python process for each answer, which takes seconds."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """See vf.Harness. The answer reaches the trace on its way through `endpoint`."""
        system, prompt = self.resolve_prompt(data)
        messages = [message_to_wire(message) for message in prompt or []]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            try:
                await client.chat.completions.create(model=ctx.model, messages=messages)
            except (
                openai.APIError
            ) as error:  # verifiers knows whether it ended the conversation itself, at a limit
                return vf.ProgramResult(1, "", str(error))
        return vf.ProgramResult(0, "", "")


def _agent() -> vf.AgentConfig:
    return vf.AgentConfig(runtime={"type": "subprocess"})  # where a harness runs that is a program of its own


class SparringEnvConfig(vf.EnvConfig):
    generator: vf.AgentConfig = _agent()
    discriminator: vf.AgentConfig = _agent()
    attempts: int = Field(1, ge=1)
    """Number of attempts of each player in an episode. In the multi-stage game, every program runs on every suite."""
    generator_writes: Literal["model", "seeded_bugs"] = "model"
    """Who writes the generator's programs. seeded_bugs: they are made from the reference solution, and are the same ones in
    all episodes of a task; no model plays the generator."""
    sandbox: SandboxKind = "auto"
    slots: int = Field(2, ge=1, le=31)
    """Number of programs that are judged at once."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if not isinstance(self.taskset, SparringTasksetConfig):
            return self
        rules = self.taskset.game
        if getattr(rules, "attempts_per_episode", 1) > 1:
            raise ValueError(
                "taskset.game.attempts_per_episode must be 1: a trace of verifiers has one reward"
            )
        if self.generator_writes == "seeded_bugs" and "suites" not in rules.uses:
            raise ValueError(f"generator_writes seeded_bugs: in game {rules.kind}, nobody writes tests")
        return self


class SparringEnv(vf.Env[SparringEnvConfig]):
    async def start(self) -> None:
        """Opens the sandbox."""
        rules: GameRules = self.config.taskset.game
        self._limits = rules.limits or Limits()
        self._sandbox = LocalSandbox(self.config.sandbox, slots=self.config.slots, limits=self._limits)
        self._checked: dict[str, Problem] = {}

    async def stop(self) -> None:
        if hasattr(self, "_sandbox"):  # start may have failed
            self._sandbox.close()

    async def run(self, task: SparringTask, agents: vf.Agents) -> None:
        """Plays one episode and records the rewards.

        Raises:
            SandboxFailure: an attempt could not be judged.
            SparringError: the reference solution fails its own tests, or a model did not answer.
        """
        rules: GameRules = self.config.taskset.game
        problem = await self._problem(str(task.data.id))
        async with AsyncExitStack() as stack:
            policies = {
                player: await self._policy(policy, problem, agents, stack)
                for player, policy in rules.seats.items()
            }
            players = {name: self._player(name, problem, policy) for name, policy in policies.items()}
            episode = await rules.game().play(problem, players, self._sandbox)
        _record(episode, policies)

    async def _problem(self, name: str) -> Problem:
        if name not in self._checked:
            [problem], failing = await judge_references([self.taskset.problems[name]], self._sandbox)
            if failing:
                raise SparringError(f"{failing[name][0].text}; leave it out: --select.exclude.ids {name}")
            self._checked[name] = problem
        return self._checked[name]

    async def _policy(
        self, policy: str, problem: Problem, agents: vf.Agents, stack: AsyncExitStack
    ) -> "_TextPolicy":
        if policy == GENERATOR and self.config.generator_writes == "seeded_bugs":
            bugs = await seeded_bugs(problem, self._sandbox, self._limits, count=_MUTANTS)
            if not bugs:
                raise SparringError(f"problem {problem.id}: no mutant of its reference solution is a bug")
            programs = itertools.cycle(bugs)

            async def write() -> _Conversation:
                return _SeededBug(next(programs).source)

            return _TextPolicy(write)
        agent = getattr(agents, policy)

        async def converse() -> _Conversation:
            # without a prompt: the game's first message opens the conversation
            data = vf.TaskData(id=problem.id, name=problem.id)
            return await stack.enter_async_context(agent.interaction(vf.Task(data)))

        return _TextPolicy(converse)

    def _player(self, name: str, problem: Problem, text_policy: "_TextPolicy") -> Player:
        return Player(
            name=name,
            policy=text_policy,
            format=text_policy,
            attempts=self.config.attempts,
            seed=derive_seed("verifiers", problem.id),  # of the deal: the same in all episodes of a task
            temperature=1.0,  # this and max_tokens are not used: verifiers has its own sampling settings
            max_tokens=1,
        )


class _Conversation(Protocol):
    """One conversation, such as `vf.Interaction`."""

    async def turn(self, message: str) -> Any:
        """Returns the answer, which has the attributes of `vf.Segment`."""
        ...


class _SeededBug:
    """A conversation that always gives the same program."""

    def __init__(self, source: str) -> None:
        self._answer = vf.Segment(messages=[], root_reply=source)

    async def turn(self, message: str) -> vf.Segment:
        return self._answer


class _TextPolicy:
    """A policy and its prompt format, for a player that gets and gives texts. A token is the index of a whole text. The last
    token of a prompt is the new message; the token before it is the last answer, which tells the conversation."""

    version = 0

    def __init__(self, begin: Callable[[], Awaitable[_Conversation]]) -> None:
        """begin: begins a conversation."""
        self._begin = begin
        self._texts: list[str] = []
        self._conversations: dict[int, _Conversation] = {}

    def conversation(self, attempt: Trajectory) -> _Conversation:
        return self._conversations[int(attempt.turns[-1].completion.tokens[-1])]

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        *before, asked = map(int, prompt_tokens)
        conversation = self._conversations[before[-1]] if before else await self._begin()
        answer = await conversation.turn(self._texts[asked])
        if answer.terminated and (error := conversation.trace.last_error):  # pyright: ignore[reportAttributeAccessIssue]
            raise SparringError(f"the model did not answer: {error.type}: {error.message}")
        token = self._add(answer.last_reply)
        self._conversations[token] = conversation
        reason = FinishReason.LENGTH if answer.terminated else FinishReason.STOP
        return Completion(tokens=(token,), logprobs=(0.0,), version=0, finish_reason=reason)

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        return [*tokens, self._add(message.full)]

    def shown(self, message: Message) -> str:
        return message.full

    def stop_token_ids(self) -> tuple[int, ...]:
        return ()

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        return ()

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        return "".join(self._texts[token] for token in completion_tokens)

    def completion(self, text: str, closes: str = "<end>") -> list[int]:
        return [self._add(text)]

    def _add(self, text: str) -> int:
        self._texts.append(text)
        return len(self._texts) - 1


def _record(episode: Episode, policies: dict[str, _TextPolicy]) -> None:
    """Records the rewards and their components in the traces. Raises SandboxFailure."""
    for attempt in episode.trajectories:
        if "sandbox_failure" in attempt.components:
            raise SandboxFailure(f"problem {episode.problem_id}: the sandbox could not judge an attempt")
        conversation = policies[attempt.player].conversation(attempt)
        if isinstance(conversation, _SeededBug):
            continue
        trace = conversation.trace  # pyright: ignore[reportAttributeAccessIssue]
        trace.info["sparring"] = {"player": attempt.player, "attempt": attempt.attempt}
        trace.record_metrics(attempt.components)
        if attempt.reward is None:
            trace.agent.trainable = False
        else:
            trace.record_reward("reward", attempt.reward)
