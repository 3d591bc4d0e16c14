"""Why does the opponent in output prediction hardly learn? Because the model is not able to, because its learning rate
is wrong, or because it sees too few programs? It is trained on more and more programs with their outputs, and then
plays, with two learning rates, against the author that it has from the start.

    python -m benchmarks.experiments.prediction --output output/experiments

Held out: the share of programs of the initial author, on topics that training never saw, whose output the opponent
predicts greedily.
In play: the share of its sampled answers that are right. Seeds vary play; the demonstrations are the same. Each run is
one process and bit-identical every time. Finished runs are not repeated.
"""

import json
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.experiments.runs import finished_run, held_out, in_one_process
from benchmarks.report import arguments, write
from lab.examples import models_as_options
from sparring.core.evaluation import mean
from sparring.evaluation.intervals import intervals, print_table

TAUGHT = (600, 2400, 9600)
"""Supervised steps of 48 programs with their outputs. The first value is the recipe's."""
SCALES = (2.0, 0.4)
"""Scales of the learning rate; the first is the recipe's."""
PLAYED = 40
"""Training steps of 16 topics x 8 programs, each of which is answered."""
SHORT = ["--curriculum.problems-per-step", "4", "--curriculum.attempts", "4", "--evaluation.problems", "8"]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    if not options.quick:
        write(options.json, compare(options.output, TAUGHT, SCALES, options.seeds, PLAYED, []), {})
        return
    with tempfile.TemporaryDirectory() as directory:
        write(options.json, compare(Path(directory), (10,), SCALES[:1], [0], 1, SHORT), {})


def compare(
    output: Path,
    taught: Sequence[int],
    scales: Sequence[float],
    seeds: Sequence[int],
    played: int,
    more: list[str],
) -> dict[str, Any]:
    """Makes the runs, prints the table and returns the figures. more: arguments of every run."""
    schedule = [
        "--n-discriminator-steps",
        str(played),
        "--n-generator-steps",
        "0",
        "--k-alternating-steps",
        "0",
    ]
    every = ["--evaluation.every", str(max(1, played // 4))]
    measured: dict[int, dict[str, float | None]] = {}
    for steps, scale, seed in product(taught, scales, seeds):
        own = [*models_as_options("prediction", discriminator_steps=steps), "--seed", str(seed)]
        own += ["--discriminator.learner.learning-rate-scale", str(scale)]
        given = [*in_one_process("output_prediction"), *schedule, *every, *own, *more]
        run = finished_run("output_prediction", f"prediction-{steps}-{scale}-seed{seed}", output, given)
        scores, in_play = dict(held_out(run)), right_in_play(run)
        few = max(1, played // 5)
        of_run = {
            "taught": scores[0].get("opponent_predicts_bank"),
            "played": scores[played].get("opponent_predicts_bank"),
            "in play at first": mean(share for step, share in in_play if step <= few),
            "in play at last": mean(share for step, share in in_play if step > played - few),
        }
        measured.setdefault(seed, {}).update(
            {f"taught {steps}, scale {scale}: {name}": share for name, share in of_run.items()}
        )
    found = intervals(list(measured.values()))
    print_table("right predictions", ["", "mean over seeds"], [[name, of] for name, of in found.items()])
    return {name: of.plain() for name, of in found.items()}


def right_in_play(run: Path) -> list[tuple[int, float]]:
    """Returns (step, share of right answers) of each step in which a program was valid, so that it was answered."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [
        (row["step"], row["opponent_components"]["predicted"])
        for row in rows
        if "predicted" in row.get("opponent_components", ())
    ]


if __name__ == "__main__":
    main()
