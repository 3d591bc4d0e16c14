"""The reward function for other trainers, against a service that answers as it is told to."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sandbox_workers import reward as reward_module
from sandbox_workers.reward import judge_reward, program_in
from tests.serving import served


class Judge:
    """Answers each program by the statuses that stand in it: "503 503 PASSED WRONG_ANSWER"."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.app = FastAPI()
        self.app.post("/judge")(self.judge)

    async def judge(self, request: Request) -> JSONResponse:
        asked = await request.json()
        refused = sum(one["program"] == asked["program"] for one in self.asked)
        self.asked.append(asked)
        self.keys.add(request.headers.get("authorization"))
        words = asked["program"].split()
        if refused < len(words) and words[refused].isdigit():
            return JSONResponse({"error": {"message": "no"}}, int(words[refused]), {"Retry-After": "0"})
        statuses = [word for word in words if not word.isdigit()]
        return JSONResponse({"verdicts": [{"status": status} for status in statuses]})


@pytest.fixture
def judge() -> Iterator[Judge]:
    judge = Judge()
    with served(judge.app) as judge.url:
        yield judge


def test_no_tests_no_reward(judge: Judge) -> None:
    assert judge_reward(judge.url)(completions=[""], tests=[[]]) == [None]


def test_a_reward_is_the_share_of_tests_passed(judge: Judge) -> None:
    reward = judge_reward(judge.url, key="sk-1", language="lua", limits={"cpu_s": 1})
    completions = ["PASSED PASSED", "PASSED WRONG_ANSWER", "TIME_LIMIT RUNTIME_ERROR"]
    tests = [["f(1)", "f(2)"]] * 3
    assert reward(completions=completions, prompts=["p"] * 3, tests=tests) == [1.0, 0.5, 0.0]
    assert judge.keys == {"Bearer sk-1"}
    told = {"language": "lua", "limits": {"cpu_s": 1}, "tests": ["f(1)", "f(2)"]}
    assert judge.asked[0].items() >= told.items()


def test_a_rows_reference_goes_along(judge: Judge) -> None:
    reward = judge_reward(judge.url, reference="solution")
    columns = {"completions": ["PASSED"] * 2, "tests": [["f(1)"]] * 2, "solution": ["one", "two"]}
    assert reward(**columns) == [1.0, 1.0]
    assert {asked["reference"] for asked in judge.asked} == {"one", "two"}


def test_what_was_not_judged_is_tried_again_and_then_no_reward(judge: Judge) -> None:
    reward = judge_reward(judge.url, column="cases")
    completions = ["503 429 PASSED WRONG_ANSWER", " ".join(["503"] * reward_module.ATTEMPTS)]
    assert reward(completions=completions, cases=[["f(1)", "f(2)"]] * 2) == [0.5, None]
    assert len(judge.asked) == 3 + reward_module.ATTEMPTS


def test_a_program_is_looked_for_in_the_judged_language(judge: Judge) -> None:
    completion = "```lua\nPASSED\n```\nIn Python:\n```python\ndef f(): pass\n```\n"
    assert judge_reward(judge.url, language="lua")(completions=[completion], tests=[["f(1)"]]) == [1.0]
    assert judge.asked[0]["program"] == "PASSED\n"


@pytest.mark.parametrize("status", [400, 401, 413])
def test_a_refused_request_is_an_error(judge: Judge, status: int) -> None:
    with pytest.raises(RuntimeError, match=f"refused a request: {status}"):
        judge_reward(judge.url)(completions=[str(status)], tests=[["f(1)"]])


def test_the_last_message_of_a_chat_is_the_completion() -> None:
    code = "```py\nx = 4\n```"
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": code}]
    assert program_in(chat) == program_in(code) == "x = 4\n"
