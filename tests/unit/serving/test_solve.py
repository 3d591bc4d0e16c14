"""What a request to /v1/solve may ask for, and what it is given where it does not say. Nothing is written or run."""

import dataclasses
import json
from typing import Any, cast

import pytest
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from sparring.core.problem import Problem
from sparring.core.project_files import EXAMPLES
from sparring.evaluation.solving import Solver, SolveResult
from sparring.runtime.model import Model, open_model
from sparring.serving import solve as serving_solve
from sparring.serving.solve import PromptRefused, SolveRequest, Solving

pytestmark = pytest.mark.asyncio

MODELS = {
    name: open_model(str(EXAMPLES / "toy" / name), "--model") for name in ("generator", "discriminator")
}
HUB = dataclasses.replace(MODELS["generator"], run={}, context=32_768)
BEST_OF = {"best_of": 2, "discriminator": "discriminator", "signature": "def f(n: int) -> int:"}


class Asked(Solver):
    """Instead of one that solves."""

    seen: list[Solver]
    problems: list[Problem]
    fails: Exception | None = None

    async def solve(self, problem: Any, on_turn: Any = None) -> SolveResult:
        self.seen.append(self)
        self.problems.append(problem)
        if self.fails:
            raise self.fails
        return SolveResult(problem=problem.id, attempts=[])


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> type[Asked]:
    monkeypatch.setattr(Asked, "seen", [], raising=False)
    monkeypatch.setattr(Asked, "problems", [], raising=False)
    monkeypatch.setattr(Asked, "fails", None)
    monkeypatch.setattr(serving_solve, "Solver", Asked)
    return Asked


async def ask(
    generator: Model = MODELS["generator"], max_tokens: int = 4096, **change: Any
) -> tuple[int, str]:
    parts: dict[str, Any] = {"model_cache": None, "sandbox": object(), "max_tokens": max_tokens}
    solving = Solving(models=MODELS | {"generator": generator}, **parts)
    request = {"model": "generator", "problem": "Return n doubled."} | change
    answer = await solving.answer(SolveRequest.model_validate(request))
    if isinstance(answer, StreamingResponse):
        said = b"".join([bytes(cast(bytes, part)) async for part in answer.body_iterator])
    else:
        said = bytes(answer.body)
    return answer.status_code, said.decode()


@pytest.mark.parametrize(
    "change", [BEST_OF, BEST_OF | {"best_of": 8, "suites": 4}, {"attempts": 9, "tests": ["f(1)"]}]
)
async def test_what_is_not_said_fits(asked: type[Asked], change: dict[str, Any]) -> None:
    for model in (HUB, MODELS["generator"]):
        status, said = await ask(model, **change)
        assert status == 200, said
        solver = asked.seen[-1]
        writes = 5 * solver.best_of + solver.attempts - 1
        tests = solver.tester.suites * solver.tester.writer.max_tokens if solver.tester else 0
        assert writes * solver.writer.max_tokens + tests <= 4096


async def test_the_discriminators_tokens_count(asked: type[Asked]) -> None:
    status, said = await ask(HUB, 1000, **BEST_OF, suites=16)
    assert status == 200, said
    tester = asked.seen[-1].tester
    assert tester and 16 * tester.writer.max_tokens + 10 * asked.seen[-1].writer.max_tokens <= 1000
    assert "may take" in (await ask(HUB, 400, **BEST_OF, suites=16))[1]


async def test_a_test_that_every_program_passes_is_refused() -> None:
    with pytest.raises(ValidationError, match="checks nothing"):
        SolveRequest(model="m", problem="p", tests=["assert f()", "f() == 2"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"best_of": 2}, "best_of: give the discriminator"),
        (BEST_OF | {"temperature": 0}, "best_of: all greedy programs are the same"),
        (BEST_OF | {"best_of": 16, "max_tokens": 90}, "this may take"),
        ({"tests": ["f()"] * 400}, "400 tests of up to 20 s"),
        ({"tests": ["f()"] * 200, "attempts": 2}, "400 tests of up to 20 s"),
        (
            BEST_OF | {"best_of": 16, "suites": 16},
            f"{256 * MODELS['discriminator'].game['max_tests']} tests of",
        ),
    ],
)
async def test_what_cannot_choose_and_what_takes_too_long_is_refused(
    change: dict[str, Any], reason: str
) -> None:
    status, said = await ask(**change)
    assert status == 400 and reason in json.loads(said)["error"]["message"]


async def test_a_function_without_a_signature_is_the_one_that_the_tests_call(asked: type[Asked]) -> None:
    status, said = await ask(**BEST_OF | {"signature": ""}, tests=["assert double(2) == 4"])
    assert status == 200, said
    assert asked.problems[-1].function_signature == "def double(x1):"


async def test_a_prompt_that_no_engine_takes_is_the_requests_fault(asked: type[Asked]) -> None:
    asked.fails = PromptRefused("generator takes no prompt of 9000 tokens")
    status, said = await ask()
    assert status == 400 and "no prompt of 9000 tokens" in json.loads(said)["error"]["message"]
    status, said = await ask(stream=True)
    assert said.startswith("event: error") and "no prompt of 9000 tokens" in said
