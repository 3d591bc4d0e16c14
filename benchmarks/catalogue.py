"""All benchmarks, and the code that each measures: `python -m benchmarks` runs them, `python -m benchmarks.tables`
shows them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A script with its arguments; the name of a benchmark is also the name of its result."""

    module: str
    speaks_of: tuple[str, ...]
    """Paths that the benchmark measures: if one of them changes, its figures are out of date."""
    arguments: tuple[str, ...] = ()
    hours: bool = False
    """Whether the benchmark takes hours. Then a run of all benchmarks leaves it out: it is run by name, or by hand if
    it needs finished runs."""
    needs: str = ""
    """The option without which it does not run; a run of several leaves it out. A quick run needs none."""


RUNS = (
    "driver.py",
    "configs",
    "sparring/examples",
    "sparring/core",
    "sparring/curriculum",
    "sparring/evaluation",
    "sparring/games",
    "learners",
    "sparring/problems",
    "sparring/runtime",
)
"""The code that determines how a run learns."""
SERVICE = ("app", "cache", "engine", "models", "model_cache", "solve")

BENCHMARKS = {
    "sandbox": Benchmark(module="sandbox", speaks_of=("sandbox_workers", "docker")),
    "sandbox_soak": Benchmark(module="sandbox_soak", speaks_of=("sandbox_workers", "docker"), hours=True),
    "judge_service": Benchmark(
        module="judge_service", speaks_of=("sandbox_workers", "docker", "sparring/web")
    ),
    "rollout": Benchmark(module="rollout", speaks_of=("actors", "sparring/core", "sparring/games")),
    "real_model": Benchmark(
        module="real_model",
        speaks_of=("actors", "sparring/games", "sparring/runtime/host_plan.py"),
        hours=True,
    ),
    "serve": Benchmark(
        module="serve",
        speaks_of=(
            *(f"sparring/serving/{name}.py" for name in SERVICE),
            "sparring/web",
            "sparring/cli/serve.py",
        ),
    ),
    "serve_mixed": Benchmark(
        module="serve",
        arguments=("--mixed-minutes", "10"),
        speaks_of=(
            *(f"sparring/serving/{name}.py" for name in SERVICE),
            "sparring/web",
            "sparring/cli/serve.py",
        ),
    ),
    "solve": Benchmark(
        module="solve",
        speaks_of=("sparring/cli/solve.py", "sparring/cli/evaluate.py", "sparring/evaluation", "actors"),
        hours=True,
        needs="--problems-file",
    ),
    "adapters": Benchmark(
        module="adapters", speaks_of=("actors", "learners/tuning.py", "learners/weights.py")
    ),
    "publishing": Benchmark(
        module="publishing",
        speaks_of=(
            "actors/vllm_policy.py",
            "actors/vllm_worker.py",
            "actors/weights.py",
            "sparring/core/weights.py",
            "learners/mailbox.py",
            "learners/train_loop.py",
            "learners/weights.py",
        ),
    ),
    "gpu_check": Benchmark(
        module="gpu_check", speaks_of=("actors", "learners", "sparring/runtime"), hours=True
    ),
    "learner": Benchmark(module="learner", speaks_of=("learners", "sparring/core/batch.py")),
    "trl_parity": Benchmark(module="trl_parity", speaks_of=("learners", "sparring/core/batch.py")),
    "verl_parity": Benchmark(module="verl_parity", speaks_of=("learners", "sparring/core/batch.py")),
    "trl_speed": Benchmark(module="trl_speed", speaks_of=("learners", "sparring/core/batch.py")),
    "trl_end_to_end": Benchmark(
        module="trl_end_to_end",
        speaks_of=("driver.py", "actors", "learners", "sparring/runtime", "sandbox_workers"),
    ),
    "end_to_end": Benchmark(
        module="end_to_end", speaks_of=(*RUNS, "actors", "sandbox_workers", "sparring/cli")
    ),
    "scale": Benchmark(
        module="scale",
        speaks_of=(
            "driver.py",
            "sparring/core",
            "sparring/curriculum",
            "learners/batching.py",
            "sparring/tracking",
        ),
        hours=True,
    ),
    "scale_far": Benchmark(
        module="scale_far",
        speaks_of=(
            "driver.py",
            "actors",
            "sparring/core",
            "sparring/curriculum",
            "learners/batching.py",
            "sparring/tracking",
        ),
        hours=True,
    ),
    "report_page": Benchmark(
        module="report_page",
        speaks_of=(
            "sparring/tracking/report.py",
            "sparring/tracking/report_page",
            "sparring/tracking/kills.py",
        ),
        hours=True,
        needs="--run",
    ),
    "static_tests": Benchmark(module="experiments.static_tests", speaks_of=("lab",)),
    "phase_diagram": Benchmark(module="experiments.phase_diagram", speaks_of=("lab",)),
    "kuhn_rae": Benchmark(
        module="experiments.kuhn",
        arguments=("rae",),
        speaks_of=("learners/advantages", "sparring/games/boards/kuhn.py"),
    ),
    "kuhn_exploitability": Benchmark(
        module="experiments.kuhn",
        arguments=("exploitability",),
        speaks_of=("learners/advantages", "sparring/games/boards/kuhn.py"),
    ),
    "league": Benchmark(
        module="experiments.league",
        speaks_of=("sparring/curriculum/opponents.py", "sparring/games/rps/payoffs.py"),
    ),
    "stage_credit": Benchmark(module="experiments.stage_credit", speaks_of=("learners/advantages",)),
    "reward_hacking": Benchmark(
        module="experiments.reward_hacking", speaks_of=("sparring/games/multistage/rewards.py",)
    ),
    "bug_finding": Benchmark(module="experiments.bug_finding", speaks_of=RUNS, hours=True),
    "best_of": Benchmark(module="experiments.best_of", speaks_of=RUNS, hours=True),
    "sparring": Benchmark(module="experiments.sparring", speaks_of=RUNS, hours=True),
    "real": Benchmark(module="experiments.real", speaks_of=(*RUNS, "actors"), hours=True, needs="--dataset"),
    "particular": Benchmark(module="experiments.particular", speaks_of=(*RUNS, "lab"), hours=True),
    "white_box": Benchmark(module="experiments.white_box", speaks_of=(*RUNS, "lab"), hours=True),
    "forgetting": Benchmark(module="experiments.forgetting", speaks_of=(*RUNS, "lab"), hours=True),
    "r0": Benchmark(module="experiments.r0", speaks_of=RUNS, hours=True),
    "coevolution": Benchmark(module="experiments.coevolution", speaks_of=RUNS, hours=True),
    "tictactoe": Benchmark(module="experiments.tictactoe", speaks_of=(*RUNS, "lab"), hours=True),
    "prediction": Benchmark(module="experiments.prediction", speaks_of=(*RUNS, "lab"), hours=True),
    "games": Benchmark(module="experiments.games", speaks_of=RUNS, hours=True),
    "asynchrony_learning": Benchmark(
        module="experiments.asynchrony", arguments=("learning",), speaks_of=RUNS, hours=True
    ),
    "asynchrony_busy": Benchmark(
        module="experiments.asynchrony", arguments=("busy",), speaks_of=(*RUNS, "actors"), hours=True
    ),
}
