"""`/v1/solve`: takes a problem's text, and returns the reasoning stages, the program and the verdicts of the tests. It runs
sparring/evaluation/solving.py on the loaded models; programs run in the sandbox only.

If the request sets "stream", the answer is a stream of server-sent events: `stage` {"program", "stage", "text"} for each
finished turn, then `solution`, with the same data as an answer that is not streamed, or `error`.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from sparring.core.episode import Completion, Turn
from sparring.core.errors import SparringError
from sparring.core.interfaces import EngineFailure, Sampling, Sandbox
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.source import MOST_CHARS, parse, unchecked
from sparring.core.verdict import Limits
from sparring.evaluation.solving import Solver, SolveResult, Tester, stage_name
from sparring.evaluation.writing import PolicyWriter
from sparring.problems.formats.sources import with_signature
from sparring.runtime.model import Model, program_game, suite_game
from sparring.serving.engine import ServedModel
from sparring.serving.model_cache import ModelCache
from sparring.web.guard import error_answer

LIMITS = Limits(cpu_s=5, wall_s=20)
_LEAST_TOKENS = 16
"""Minimum number of tokens for a turn; a shorter turn would be useless."""
_MOST_CHARS = 100_000
"""Maximum length of all texts of a request together, since they are tokenized and parsed on the event loop."""
_TESTS_S = 7200.0
"""Maximum total time of the test runs of a request: their number times wall_s."""


class SolveRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str
    problem: Annotated[str, Field(min_length=1)]
    signature: str = ""
    tests: list[str] = []
    """Tests in Python, on which the program is run."""

    @field_validator("tests")
    @classmethod
    def _tests_check_something(cls, tests: list[str]) -> list[str]:
        for test in tests:
            with suppress(SyntaxError):  # which is reported later
                if (loose := unchecked(parse(test))) is not None:
                    raise ValueError(
                        f"{loose!r:.80} checks nothing; give an assert, such as 'assert f(1) == 2'"
                    )
        return tests

    attempts: int = Field(1, ge=1, le=16)
    """Maximum number of attempts. A further one is made if a test fails; its prompt lists the failures."""
    best_of: int = Field(1, ge=1, le=16)
    """Number of programs written at first. The discriminator's tests choose one."""
    discriminator: str | None = None
    suites: int = Field(2, ge=1, le=16)
    temperature: float = Field(0.7, ge=0, le=2)
    top_p: float = Field(0.9, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens per turn. Default: those of the model's run, or 512, if they fit into the context and into this
    turn's share of the service's --max-tokens."""
    stages: Literal["all", "none"] | None = None
    seed: int = 1
    stream: bool = False

    @model_validator(mode="after")
    def _is_short(self) -> "SolveRequest":
        chars = sum(map(len, (self.problem, self.signature, *self.tests)))
        if chars > _MOST_CHARS:
            raise ValueError(
                f"problem, signature and tests have {chars} characters; {_MOST_CHARS} may be sent"
            )
        return self


class PromptRefused(SparringError):
    """The engine cannot take a prompt. The request is at fault, which is only found out while it is processed."""


class CachedModelPolicy:
    """An actor (sparring.core.interfaces.Actor) that generates with a served model, at the same time as other requests. It holds the
    model for one turn only: two requests that each held one model and waited for another would wait for ever."""

    version = 0
    _ids = itertools.count()

    def __init__(self, model_cache: ModelCache[ServedModel], name: str) -> None:
        self._model_cache, self._name = model_cache, name

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Generates one completion. Raises EngineFailure if the model cannot be loaded or has died, PromptRefused if the prompt is
        too long."""
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        from actors.vllm_policy import completion_of, sampling_params

        async with self._model_cache.use(self._name) as engine:
            prompt, params = tokens_input(list(prompt_tokens)), sampling_params(sampling)
            try:
                found = [o async for o in engine.client.generate(prompt, params, f"solve-{next(self._ids)}")]
            except EngineDeadError as error:
                raise EngineFailure(f"the engine of {self._name} died; ask again") from error
            except ValueError as error:
                raise PromptRefused(
                    f"{self._name} takes no prompt of {len(prompt_tokens)} tokens: {error}"
                ) from error
        return completion_of(found[-1], self.version)


@dataclass(frozen=True, kw_only=True)
class Solving:
    models: Mapping[str, Model]
    model_cache: ModelCache[ServedModel]
    sandbox: Sandbox | None
    max_tokens: int
    """Maximum number of tokens of one request, all turns together."""

    async def answer(self, asked: SolveRequest) -> Response:
        unknown = next((n for n in (asked.model, asked.discriminator) if n and n not in self.models), None)
        if unknown:
            return unknown_model(unknown, self.models)
        stated = Problem(
            id="problem",
            description=asked.problem.strip(),
            function_signature=asked.signature,
            baseline_tests=tuple(asked.tests),
            reference_solution="",
        )
        problem = with_signature(stated, MOST_CHARS)
        try:
            solver = self._solver(asked, problem)
        except (ValueError, SparringError) as error:
            return error_answer(400, str(error), "invalid_request_error")
        if asked.stream:
            return StreamingResponse(_events(solver, problem), media_type="text/event-stream")
        try:
            return JSONResponse(_said(await solver.solve(problem)))
        except PromptRefused as error:
            return error_answer(400, str(error), "invalid_request_error")
        except SparringError as error:
            return error_answer(503, str(error), "model_not_loaded")

    def _solver(self, asked: SolveRequest, problem: Problem) -> Solver:
        """Returns the solver for a request. Raises ValueError if the request cannot be fulfilled."""
        model = self.models[asked.model]
        if self.sandbox is None and (asked.tests or asked.best_of > 1):
            raise ValueError("this service runs no programs (--sandbox none): leave out tests and best_of")
        if asked.attempts > 1 and not asked.tests:
            raise ValueError("attempts: only a failed test gives reason for another one; give tests")
        staged = asked.stages or model.usual_stages
        game = program_game(model, staged, None, [problem])
        turns = game.rules.turns
        room = model.context or 0
        fits = (
            (room - game.longest(problem, GENERATOR, model.style(), 0)) // turns if room else self.max_tokens
        )
        writes = asked.best_of * turns + asked.attempts - 1
        suites = asked.suites if asked.best_of > 1 else 0
        share = max(_LEAST_TOKENS, self.max_tokens // (writes + suites))
        each = asked.max_tokens or min(model.max_tokens, fits, share)
        if fits < _LEAST_TOKENS or each > fits:
            mend = "shorten it" if fits < _LEAST_TOKENS else f"give max_tokens of at most {fits}"
            raise ValueError(f"the problem leaves {max(0, fits)} tokens for each of {turns} turns: {mend}")
        tester = self._tester(asked, problem, share) if asked.best_of > 1 else None
        total = each * writes + (suites * tester.writer.max_tokens if tester else 0)
        if total > self.max_tokens:
            raise ValueError(f"this may take {total} tokens; one request may have {self.max_tokens}")
        runs = asked.attempts * len(asked.tests)
        runs += asked.best_of * suites * tester.game.max_tests if tester else 0
        if runs * LIMITS.wall_s > _TESTS_S:
            raise ValueError(
                f"programs may be run on {runs} tests of up to {LIMITS.wall_s:g} s, more than {_TESTS_S:g} s: ask for "
                "fewer tests, attempts, programs or suites"
            )
        return Solver(
            game=game,
            writer=self._writer(asked, asked.model, each),
            temperature=asked.temperature,
            sandbox=self.sandbox,
            limits=LIMITS,
            attempts=asked.attempts,
            best_of=asked.best_of,
            tester=tester,
            room=room,
        )

    def _tester(self, asked: SolveRequest, problem: Problem, share: int) -> Tester:
        if asked.temperature == 0:
            raise ValueError("best_of: all greedy programs are the same; give a temperature above 0")
        if asked.discriminator is None or not problem.function_signature:
            raise ValueError(
                "best_of: give the discriminator, a model of this service, and the signature, or tests"
            )
        model = self.models[asked.discriminator]
        return Tester(
            writer=self._writer(asked, asked.discriminator, min(model.max_tokens, share)),
            game=suite_game(f"discriminator {asked.discriminator}", model),
            suites=asked.suites,
            room=model.context or 0,
        )

    def _writer(self, asked: SolveRequest, name: str, max_tokens: int) -> PolicyWriter:
        return PolicyWriter(
            policy=CachedModelPolicy(self.model_cache, name),
            format=self.models[name].style(),
            max_tokens=max_tokens,
            seed=asked.seed,
            top_p=asked.top_p,
            top_k=asked.top_k,
        )


def unknown_model(name: object, models: Mapping[str, Model]) -> JSONResponse:
    said = f"there is no model {name!r}; these are served: {', '.join(models)}"
    return error_answer(404, said, "invalid_request_error")


def _said(solution: SolveResult) -> dict[str, Any]:
    return {name: value for name, value in solution.as_dict().items() if name not in ("id", "problem")}


async def _events(solver: Solver, problem: Problem) -> AsyncIterator[bytes]:
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def on_turn(program: int, turn: Turn) -> None:
        events.put_nowait({"program": program, "stage": stage_name(turn.stage), "text": turn.text})

    solving = asyncio.create_task(solver.solve(problem, on_turn))
    solving.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (stage := await events.get()) is not None:
            yield _event("stage", stage)
        yield _event("solution", _said(solving.result()))
    except SparringError as error:
        yield _event("error", {"message": str(error)})
    finally:
        solving.cancel()  # the client may have disconnected


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data))
