"""What is learned in each game? Held-out scores of the toy models of each recipe, at each evaluation, for several
seeds.

    python -m benchmarks.experiments.games --output output/experiments [--games spiral_kuhn code_golf]

Seeds vary play and learning, not the supervised warm-up. Each run is one process with the transformers engine and one
thread: it is bit-identical every time. Finished runs are not repeated. --quick makes two steps of Kuhn poker, always
anew.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.experiments.runs import finished_run, held_out, in_one_process
from benchmarks.report import arguments, write
from sparring.evaluation.intervals import print_table

SCORES = {
    "grpo_code_execution": ("sampled_reward", "reward", "pass_at_1", "generator_pass_rate"),
    "output_prediction": ("author_valid", "author_stumps", "opponent_predicts_bank"),
    "spiral_tictactoe": ("win_vs_random", "loss_vs_random", "win_vs_minimax", "draw_vs_minimax", "illegal"),
    "spiral_kuhn": ("exploitability", "payoff_vs_random", "payoff_vs_equilibrium", "illegal"),
    "unit_tests_lua": ("generator_pass_rate", "generator_test_rate", "pass_at_1", "pass_at_4"),
    "code_golf": ("solved", "pass_rate", "bytes", "kaggle_score"),
}
"""The held-out scores that are shown, for each recipe."""
SHORT = ["--n-generator-steps", "2", "--evaluation.every", "1", "--evaluation.problems", "20"]
SHORT += ["--curriculum.problems-per-step", "4", "--curriculum.attempts", "8"]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--games", nargs="+", choices=list(SCORES), default=list(SCORES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if not options.quick:
        write(options.json, compare(options.games, options.seeds, options.output), {})
        return
    with tempfile.TemporaryDirectory() as directory:
        write(options.json, compare(["spiral_kuhn"], [1], Path(directory), SHORT), {})


def compare(
    games: Sequence[str], seeds: Sequence[int], output: Path, more: Sequence[str] = ()
) -> dict[str, object]:
    """Returns the figures. Prints the tables. more: arguments of every run."""
    figures: dict[str, object] = {}
    for game in games:
        curves = [curve(game, seed, output, more) for seed in seeds]
        steps = list(curves[0])
        rows: list[list[object]] = []
        for name in SCORES[game]:
            by_step = [[of_seed[step].get(name) for of_seed in curves] for step in steps]
            spreads = [spread([value for value in values if value is not None]) for values in by_step]
            rows.append([name, *(f"{of['mean']:.3f} ±{of['std']:.3f}" if of else "-" for of in spreads)])
            figures[f"{game}, {name}"] = {f"step {s}": of for s, of in zip(steps, spreads, strict=True)}
        print_table(f"{game}: mean ± std of {len(seeds)} seeds, by step", ["", *map(str, steps)], rows)
    return figures


def curve(game: str, seed: int, output: Path, more: Sequence[str]) -> dict[int, dict[str, float]]:
    """Returns the held-out scores by step."""
    arguments = ["--seed", str(seed), *in_one_process(game), *more]
    return dict(held_out(finished_run(game, f"{game}-seed{seed}", output, arguments)))


def spread(by_seed: Sequence[float]) -> dict[str, Any]:
    """Returns mean and standard deviation of the seeds that have a score; nothing if none has."""
    if not by_seed:
        return {}
    std = stdev(by_seed) if len(by_seed) > 1 else 0.0
    return {"mean": fmean(by_seed), "std": std, "by_seed": by_seed}


if __name__ == "__main__":
    main()
