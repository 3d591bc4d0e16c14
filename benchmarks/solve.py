"""Compares `sparring solve --batch` with `sparring evaluate` on the same problems: problems per second.

    python -m benchmarks.solve --problems-file mbpp.jsonl --format mbpp

In both, the shipped generator writes one program for each problem, greedily, without stages, with vLLM, and the sandbox
judges it; they take turns. The engine's start is counted. `sparring evaluate` also judges the problems' references, to
name those that cannot be solved. --quick takes the example problems.
vs_evaluate: problems per second, ours divided by those of `sparring evaluate`.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import ROOT, arguments, publish
from sparring.core.project_files import EXAMPLES

MODEL = EXAMPLES / "toy" / "generator"
COMMON = ("--stages", "none", "--max-tokens", "128")
TIMES = 3


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--problems-file", help="of a data set")
    parser.add_argument("--format", default="problems", help="how it is written (%(default)s)")
    options = parser.parse_args()
    if options.problems_file is None and not options.quick:
        parser.error("name a data set: --problems-file FILE --format FORMAT")
    file = options.problems_file or str(ROOT / "sparring" / "problems" / "example_problems.json")
    with tempfile.TemporaryDirectory() as folder:
        publish(options.json, *measure(file, options.format, 1 if options.quick else TIMES, Path(folder)))


def measure(file: str, form: str, times: int, folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    of_file = ("--format", form, *COMMON)
    solve = ("sparring.cli.solve", "--batch", "--problems-file", file, "--checkpoint", str(MODEL), "--execute-tests",
             "--temperature", "0", *of_file, "--output")  # fmt: skip
    evaluate = ("sparring.cli.evaluate", "--dataset", file, "--policy", str(MODEL), *of_file, "--json")
    commands = {"solve": solve, "evaluate": evaluate}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", *command, folder / f"{name}.json"], cwd=ROOT, check=True)
            seconds[name].append(time.perf_counter() - began)
    solved = json.loads((folder / "solve.json").read_text())
    evaluated = json.loads((folder / "evaluate.json").read_text())
    count = solved["problems"]
    speeds = {name: count / median(of) for name, of in seconds.items()}
    figures: dict[str, Any] = {"problems": count, "solve_failed": len(solved["failed"])}
    figures |= {"passing": solved["solved"], "pass_rate": evaluated["scores"]["generator_pass_rate"]}
    figures |= {f"{name}_problems_per_s": speed for name, speed in speeds.items()}
    figures |= {f"{name}_s": median(of) for name, of in seconds.items()}
    return figures, {"vs_evaluate": speeds["solve"] / speeds["evaluate"]}


if __name__ == "__main__":
    main()
