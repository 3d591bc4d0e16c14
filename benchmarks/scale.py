"""Measures what the driver costs: the real driver, scheduler, window, rollout handles and mailboxes, on Ray, with
rollout actors and learners that only sleep. Nothing is generated, judged or learnt.

    python -m benchmarks.scale                     100 rollout actors, 25 steps of 4,000 groups and some others
    python -m benchmarks.scale --steps 3 --lag 1

A group is one problem: 8 attempts of the generator in five stages, 8 suites of the discriminator. Each actor makes up
its episodes once, one for each of its places in a step; their rows and transcripts are made, and sent, anew each time.
CPU seconds are those of the driver process, all its threads. There are three runs: steps of many groups, of a quarter
of them, and the latter with longer completions, so that the costs of a step, an episode and a token can be told apart.
The first step of each run, in which much is imported, is left out. Memory is read after each step.
"""

import asyncio
import logging
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import ray
from ray.exceptions import RayError

from actors.episodes import EpisodeRunner, PolicyClient
from actors.rollout import RayRollouts
from actors.scheduler import RayScheduler
from benchmarks.report import arguments, publish
from configs.load import load_run
from configs.schema import Config
from driver import train
from learners.mailbox import MailboxActor
from learners.train_loop import RayLearner
from sandbox_workers.nothing import NoSandbox
from sparring.core.arrays import opened
from sparring.core.batch import BatchSpec, Transcript
from sparring.core.episode import Completion, Episode, FinishReason, Outcome, Trajectory, Turn
from sparring.core.play import DISCRIMINATOR, GENERATOR, POLICIES, PlayProgress, PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import Weights, WeightUpdate
from sparring.runtime.build import ordered_ids
from sparring.runtime.parts import Parts, Start
from sparring.runtime.session import open_session

ATTEMPTS, STAGES, TESTS = 8, 5, 3
VOCABULARY = 151_000
TOKENS = "tokens of a completion"
"""The name of a policy that does not exist: its weight version sets the number of tokens of a completion."""
PROMPT_TOKENS, STAGE_TOKENS = 200, 20
PLAY_S, LEARN_S = 1.0, 0.5
RUNS = {"many": (32, 1.0), "few": (32, 0.25), "long": (256, 0.25)}
"""Tokens of a completion, and groups of a step as a share of the maximum, for each run."""
OTHERS = 6
"""Number of steps of all runs but the first."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lag", type=int, default=0)
    parser.add_argument("--steps", type=int, default=25, help="of the most groups")
    parser.add_argument(
        "--address", default="local", help="of a Ray cluster; its resource `far` takes the actors"
    )
    options = parser.parse_args()
    actors, problems, others = (4, 40, 3) if options.quick else (100, 4000, OTHERS)
    figures: dict[str, Any] = {"actors": actors, "problems": problems, "lag": options.lag}
    with sleeping_actors(actors, options.address) as rollouts:
        for name, (tokens, share) in RUNS.items():
            steps = options.steps if name == "many" and not options.quick else others
            found = simulate(rollouts, steps + 1, int(share * problems), tokens, options.lag)
            episodes = steps * int(share * problems)
            found |= {"episodes": episodes, "driver_ms_per_episode": 1000 * found.pop("driver_s") / episodes}
            figures |= {f"{name}_{key}": value for key, value in found.items()}
    publish(options.json, figures, {})


def simulate(rollouts: RayRollouts, steps: int, problems: int, tokens: int, lag: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run, recipe = load_run([
            "--config", "toy", "--output-dir", folder, "--run-name", "run", "--no-evaluation.enabled",
            "--curriculum.stages", "5", "--n-discriminator-steps", "0", "--n-generator-steps", "0",
            "--k-alternating-steps", str(steps), "--curriculum.problems-per-step", str(problems),
            "--checkpoint.every", "10", "--rollout.max-policy-lag", str(lag),
        ])  # fmt: skip
        parts = partial(sleeping_parts, rollouts)
        with patch("sparring.runtime.cluster.cluster_parts", parts), open_session(run, recipe) as session:
            this, ends = psutil.Process(), list[float]()
            memory, spent = list[int](), list[float]()

            def watch(row: Mapping[str, Any], episodes: list[Episode]) -> None:
                memory.append(this.memory_info().rss)
                ends.append(time.perf_counter())
                times = this.cpu_times()
                spent.append(times.user + times.system)

            session = replace(session, parts=replace(session.parts, watch=watch))
            session.weights[TOKENS] = Weights(version=tokens, update=None)
            train(session)
    return {
        "tokens_per_episode": ATTEMPTS * (STAGES + 1) * tokens,
        "driver_s": spent[-1] - spent[0],
        "episodes_per_s": (steps - 1) * problems / (ends[-1] - ends[0]),
        "driver_mib": memory[-1] / 2**20,
        "driver_mib_more_than_halfway": (memory[-1] - memory[len(memory) // 2]) / 2**20,
    }  # fmt: skip


@contextmanager
def sleeping_actors(count: int, address: str) -> Iterator[RayRollouts]:
    ours: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 2 << 30}
    local = address == "local"
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **(ours if local else {}))
    build: Any = Sleeping
    options = {"num_cpus": 0, "num_gpus": 0, "resources": {} if local else {"far": 0.001}}
    rollouts = RayRollouts(build, [options] * count, "cpu")
    try:
        rollouts.wait_ready()
        yield rollouts
    finally:
        rollouts.close()
        ray.shutdown()


@contextmanager
def sleeping_parts(
    rollouts: RayRollouts, config: Config, problems: list[Problem], start: Start
) -> Iterator[Parts]:
    with asyncio.Runner() as loop, ExitStack() as stack:
        yield Parts(
            scheduler=RayScheduler(**config.curriculum_arguments(ordered_ids(config, problems))),
            rollouts=rollouts,
            learners={
                policy: stack.enter_context(_sleeping_learner(policy, start.run_directory))
                for policy in config.policies
            },
            sandbox=NoSandbox(),
            describe=f"{len(rollouts.actors)} rollout actors that sleep",
            wait=loop.run,
            keep_weights=lambda weights, file: None,
            kept_weights=lambda version, file: Weights(version=version, update=None),
        )


class MadeUp:
    """A game without moves: each play returns the next of the made-up episodes."""

    def __init__(self) -> None:
        self.episodes: Iterator[Episode] = iter(())

    async def play(self, problem: Problem, *_: Any) -> Episode:
        return replace(next(self.episodes), problem_id=problem.id)


class NoEngine:
    async def load(self, weights: Weights | None, order: int) -> None:
        """Has nothing to load."""


class Sleeping:
    """A rollout actor around an EpisodeRunner that sleeps for the time that an engine would take."""

    def __init__(self, index: int) -> None:
        self._rng, self._tokens = random.Random(index), 0
        self._made: list[Episode] = []
        self._game: Any = MadeUp()
        nobody: Any = None
        engine: Any = NoEngine()
        speaker = PolicyClient(
            engines=[engine], format=nobody, decode=lambda tokens: "word " * len(tokens), max_tokens=0
        )
        speakers: dict[str, PolicyClient] = dict.fromkeys(POLICIES, speaker)
        self._runner = EpisodeRunner(
            self._game, NoSandbox(), speakers, dict(zip(POLICIES, POLICIES, strict=True)), 0
        )

    async def play(
        self, request: PlayRequest, on_progress: Callable[[PlayProgress], None]
    ) -> tuple[PlayResult, list[Transcript]]:
        began = time.time()
        if self._tokens != (tokens := request.weights[TOKENS].version):
            self._tokens, self._made = tokens, []
        await asyncio.sleep(PLAY_S * self._rng.uniform(0.5, 1.5))
        while len(self._made) < len(request.problems):
            self._made.append(self._episode())
        self._game.episodes = iter(self._made)
        result, transcripts = await self._runner.play(request, on_progress)
        return replace(result, spans=[("generate", began, time.time())]), transcripts

    async def close(self) -> None:
        """Has nothing to close."""

    def _episode(self) -> Episode:
        prompt, then = self._ids(PROMPT_TOKENS), self._ids(STAGE_TOKENS)
        solver = [self._attempt(GENERATOR, i, range(1, STAGES + 1), prompt, then) for i in range(ATTEMPTS)]
        tester = [self._attempt(DISCRIMINATOR, i, range(1), prompt, then) for i in range(ATTEMPTS)]
        return Episode(problem_id="", trajectories=solver + tester)

    def _attempt(
        self, player: str, number: int, stages: range, prompt: tuple[int, ...], then: tuple[int, ...]
    ) -> Trajectory:
        turns = []
        for stage in stages:
            sampled = self._ids(self._tokens)
            logprobs = tuple(-self._rng.random() for _ in sampled)
            completion = Completion(
                tokens=sampled, logprobs=logprobs, version=0, finish_reason=FinishReason.STOP
            )
            turns.append(
                Turn(stage=stage, prompt_tokens=prompt, completion=completion, text="word " * self._tokens)
            )
            prompt = (*prompt, *sampled, *then)
        outcomes = tuple(
            Outcome(test=f"assert f({i}) == {number}", owner="discriminator #0", status="PASSED")
            for i in range(TESTS)
        )
        return Trajectory(
            player=player,
            attempt=number,
            turns=turns,
            reward=self._rng.random(),
            components={"pass_rate": 1.0, "adversarial": 0.5, "length": 0.1},
            artifact=turns[-1].text,
            outcomes=outcomes,
        )

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.randrange(VOCABULARY) for _ in range(count))


@contextmanager
def _sleeping_learner(policy: str, folder: Path) -> Iterator[RayLearner]:
    mailbox = MailboxActor.options(num_cpus=0, max_concurrency=64).remote(policy)
    learning = _learn.options(name=f"learner of {policy}").remote(mailbox, policy, str(folder))

    def watch() -> None:  # as learners/train_loop.py does
        try:
            ray.get(learning)
        except RayError as error:
            mailbox.stop.remote(f"learner {policy}: {error}")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    learner: RayLearner = RayLearner(policy, 0, mailbox, lambda: {policy: learner.version})
    yield learner
    ray.get(mailbox.stop.remote())
    watcher.join()  # at its shutdown, Ray ends a process in which a thread still waits


@ray.remote(num_cpus=0, max_retries=0)
def _learn(mailbox: Any, policy: str, folder: str) -> None:
    """Does what a worker of learners/train_loop.py does, without learning."""
    versions, saved = {policy: 0}, None
    while (work := ray.get(mailbox.get_work.remote(versions, saved))) is not None:
        if work == "save":
            saved = dict(versions)
            Path(folder, "saved", policy).mkdir(parents=True, exist_ok=True)
            mailbox.saved.remote(saved, f"{folder}/saved")
            continue
        _, (reference,) = work
        spec: BatchSpec = ray.get(reference)
        batch = spec.batch(lambda places: [opened(transcripts) for transcripts in ray.get(places)])
        time.sleep(LEARN_S)
        versions = {policy: batch.step}
        ray.get(mailbox.put_result.remote(policy, {"loss": 0.0}, an_update(batch.step)))


def an_update(version: int) -> WeightUpdate:
    return WeightUpdate(version=version, tensors={}, digest=0, probe=(), probe_logprobs=())


if __name__ == "__main__":
    main()
