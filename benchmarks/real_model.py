"""Measures a pretrained chat model in the multi-stage game: how good its tests and programs are before any training,
how fast it plays, and how long a run with it takes until its first evaluation.

    python -m benchmarks.real_model --model DIR --dataset mbpp.jsonl --format mbpp
    python -m benchmarks.real_model --model DIR --quick       two problems, the program at once, 32 tokens a turn, no run
    python -m benchmarks.real_model --model DIR --at-once     without R0's stages, which take ten times as long

What stands after `--` is given to the run.

Settings are those of the recipe `chat`: programs at once and in R0's stages, suites of at most four tests, temperature
1. The baseline of the speed is bare vLLM on the same prompts with the same number of tokens, in the same process and
with the same number of threads. A run is one step of each phase, by `driver.py`, with 8 held-out problems; its memory
is the largest sum of proportional set sizes over its processes, beside the planned memory.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.settings import ENGINE_ENVIRONMENT
from benchmarks.end_to_end import watch_memory
from benchmarks.report import arguments, publish
from sparring.problems.formats import load_dataset

os.environ |= ENGINE_ENVIRONMENT
os.environ["OMP_NUM_THREADS"] = os.environ.get("THREADS", "1")

_EXAMPLES = "sparring/problems/example_problems.json"
_SUITES = _PROGRAMS = 2
_HELD_OUT = 8


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", default="smollm2", help="directory, GGUF file or hub id")
    parser.add_argument("--dataset", default=_EXAMPLES, help="file of problems with reference solutions")
    parser.add_argument("--format", default="problems", help="its format, as sparring evaluate takes it")
    parser.add_argument("--split", help="of the data set")
    parser.add_argument("--problems", type=int, default=24, help="the first so many")
    parser.add_argument(
        "--at-once", action="store_true", help="the program at once, without reasoning stages"
    )
    parser.add_argument("--no-run", action="store_true", help="the game alone, without a training run")
    parser.add_argument("more", nargs="*", help="after --: arguments of the run")
    options = parser.parse_args()
    problems = load_dataset(options.dataset, options.format, split=options.split)
    at_once = options.quick or options.at_once
    figures, ratios = asyncio.run(
        played(
            options.model,
            problems[: 2 if options.quick else options.problems],
            options.quick,
            at_once=at_once,
        )
    )
    if not (options.quick or options.no_run):
        more = ["--game.stages", "0", *options.more] if options.at_once else options.more
        figures |= run(options.model, options.dataset, options.format, more)
    publish(options.json, {"model": Path(options.model).name, **figures}, ratios)


async def played(
    model: str, problems: Sequence[Any], quick: bool, *, at_once: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Plays the game and returns (figures, speed relative to bare vLLM)."""
    from actors.settings import VllmEngineSettings
    from actors.vllm_policy import VllmPolicy
    from configs.load import load_run
    from sandbox_workers.local import LocalSandbox
    from sparring.games.multistage.game import MultistageGame
    from sparring.games.multistage.rules import MultistageRules
    from sparring.runtime.hardware import detect
    from sparring.runtime.model import open_model

    short = [f"--{role}.max-tokens=32" for role in ("generator", "discriminator")] if quick else []
    config = load_run(["--config", "chat", *short])[0].to_config()
    rules = MultistageRules.model_validate(config.game.model_dump())
    opened = open_model(model, "--model")
    dtype = "bfloat16" if detect().cpu_bf16 else "float32"
    engine = VllmEngineSettings(dtype=dtype, max_model_len=4096, max_num_seqs=64, kv_cache_mb=2048)
    policy = VllmPolicy(opened.path, engine)
    figures: dict[str, Any] = {
        "problems": len(problems),
        "dtype": dtype,
        "threads": int(os.environ["OMP_NUM_THREADS"]),
    }
    played: dict[str, tuple[Sequence[Any], float]] = {}
    """For each arm, the attempts and the seconds that they took."""
    with LocalSandbox("auto", limits=rules.sandbox_limits) as sandbox:
        for arm, stages in (("at once", 0), ("in stages", None))[: 1 if at_once else 2]:
            game = MultistageGame(rules.model_copy(update={"stages": stages}))
            start = time.perf_counter()
            episodes = await _episodes(game, problems, policy, opened.style(), config, sandbox)
            seconds = time.perf_counter() - start
            attempts = [t for episode in episodes for t in episode.trajectories]
            tokens = sum(t.token_count for t in attempts)
            worth = _worth(attempts, rules.max_tests) | {"tokens": tokens, "tokens/s": tokens / seconds}
            figures |= {f"{arm}: {name}": value for name, value in worth.items()}
            print(f"{arm}: " + ", ".join(f"{name} {value:.3g}" for name, value in worth.items()), flush=True)
            played[arm] = attempts, seconds
    await policy.close()  # closing an engine removes vLLM's globals
    bare = _bare_seconds(opened.path, engine, [attempts for attempts, _ in played.values()])
    return figures, {
        f"{arm}: against bare vLLM": alone / seconds
        for (arm, (_, seconds)), alone in zip(played.items(), bare, strict=True)
    }


async def _episodes(
    game: Any, problems: Sequence[Any], policy: Any, style: Any, config: Any, sandbox: Any
) -> list[Any]:
    from sparring.core.interfaces import Player
    from sparring.core.seeding import derive_seed

    def player(name: str, attempts: int, problem: Any) -> Player:
        return Player(
            name=name,
            policy=policy,
            format=style,
            attempts=attempts,
            temperature=1.0,
            seed=derive_seed(1, problem.id, name),
            max_tokens=config.policy(name).max_tokens,
        )

    async def play(problem: Any) -> Any:
        players = {
            "generator": player("generator", _PROGRAMS, problem),
            "discriminator": player("discriminator", _SUITES, problem),
        }
        return await game.play(problem, players, sandbox)

    return await asyncio.gather(*map(play, problems))


def _worth(attempts: Sequence[Any], slots: int) -> dict[str, float]:
    from statistics import fmean

    suites = [t for t in attempts if t.player == "discriminator" and "valid" in t.components]
    programs = [t for t in attempts if t.player == "generator"]
    return {
        "tests read per suite": fmean(t.components["emitted"] for t in suites),
        "valid tests, share of the slots": fmean(t.components["valid"] / slots for t in suites),
        "suites with a valid test": fmean(t.components["valid"] > 0 for t in suites),
        "suites cut off": fmean(t.is_cut_off for t in suites),
        "programs cut off": fmean(t.is_cut_off for t in programs),
        "programs with a reward": fmean(t.reward is not None for t in programs),
        "programs that pass all tests that count": fmean(t.components.get("solved", 0.0) for t in programs),
    }


def _bare_seconds(model: str, engine: Any, arms: Sequence[Sequence[Any]]) -> list[float]:
    """Returns the seconds that vLLM alone takes for the requests of each arm's attempts."""
    from vllm.v1.engine.llm_engine import LLMEngine

    from actors.vllm_engine import engine_args
    from benchmarks.rollout import chain_of, step_through

    bare = LLMEngine.from_engine_args(engine_args(model, engine, "cpu"))
    seconds = []
    for attempts in arms:
        chains = [("model", chain_of(t)[1]) for t in attempts]
        start = time.perf_counter()
        step_through({"model": bare}, chains, {"seed": 1, "logprobs": 0})
        seconds.append(time.perf_counter() - start)
    bare.engine_core.shutdown()
    return seconds


def run(model: str, dataset: str, form: str, more: Sequence[str]) -> dict[str, Any]:
    """Returns the figures of a training run of one step per phase. more: further arguments of driver.py."""
    from configs.load import load_run
    from sparring.runtime.hardware import shapes_of
    from sparring.runtime.host_plan import parts_of

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "driver.py", "--generator-model", model, "--discriminator-model", model]
        command += ["--problems.file", dataset, "--problems.format", form]
        command += ["--problems.failing-references", "leave_out"]
        command += ["--n-discriminator-steps", "1", "--n-generator-steps", "1", "--k-alternating-steps", "1"]
        command += ["--curriculum.stages", "5", "--evaluation.problems", str(_HELD_OUT)]
        command += ["--output-dir", folder, "--run-name", "run", *more]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        told: dict[str, Any] = {}

        def read() -> None:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                if line.startswith("before:"):
                    told["seconds to the first evaluation"] = time.perf_counter() - start

        reader = threading.Thread(target=read)
        reader.start()
        told["peak memory, GiB"] = watch_memory(process) / 2**30
        reader.join()
        if process.returncode:
            raise SystemExit(process.returncode)
        results = json.loads((Path(folder) / "run" / "training_results.json").read_text())
        config = load_run(["--config", str(Path(folder) / "run" / "config.yaml")])[0].to_config()
        told["planned memory, GiB"] = sum(parts_of(config, shapes_of(config) or {}).values()) / 2**30
    told |= {f"run: {part}, s": seconds for part, seconds in results["wall_time_s"].items()}
    for moment, scores in results["held_out"].items():
        told |= {f"run: {moment}: {name}": value for name, value in scores.items()}
    return told


if __name__ == "__main__":
    main()
