"""Whole runs on Ray whose parts are killed, or stopped without dying, one after the other: what is lost is played, judged and
learnt again, to the bit; with an engine that several rollout actors share, to rounding."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from configs.layers import leaves
from tests.integration.conftest import Drive, learned, living_children, rows_of, weights_of

STEPS = 5
RUN = (
    "--config", "toy", "--curriculum.stages", "5", "--n-discriminator-steps", "1", "--n-generator-steps", "1",
    "--k-alternating-steps", str(STEPS - 2), "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4",
    "--evaluation.problems", "4", "--evaluation.bank-programs", "2", "--evaluation.suites", "1", "--checkpoint.every", "1",
    "--generator.engine.kind", "transformers", "--discriminator.engine.kind", "transformers",
)  # fmt: skip
PARTS = {
    "rollout": "ray::RolloutShell",
    "scheduler": "ray::SchedulerActor",
    "sandbox": "ray::SandboxShell",
    "learner": "ray::RayTrainWorker",
    "engine": "ray::EngineShell",
}
"""Part -> how its process is called."""
ONE = {"rollout": 1, "scheduler": 1, "sandbox": 1, "learner": 1}
"""Strikes on a part. Each kind of part has tests of its own in every run: test_many_strikes.py, test_learner_killed.py,
test_sandbox_stopped.py, tests/integration/test_engines_lost.py."""
MOST = {"rollout": 3, "scheduler": 3, "sandbox": 4, "learner": 3}
"""As many strikes as a run survives (REPLACEMENTS)."""

pytestmark = pytest.mark.timeout(1500)


def processes(part: str) -> list[psutil.Process]:
    found = []
    for process in living_children():
        with suppress(psutil.Error):
            if (process.cmdline() or [""])[0].startswith(PARTS[part]):
                found.append(process)
    return found


def strikes(rng: Random, stops: int, most: Mapping[str, int]) -> Iterator[tuple[str, signal.Signals]]:
    order = [part for part, times in most.items() for _ in range(times)]
    rng.shuffle(order)
    for number, part in enumerate(order):
        # Ray Train looks for a stopped learner only now and then: it has a test of its own
        yield part, signal.SIGSTOP if number < stops and part != "learner" else signal.SIGKILL


def struck_run(
    drive: Drive, run: Path, seed: int, stops: int, most: Mapping[str, int], *arguments: str
) -> list[str]:
    """A run whose parts are struck at random moments of its steps. What was struck."""
    rng, done = Random(seed), list[str]()
    process = drive.start(*RUN, *arguments, "--output-dir", run.parent, "--run-name", run.name)
    began, step = time.monotonic(), 0
    left = list(strikes(rng, stops, most))
    while process.poll() is None:
        assert time.monotonic() - began < 1200, drive.ended(process).out
        now = len(rows_of(run))
        if now > step and left and now < STEPS:  # a row: begin to strike within the next step
            step = now
            for _ in range(-(-len(left) // (STEPS - now))):
                time.sleep(rng.uniform(0, 1.5))
                part, how = left.pop(0)
                while process.poll() is None:
                    if there := processes(part):
                        with suppress(ProcessLookupError):  # it has just ended: another is on its way
                            os.kill(rng.choice(there).pid, how)
                            done.append(f"step {now}: {part} {how.name}")
                            break
                    time.sleep(0.05)
        time.sleep(0.05)
    ended = drive.ended(process)
    assert process.returncode == 0, f"{done}\n{ended.out[-3000:]}\n{ended.err[-3000:]}"
    return done


@pytest.fixture(scope="module")
def whole(session_drive: Drive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happens to."""
    run = tmp_path_factory.mktemp("whole") / session_drive.name()
    done = session_drive.run(*RUN, "--output-dir", run.parent, "--run-name", run.name)
    assert done.code == 0, done.err
    return run


@pytest.mark.parametrize(
    ("seed", "most", "arguments"),
    [
        pytest.param(1, ONE, (), marks=pytest.mark.nightly),
        pytest.param(1, MOST, (), marks=pytest.mark.nightly),
        pytest.param(
            2,
            MOST | {"engine": 3},
            ("--generator.engine.count", "1", "--rollout.cpus", "0.1"),
            marks=pytest.mark.nightly,
        ),
    ],
)  # other seeds by hand: each takes more than a minute
def test_a_run_that_loses_its_parts_is_the_run_that_loses_none(
    drive: Drive,
    whole: Path,
    tmp_path: Path,
    seed: int,
    most: Mapping[str, int],
    arguments: tuple[str, ...],
) -> None:
    struck = tmp_path / drive.name()
    said = struck_run(drive, struck, seed, 1, most, *arguments)
    assert len(said) == sum(most.values()), said
    rows, undisturbed = learned(struck), learned(whole)
    assert [row["step"] for row in rows] == list(range(STEPS + 1)), "none is lost, none is counted twice"
    for row in rows:
        row.pop("played_again", 0)  # one may be struck with nothing to play
    assert not any(row.pop("played_again", 0) for row in undisturbed)
    if (
        "engine" in most
    ):  # for two rollout actors: what is computed together, and so the last bits, is by chance
        for row, other in zip(rows, undisturbed, strict=True):
            numbers, others = ({k: v for k, v in leaves(r) if isinstance(v, float)} for r in (row, other))
            assert numbers == pytest.approx(others, rel=1e-4, abs=1e-5)
        return
    assert rows == undisturbed
    assert weights_of(struck) == weights_of(whole), said
