"""Compares the seconds of a GRPO step (generation, judging and update): Hugging Face TRL's GRPOTrainer against
driver.py.

    python -m benchmarks.trl_end_to_end

Both start from the toy model of the recipe grpo_code_execution, with its prompts (token for token), its group
size, its maximum completion length, its reward (the same sandbox), one policy, two updates per step, no KL. TRL
generates with transformers, or with vLLM in its process. Ours runs as in the recipe (Ray, vLLM), and in one process
with transformers. There are no evaluation and no checkpoints. The runs follow one another; a step's seconds are the
median over the steps after the warm-up. Ours do not include writing the step's rows. If TRL fails with one of its two
engines, the result says why, and the others are measured all the same.
"""

import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from benchmarks.report import arguments, publish
from benchmarks.trl_runner import QUIET_ON_CPU, load_trl
from configs.load import load_run
from configs.schema import Config
from lab.problems import toy_problems
from sandbox_workers.local import LocalSandbox
from sparring.core.episode import Trajectory
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.project_files import located
from sparring.games.programs.game import SolverRules
from sparring.games.prompts import format_for

RECIPE = "grpo_code_execution"
WARM_UP = 4
"""Number of steps that are not counted."""
OURS = ["--no-evaluation.enabled", "--checkpoint.every", "1000", "--generator.learner.kl.kind", "none"]
WAYS = {
    "ray_vllm": ["--rollout.actors", "2"],
    "one_process": ["--local", "--generator.engine.kind", "transformers"],
}


def main() -> None:
    options = arguments(__doc__).parse_args()
    steps = 1 if options.quick else 16
    warm_up = 0 if options.quick else WARM_UP
    config = load_run(["--config", RECIPE])[0].to_config()
    model = located(config.policy(GENERATOR).model)
    figures: dict[str, Any] = {"trl_version": load_trl().__version__, "steps": steps}
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("transformers", "vllm"):
            # in separate processes: vLLM leaves the environment of a distributed run behind
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                made = alone.submit(
                    run_theirs, config, model, Path(folder), warm_up + steps, backend == "vllm"
                )
                try:
                    seconds, tokens = made.result()
                except Exception as error:  # of a library that we only compare with
                    figures[f"trl_{backend}_failed"] = f"{type(error).__name__}: {error}"
                    continue
            figures[f"trl_{backend}_step_s"] = median(seconds[warm_up:])
            figures[f"trl_{backend}_tokens"] = median(tokens[warm_up:])
        for way, more in WAYS.items():
            rows = run_ours(warm_up + steps, more, Path(folder))[warm_up:]
            figures[f"{way}_step_s"] = median(row["seconds"]["total"] for row in rows)
            figures[f"{way}_tokens"] = median(row["tokens"] for row in rows)
    ratios = {
        f"{way}_vs_trl_{backend}": figures[f"trl_{backend}_step_s"] / figures[f"{way}_step_s"]
        for way in WAYS
        for backend in ("transformers", "vllm")
        if f"trl_{backend}_step_s" in figures
    }
    publish(options.json, figures, ratios)


def run_theirs(
    config: Config, model: Path, folder: Path, steps: int, use_vllm: bool
) -> tuple[list[float], list[float]]:
    """Returns (seconds, sampled tokens) of each step."""
    seen = Steps()
    own: dict[str, Any] = {"use_vllm": True, "vllm_mode": "colocate"} if use_vllm else {}
    with LocalSandbox("auto", slots=2, trusted=True) as sandbox:
        make_trainer(load_trl(), config, model, folder, sandbox, steps, seen, **own).train()
    return seen.seconds, seen.tokens


def run_ours(steps: int, more: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Runs driver.py and returns the rows of its steps."""
    command = [
        sys.executable,
        "driver.py",
        "--config",
        RECIPE,
        *OURS,
        *more,
        "--n-generator-steps",
        str(steps),
    ]
    run = folder / f"run{len(list(folder.glob('run*')))}"
    subprocess.run([*command, "--output-dir", str(folder), "--run-name", run.name], check=True)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"]]


class Steps(TrainerCallback):
    """Records seconds and sampled tokens of TRL's steps; a step is all updates from one generation."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.tokens: list[float] = []
        self.sampled = 0
        self._began = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step % args.steps_per_generation == 0:
            now = time.perf_counter()
            self.seconds.append(now - self._began)
            self.tokens.append(self.sampled)
            self._began, self.sampled = now, 0


def make_trainer(
    trl: Any,
    config: Config,
    model: Path,
    folder: Path,
    sandbox: LocalSandbox,
    steps: int,
    seen: Steps,
    **more: Any,
) -> Any:
    rules, tokenizer = config.game, AutoTokenizer.from_pretrained(model)
    assert isinstance(rules, SolverRules)
    problems = {p.id: p for p in toy_problems("train")}
    settings, learner, schedule = config.generator, config.generator.learner, config.curriculum
    style = format_for(tokenizer)
    rows = []
    for problem in problems.values():
        tokens = style.say([], rules.message(problem))
        rows.append({"prompt": tokenizer.decode(tokens), "problem": problem.id})
        assert tokenizer(rows[-1]["prompt"])["input_ids"] == tokens, "TRL is asked what our model is asked"

    async def earned(problem: Problem, text: str) -> float | None:
        attempt = Trajectory(player=GENERATOR, attempt=0, turns=[], artifact=text)
        rules.read(attempt, problem)
        return attempt.reward if await rules.earn(problem, attempt, sandbox) else None

    loop = asyncio.Runner()

    async def all_earned(names: Sequence[str], texts: Sequence[str]) -> list[float | None]:
        return await asyncio.gather(*(earned(problems[n], t) for n, t in zip(names, texts, strict=True)))

    def reward(completions: list[str], completion_ids: list[list[int]], problem: list[str], **_: Any) -> Any:
        seen.sampled += sum(map(len, completion_ids))
        return loop.run(all_earned(problem, completions))

    together = schedule.problems_per_step * schedule.attempts
    updates = -(-together // learner.minibatch_samples)
    options = trl.GRPOConfig(
        output_dir=str(folder / "trl"),
        max_steps=steps * updates,
        per_device_train_batch_size=together // updates,
        steps_per_generation=updates,
        num_generations=schedule.attempts,
        max_completion_length=settings.max_tokens,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        temperature=config.temperature,
        beta=0.0,
        **QUIET_ON_CPU,
        **more,
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=options,
        reward_funcs=reward,
        train_dataset=importlib.import_module("datasets").Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[seen],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


if __name__ == "__main__":
    main()
