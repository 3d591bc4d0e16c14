"""examples/sparring_env by verifiers' own runner: what a game's attempts earn arrives in the traces, and an infrastructure
failure does not. The model's answers are scripted, behind a real server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from benchmarks.trl_runner import TRL_DIRECTORY
from tests.serving import served

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (TRL_DIRECTORY / "verifiers").is_dir(), reason="`make .bench` installs verifiers"),
]
RUNNER = "from verifiers.v1.cli.eval.main import main; main()"
RIGHT = "def clamp(value, low, high):\n    return max(low, min(high, value))"
WRONG = "def clamp(value, low, high):\n    return max(low, value)"
PROGRAM = "```python\n{}\n```"
SUITE = "```python\nassert clamp(5, 1, 3) == 3\nassert clamp(-5, 1, 3) == 1\nassert clamp(2, 1, 3) == 2\n```"
PROBLEM = {
    "id": "clamp",
    "description": "Limit value to the range from low to high.",
    "difficulty": 1,
    "tags": [],
    "function_signature": "def clamp(value: int, low: int, high: int) -> int:",
    "baseline_tests": ["assert clamp(7, 1, 3) == 3"],
    "reference_solution": RIGHT,
}


def answering(programs: Sequence[str]) -> FastAPI:
    """Returns a server whose model writes these programs in turn, the suite above, and legal moves."""
    app, left = FastAPI(), list(programs)

    @app.post("/v1/chat/completions")
    async def answer(request: Request) -> dict[str, Any]:
        body = await request.json()
        asked = str(body["messages"][-1]["content"])
        if "Write tests" in asked:
            text = SUITE
        elif "poker" in asked:
            text = "bet"
        else:
            text = PROGRAM.format(left.pop(0))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }

    return app


def evaluated(home: Path, url: str, *settings: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Returns verifiers' run, and the episodes that it stored."""
    (home / "problems.json").write_text(json.dumps({"problems": [PROBLEM]}))
    command = [sys.executable, "-c", RUNNER, "sparring-env", "-m", "any", "--client.base-url", f"{url}/v1"]
    paths = f"{ROOT}:{ROOT / 'examples' / 'sparring_env'}:{TRL_DIRECTORY}"
    done = subprocess.run(
        [*command, "--no-push", "--no-rich", *settings],
        cwd=home,
        env={"PYTHONPATH": paths, "PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    stored = list(home.glob("outputs/*/traces.jsonl"))
    return done, [json.loads(line) for path in stored for line in path.read_text().splitlines()]


def earned(episode: Mapping[str, Any]) -> dict[str, list[float]]:
    """Returns the rewards of an episode's traces, by agent, in ascending order."""
    rewards: dict[str, list[float]] = {}
    for trace in episode["traces"]:
        rewards.setdefault(trace["agent"]["name"], []).append(trace["rewards"]["reward"]["score"])
    return {agent: sorted(values) for agent, values in rewards.items()}


def test_both_players_of_the_multistage_game_are_agents(tmp_path: Path) -> None:
    with served(answering([RIGHT, WRONG])) as url:
        done, [episode] = evaluated(
            tmp_path, url, "--env.taskset.dataset", "problems.json", "--env.taskset.game.stages", "0",
            "--env.attempts", "2", "--env.taskset.game.rewards.partial-credit", "never",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    rewards = earned(episode)
    assert rewards["generator"] == [0.0, 1.0], "the program that fails a valid test, and the other one"
    assert len(rewards["discriminator"]) == 2 and min(rewards["discriminator"]) > 0, (
        "one of the programs is killed"
    )
    assert all(trace["agent"]["trainable"] and trace["metrics"] for trace in episode["traces"])
    # a trace is for whoever trains: it says what was asked and answered, and nothing that was hidden
    assert "reference" not in json.dumps(episode["task"])


def test_each_stage_is_a_turn_of_one_conversation(tmp_path: Path) -> None:
    with served(answering(["# a plan", RIGHT])) as url:
        done, [episode] = evaluated(
            tmp_path, url, "--env.taskset.dataset", "problems.json", "--env.taskset.game.stages", "1"
        )
    assert done.returncode == 0, done.stderr[-4000:]
    [generator] = [trace for trace in episode["traces"] if trace["agent"]["name"] == "generator"]
    assert [node["message"]["role"] for node in generator["nodes"]] == ["user", "assistant"] * 2
    assert earned(episode)["generator"] == [1.0]


def test_a_model_writes_tests_against_seeded_bugs(tmp_path: Path) -> None:
    with served(answering([])) as url:
        done, [episode] = evaluated(
            tmp_path, url, "--env.taskset.dataset", "problems.json", "--env.generator-writes", "seeded_bugs",
            "--env.taskset.game.attack", "program", "--env.attempts", "2",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(earned(episode)) == ["discriminator"]
    prompts = {trace["nodes"][0]["message"]["content"] for trace in episode["traces"]}
    assert len(prompts) == 2 and all("the program below" in prompt for prompt in prompts), (
        "two bugs are shown"
    )


def test_one_agent_sits_on_both_sides_of_a_board_game(tmp_path: Path) -> None:
    with served(answering([])) as url:
        done, episodes = evaluated(tmp_path, url, "--env.taskset.game.kind", "kuhn", "-n", "4", "-r", "2")
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(episodes) == 8
    deals: dict[str, list[list[float]]] = {}
    for episode in episodes:
        [first, second] = earned(episode)["generator"]
        assert first == -second == -2.0, "who bets and is called wins or loses two chips"
        hands = [
            re.findall("You hold (.)", str(t["nodes"][0]["message"]["content"])) for t in episode["traces"]
        ]
        deals.setdefault(episode["task"]["data"]["id"], []).append(hands)  # type: ignore[arg-type]
    assert all(one == other for one, other in deals.values()), "the rollouts of a task have one deal"
    assert len({json.dumps(hands) for hands in deals.values()}) > 1


def test_a_model_that_does_not_answer_is_an_error_and_earns_nothing(tmp_path: Path) -> None:
    with served(FastAPI()) as url:  # answers 404
        done, [episode] = evaluated(tmp_path, url, "--env.taskset.dataset", "problems.json")
    assert "the model did not answer" in episode["errors"][0]["message"], done.stderr[-4000:]
    assert not any(trace["rewards"] for trace in episode["traces"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["--env.taskset.game.attempts-per-episode", "2"], "attempts_per_episode must be 1"),
        (
            ["--env.taskset.game.kind", "unit_tests", "--env.generator-writes", "seeded_bugs"],
            "in game unit_tests, nobody writes tests",
        ),
        (["--env.taskset.dataset", "nowhere.json"], "nowhere.json"),
        (["--env.taskset.game.no-such-key", "1"], "no-such-key"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: list[str], said: str, tmp_path: Path) -> None:
    done, episodes = evaluated(tmp_path, "http://127.0.0.1:1", *settings)
    assert done.returncode != 0 and not episodes
    assert said in " ".join(re.sub("[│╭╮╰╯─]", " ", done.stdout + done.stderr).split())
