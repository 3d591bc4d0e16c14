"""A run of the real driver on Ray whose actors only sleep, so that many strikes take no long: what it plays again is what it
had played, and nothing is counted twice."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ray._private.state import actors as known_actors

from actors.rollout import RayRollouts
from benchmarks.scale import ATTEMPTS, TOKENS, sleeping_parts
from configs.load import load_run
from driver import train
from sparring.core.weights import Weights
from sparring.runtime.session import open_session
from tests.chaos.sleeping import Playing
from tests.integration.conftest import learned, rows_of
from tests.ray_clusters import own_ray

ACTORS, STEPS, PROBLEMS = 6, 6, 24
TIMES = 2
"""Each place is struck: at the fourth loss of one a run gives up, and a slow machine may lose one by itself."""
SCHEDULER = -1
SILENCE_S = 12.0
"""Two strikes stop a process, which is there and answers nobody."""


@contextmanager
def playing() -> Iterator[RayRollouts]:
    """Of a cluster that ends with them."""
    with own_ray(object_store_memory=200 << 20):
        build: Any = Playing
        rollouts = RayRollouts(build, [{"num_cpus": 0, "num_gpus": 0}] * ACTORS, "cpu")
        rollouts.wait_ready()
        yield rollouts
        rollouts.close()


def play(rollouts: RayRollouts, run: Path) -> None:
    asked, recipe = load_run([
        "--config", "toy", "--output-dir", str(run.parent), "--run-name", run.name, "--no-evaluation.enabled",
        "--curriculum.stages", "5", "--n-discriminator-steps", "0", "--n-generator-steps", "0",
        "--k-alternating-steps", str(STEPS), "--curriculum.problems-per-step", str(PROBLEMS), "--checkpoint.every", "2",
    ])  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparring.runtime.cluster.cluster_parts", partial(sleeping_parts, rollouts))
        with open_session(asked, recipe) as session:
            session.weights[TOKENS] = Weights(version=4, update=None)
            train(session)


class Killer(threading.Thread):
    """Strikes within each step but the last, as soon as whom it is to strike is there."""

    def __init__(self, rollouts: RayRollouts, run: Path) -> None:
        super().__init__(daemon=True)
        self._rollouts, self._run, self._rng = rollouts, run, Random(1)
        places = [*range(ACTORS), SCHEDULER]
        self.left = [place for _ in range(TIMES) for place in self._rng.sample(places, len(places))]
        self.struck: list[int] = []
        """Process ids."""

    def run(self) -> None:
        for step in range(STEPS - 1):
            while len(rows_of(self._run)) < step:
                time.sleep(0.05)
            for place in [self.left.pop(0) for _ in range(-(-len(self.left) // (STEPS - 1 - step)))]:
                time.sleep(self._rng.uniform(0, 0.4))
                stops = len(self.struck) % (ACTORS + 1) == 5
                self._strike(place, signal.SIGSTOP if stops else signal.SIGKILL)

    def _strike(self, place: int, how: signal.Signals) -> None:
        while True:
            for actor in known_actors().values():
                if place == SCHEDULER:
                    here = actor["ActorClassName"] == "SchedulerActor"
                else:
                    here = actor["ActorID"] == self._rollouts.actors[place]._actor_id.hex()
                if here and actor["State"] == "ALIVE" and actor["Pid"] not in self.struck:
                    with suppress(ProcessLookupError):  # it has just ended: another is on its way
                        os.kill(actor["Pid"], how)
                        self.struck.append(actor["Pid"])
                        return
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_struck_again_and_again_is_the_run_that_nothing_happens_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("watching", "scheduler"):
        monkeypatch.setattr(f"actors.{module}.SILENCE_S", SILENCE_S)
    with playing() as rollouts:
        play(rollouts, tmp_path / "whole")
        killer = Killer(rollouts, tmp_path / "struck")
        killer.start()
        play(rollouts, tmp_path / "struck")
        killer.join(0)
        assert not killer.left and len(killer.struck) == TIMES * (ACTORS + 1), killer.struck
    whole, struck = (learned(tmp_path / run) for run in ("whole", "struck"))
    again = sum(row.pop("played_again", 0) for row in struck)
    assert again and not sum(row.pop("played_again", 0) for row in whole)
    assert struck == whole
    assert len(struck) == STEPS
    episodes = [(tmp_path / run / "episodes.jsonl").read_bytes() for run in ("whole", "struck")]
    assert episodes[0] == episodes[1] and episodes[0].count(b"\n") == STEPS * PROBLEMS * 2 * ATTEMPTS
