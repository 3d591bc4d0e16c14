"""What does asynchronous rollout (rollout.max_policy_lag) gain, and what does it cost?

    python -m benchmarks.experiments.asynchrony learning --output output/experiments
    python -m benchmarks.experiments.asynchrony busy

learning: held-out scores after the same steps and samples, by lag and seed; each run is one process with the
transformers engine and one thread, and two runs go in parallel. In such a run the weights are exactly as old as the
lag, so it is the worst case.
busy: the recipe `toy`'s alternating steps on Ray with vLLM, by lag: seconds per step, and the shares of this time
in which the busier rollout actor samples and in which learners update.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.experiments.runs import SHORT, finished_run, held_out
from benchmarks.report import arguments, write
from sparring.core.tracing import Span, seconds_of
from sparring.evaluation.intervals import intervals, print_table

LAGS = (0, 1, 2)
SCORES = ("generator_pass_rate", "test_validity", "kill_rate")
LEARNING = ["--generator.learner.threads", "1", "--discriminator.learner.threads", "1"]
LEARNING += [
    "--curriculum.stages",
    "5",
    "--n-discriminator-steps",
    "6",
    "--n-generator-steps",
    "6",
    "--k-alternating-steps",
    "6",
]
LEARNING += ["--evaluation.problems", "120", "--evaluation.bank-programs", "4", "--evaluation.suites", "2"]
BUSY = ["--curriculum.stages", "5", "--n-discriminator-steps", "0", "--n-generator-steps", "0"]
BUSY += ["--k-alternating-steps", "14", "--no-evaluation.enabled", "--tracking.trace"]
FEW = ["--k-alternating-steps", "2", "--curriculum.problems-per-step", "2", "--curriculum.attempts", "2"]
WARM_UP = 4
"""Number of steps that are not counted: the first ones wait for the learners to start."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=("learning", "busy"))
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.what == "busy":
            found = busy(LAGS[:1], Path(directory), FEW) if options.quick else busy(LAGS, Path(directory))
        elif options.quick:
            found = learning(LAGS[:2], [1], Path(directory), SHORT)
        else:
            found = learning(LAGS, options.seeds, options.output)
    write(options.json, *found)


def learning(
    lags: Sequence[int], seeds: Sequence[int], output: Path, more: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, float]]:
    def run(case: tuple[int, int]) -> dict[str, float]:
        lag, seed = case
        own = ["--seed", str(seed), "--rollout.max-policy-lag", str(lag), *LEARNING, *more]
        return held_out(finished_run("debug", f"lag{lag}-seed{seed}", output, own))[-1][1]

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the parallel runs
    cases = list(product(lags, seeds))
    with ThreadPoolExecutor(2) as pool:
        scores = dict(zip(cases, pool.map(run, cases), strict=True))
    figures, rows = {}, []
    for lag in lags:
        row: list[object] = [lag]
        for name in SCORES:
            differences = {"of": f"lag {lag}, {name}", "less": f"lag {lag}, {name} less that of lag 0"}
            pairs = [(scores[lag, seed].get(name), scores[0, seed].get(name)) for seed in seeds]
            found = intervals(
                [
                    {"of": own, "less": None if own is None or first is None else own - first}
                    for own, first in pairs
                ]
            )
            figures |= {differences[key]: of.plain() for key, of in found.items()}
            row += [found.get(key, "-") for key in differences]
        rows.append(row)
    header = ["lag", *(word for name in SCORES for word in (name, "less lag 0's"))]
    print_table(f"after the last step, mean and 95% interval of {len(seeds)} seeds", header, rows)
    return figures, {}


def busy(
    lags: Sequence[int], output: Path, more: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, float]]:
    figures = {}
    for lag in lags:
        run = output / f"lag{lag}"
        command = [sys.executable, "driver.py", "--config", "toy", *BUSY, *more]
        command += ["--rollout.max-policy-lag", str(lag), "--output-dir", str(output), "--run-name", run.name]
        subprocess.run(command, check=True)
        for name, value in shares(run, 0 if more else WARM_UP).items():
            figures[f"lag{lag}_{name}"] = value
    ratios = {f"lag{lag}_speed_vs_lag0": figures["lag0_step_s"] / figures[f"lag{lag}_step_s"] for lag in lags}
    return figures, ratios


def shares(run: Path, warm_up: int) -> dict[str, float]:
    """Returns the seconds per step, and the shares of the time in which engines and learners are busy, from the end of
    step `warm_up` to the end of the last step."""
    lines = (run / "trace.json").read_text().splitlines()[1:]
    events = [json.loads(line.rstrip(",")) for line in lines]
    spans: list[Span] = [
        (e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in events if e["ph"] == "X"
    ]
    ends = [ended for name, _, ended in spans if name == "rollout"]
    first, last = ends[warm_up - 1] if warm_up else spans[0][1], ends[-1]
    within = [(name, began, min(ended, last)) for name, began, ended in spans if began < last]
    seconds = last - first
    return {
        "step_s": seconds / (len(ends) - warm_up),
        "engines_busy": seconds_of("generate", within, since=first) / seconds,
        "learners_busy": seconds_of("learn", within, since=first) / seconds,
    }


if __name__ == "__main__":
    main()
