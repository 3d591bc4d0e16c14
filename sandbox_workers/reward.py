"""The judge as a reward function of other trainers: TRL's GRPOTrainer, or any trainer that calls rewards in the same
way.

This file needs httpx and `sparring/core/answers.py`, which needs only the standard library. To copy this file, copy
`sparring/core/answers.py`, `sparring/core/fences.py`, `sparring/core/snippets.py` and `sparring/core/source.py` along.

A reward is the share of a row's tests that the program in the completion passes. If the service could not judge the
program, or the row has no tests, the reward is None, and TRL leaves the completion out. If the service refuses a
request (a wrong key, a test that is no test), an error is raised at once.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from sparring.core.answers import extract_program

ATTEMPTS = 6
LONGEST_WAIT_S = 60.0


def judge_reward(
    url: str,
    *,
    key: str | None = None,
    column: str = "tests",
    reference: str | None = None,
    language: str = "python",
    limits: dict[str, float] | None = None,
    in_flight: int = 32,
) -> Callable[..., list[float | None]]:
    """Returns a function for `reward_funcs`.

    Args:
        url: address of `python -m sandbox_workers serve`, such as "http://127.0.0.1:8080".
        key: API key, if the service asks for one.
        column: column of the data set with each row's tests, as `POST /judge` takes them: ["assert f(1) == 2", ...].
        reference: column of the data set with a correct program for each row. With it, nothing that a completion
            returns decides how a test is judged. Without it, a program can have some tests run in its own interpreter
            (docs/sandbox.md).
        language: language of the programs.
        limits: limits of a program, {"cpu_s": 2, ...}. If None, the service's defaults apply.
        in_flight: number of requests that are sent at once.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    client = httpx.Client(base_url=url, headers=headers, timeout=600)

    def reward(program: str, tests: Sequence[Any], right: str | None) -> float | None:
        asked = {"program": program, "tests": tests, "reference": right, "language": language}
        verdicts = ask(client, asked | ({"limits": limits} if limits else {}))
        return (
            sum(verdict["status"] == "PASSED" for verdict in verdicts) / len(verdicts) if verdicts else None
        )

    def judge(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        programs = [program_in(completion, language) for completion in completions]
        with ThreadPoolExecutor(in_flight) as threads:
            right = columns[reference] if reference else [None] * len(programs)
            return list(threads.map(reward, programs, columns[column], right))

    return judge


def program_in(completion: Any, language: str = "python") -> str:
    """Returns the program in a completion. If the completion is a chat, a list of messages, the last message counts."""
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    return extract_program(text, language=language)


def ask(client: httpx.Client, asked: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Returns the verdicts, or None if the service has not judged the request after ATTEMPTS attempts.

    Raises:
        httpx.HTTPError: the service cannot be reached.
        RuntimeError: the service refused the request.
    """
    for attempt in range(ATTEMPTS):
        answer = client.post("/judge", json=asked)
        if answer.status_code == 200:
            return answer.json()["verdicts"]
        if answer.status_code not in (429, 503):
            raise RuntimeError(f"the judge refused a request: {answer.status_code} {answer.text[:500]}")
        if attempt < ATTEMPTS - 1:
            time.sleep(min(LONGEST_WAIT_S, float(answer.headers.get("Retry-After", 1)) * 2**attempt))
    return None
