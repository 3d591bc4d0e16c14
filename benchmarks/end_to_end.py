"""Measures a whole run: wall-clock time in total and by part, and the peak memory of its processes.

    python -m benchmarks.end_to_end                 the recipe `toy`
    python -m benchmarks.end_to_end --quick         the debug recipe, three steps

Memory is the largest sum of proportional set sizes (shared pages counted once) over the run's process tree, sampled
twice a second.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.experiments.runs import SHORT
from benchmarks.report import arguments, publish


def main() -> None:
    options = arguments(__doc__).parse_args()
    recipe = "debug" if options.quick else "toy"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "driver.py", "--config", recipe, *(SHORT if options.quick else [])]
        command += ["--output-dir", folder, "--run-name", "run"]
        start = time.perf_counter()
        process = subprocess.Popen(command)
        peak = watch_memory(process)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise SystemExit(process.returncode)
        results = json.loads((Path(folder) / "run" / "training_results.json").read_text())
    figures: dict[str, Any] = {"recipe": recipe, "wall_clock_s": seconds, "peak_memory_gib": peak / 2**30}
    figures |= {f"{part}_s": value for part, value in results["wall_time_s"].items()}
    for moment, scores in results["held_out"].items():
        figures |= {f"{moment}_{name}": value for name, value in scores.items()}
    figures |= {f"stage_{stage['stage']}_s": stage["seconds"] for stage in results["stages"]}
    publish(options.json, figures, {})


def watch_memory(process: subprocess.Popen[Any]) -> int:
    """Returns the peak bytes of the process and all its descendants until the process ends."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(proportional_set_size(p) for p in tree(process.pid)))
        time.sleep(0.5)
    return peak


def tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def proportional_set_size(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
