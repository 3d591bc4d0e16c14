"""sparring/cli/openenv.py by OpenEnv's own client: what an episode is, what is refused, and three steps of TRL's trainer."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.trl_runner import TRL_DIRECTORY
from sparring.cli.openenv import main

ROOT = Path(__file__).parents[2]
PROBLEMS = "sparring/examples/toy/train.json"
PAGE = (ROOT / "docs" / "use_the_judge_elsewhere.md").read_text()
pytestmark = pytest.mark.timeout(1200)
there = pytest.mark.skipif(not (TRL_DIRECTORY / "openenv").is_dir(), reason="`make .bench` installs OpenEnv")

EPISODES = """
import json, sys
from openenv.core import GenericEnvClient

RIGHT = "```python\\ndef clamp(value, low, high):\\n    return max(low, min(high, value))\\n```"
said = []

def tell(done):
    said.append({"observation": done.observation, "reward": done.reward, "done": done.done})

def refused(act):
    try:
        act()
    except RuntimeError as error:
        said.append(str(error))

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    refused(lambda: env.step({"text": "x"}))
    refused(lambda: env.reset(problem="nobody"))
    tell(env.reset(problem=sys.argv[2]))
    tell(env.step({"text": "I do not know."}))
    tell(env.step({"text": RIGHT}))
    refused(lambda: env.step({"text": RIGHT}))
    first, again = (env.reset(seed=3).observation["problem"] for _ in range(2))
    said.append([first == again, len({env.reset(seed=i).observation["problem"] for i in range(40)})])
print(json.dumps(said))
"""


def environment_of(home: Path) -> dict[str, str]:
    paths = f"{ROOT}:{TRL_DIRECTORY}"
    return {"PYTHONPATH": paths, "PATH": os.environ["PATH"], "HOME": str(home), "HF_HUB_OFFLINE": "1"}


@contextmanager
def served(home: Path, *settings: str) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, "-m", "sparring", "openenv", "--port", "0", *settings]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment_of(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"listening on (\S+)", line):
                yield found[1]
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        process.terminate()
        process.wait(60)


def run(program: str, home: Path, *arguments: str) -> str:
    script = home / "client.py"
    script.write_text(program)
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        command, cwd=home, env=environment_of(home), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@there
@pytest.mark.slow
def test_a_program_that_fails_is_told_why_and_written_again(tmp_path: Path) -> None:
    settings = ("--game.kind", "unit_tests", "--game.attempts-per-episode", "2")
    with served(tmp_path, *settings, "--dataset", "sparring/problems/example_problems.json") as url:
        early, nobody, put, wrong, right, late, drawn = json.loads(run(EPISODES, tmp_path, url, "clamp"))
    assert "reset first" in early and "reset first" in late
    assert "problem nobody: there is none of this id; there are " in nobody
    assert "Answer with the program only" in put["observation"]["prompt"]
    assert (put["reward"], put["done"]) == (None, False)
    assert (wrong["reward"], wrong["done"]) == (0.0, False)
    assert "Your program fails" in wrong["observation"]["prompt"]
    assert (right["reward"], right["done"]) == (2.0, True)
    assert right["observation"]["components"]["solved"] == 1.0
    assert [outcome["status"] for outcome in right["observation"]["outcomes"]] == ["PASSED"] * 3
    assert drawn[0] and drawn[1] > 1


@there
@pytest.mark.slow
def test_the_page_s_training_runs(tmp_path: Path) -> None:
    """The program of docs/use_the_judge_elsewhere.md, as it stands there."""
    (program,) = (b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "GenericEnvClient" in b)
    with served(tmp_path, "--dataset", PROBLEMS) as url:
        out = run(program.replace("http://127.0.0.1:8009", url), tmp_path)
    rewards = [float(reward) for reward in re.findall(r"'rewards/earned/mean': '?(-?[0-9.e-]+)", out)]
    assert len(rewards) == 3, out[-4000:]
    assert all(0 < reward <= 2 for reward in rewards)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "--port: "),
        (["--game.no-such-key", "1"], "no-such-key"),
        (
            ["--game.kind", "multistage"],
            "--game.kind multistage: cannot be served as an environment: give a game",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--dataset", PROBLEMS, *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_without_openenv_it_is_said_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openenv.core.env_server", None)
    with pytest.raises(SystemExit):
        main(["--dataset", PROBLEMS])
    assert "openenv" in (said := capsys.readouterr().err) and said.rstrip().endswith("pip install openenv")
