"""Why does output prediction's opponent hardly learn? Because it could not, because its steps have a wrong size, or because
it meets too few programs? It is taught on more and more programs with their outputs, and then plays, in steps of two
sizes, against the author that it has from the start.

    python -m benchmarks.experiments.prediction --output output/experiments

Held out: the share of programs of the initial author, on topics that training never saw, whose output it foretells,
greedily. In play: the share of its sampled answers that are right. One process each, the same to the bit every time.
Runs that are finished already are not run again.
"""

import json
import tempfile
from pathlib import Path
from statistics import fmean

from benchmarks.experiments.runs import finished_run, held_out, in_one_process
from benchmarks.report import arguments, write

TAUGHT = (600, 2400, 9600)
"""Steps of 48 programs with their outputs. The first is the recipe's."""
SCALES = (2.0, 0.4)
"""Of the learning rate; the first is the recipe's."""
PLAYED = 40
"""Steps of 16 topics x 8 programs, each answered."""
SHORT = ["--curriculum.problems-per-step", "4", "--curriculum.attempts", "4", "--evaluation.problems", "8"]
SHORT += ["--warm-start.generator-steps", "10"]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    options = parser.parse_args()
    if not options.quick:
        write(options.json, compare(options.output, TAUGHT, SCALES, PLAYED, []), {})
        return
    with tempfile.TemporaryDirectory() as directory:
        write(options.json, compare(Path(directory), (10,), SCALES[:1], 1, SHORT), {})


def compare(
    output: Path, taught: tuple[int, ...], scales: tuple[float, ...], played: int, more: list[str]
) -> dict[str, float]:
    """more: arguments of every run."""
    schedule = [
        "--n-discriminator-steps",
        str(played),
        "--n-generator-steps",
        "0",
        "--k-alternating-steps",
        "0",
    ]
    every = ["--evaluation.every", str(max(1, played // 4))]
    figures: dict[str, float] = {}
    for steps in taught:
        for scale in scales:
            own = ["--warm-start.discriminator-steps", str(steps)]
            own += ["--discriminator.learner.learning-rate-scale", str(scale)]
            name = f"prediction-{steps}-{scale}"
            given = [*in_one_process("output_prediction"), *schedule, *every, *own, *more]
            run = finished_run("output_prediction", name, output, given)
            scores, in_play = dict(held_out(run)), right_in_play(run)
            few = max(1, played // 5)
            figures[f"taught {steps}"] = scores[0]["opponent_predicts_bank"]
            figures[f"taught {steps}, played, scale {scale}"] = scores[played]["opponent_predicts_bank"]
            figures[f"taught {steps}, in play at first, scale {scale}"] = fmean(in_play[:few])
            figures[f"taught {steps}, in play at last, scale {scale}"] = fmean(in_play[-few:])
            print(name, {step: round(of["opponent_predicts_bank"], 3) for step, of in scores.items()})
    return figures


def right_in_play(run: Path) -> list[float]:
    """Of each step; 0 where no program was fit to be put to it."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["opponent_components"].get("predicted", 0.0) for row in rows if "opponent_components" in row]


if __name__ == "__main__":
    main()
