"""Run the benchmarks one after another, each in its own process.

    python -m benchmarks                      those that take minutes; results go to benchmarks/results/NAME.json
    python -m benchmarks --quick              all, under a minute each; results go to output/benchmarks/NAME.json
    python -m benchmarks learner trl_speed    only these
    python -m benchmarks --experiments        all experiments, also those that take hours; finished runs are not repeated

If a benchmark fails, the others still run; the last line names those that failed, and the exit code is 1. A result file
is written completely or not at all; if a run fails, the previous result remains. `python -m benchmarks.tables` shows
the results.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.catalogue import BENCHMARKS
from benchmarks.report import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--quick", action="store_true", help="smaller measurements: does everything still run?"
    )
    parser.add_argument("--experiments", action="store_true", help="those in benchmarks/experiments only")
    parser.add_argument("--output", type=Path, help="folder of the results")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}"
        )
    default = "output/benchmarks" if options.quick else "benchmarks/results"
    folder = (options.output or ROOT / default).resolve()
    names = options.names or [
        name
        for name, found in BENCHMARKS.items()
        if (
            found.module.startswith("experiments.")
            if options.experiments
            else options.quick or not found.hours
        )
    ]
    if not options.quick:
        for name in [name for name in names if BENCHMARKS[name].needs]:
            found = BENCHMARKS[name]
            print(f"{name} is left out: python -m benchmarks.{found.module} {found.needs} …")
            names.remove(name)
    failed = []
    for number, name in enumerate(names, start=1):
        print(f"\n== {name} ({number} of {len(names)})", flush=True)
        start = time.perf_counter()
        code = run(name, folder / f"{name}.json", options.quick)
        print(
            f"== {name}: {'done' if code == 0 else f'exit code {code}'}, {time.perf_counter() - start:.0f} s"
        )
        failed += [name] if code else []
    print(f"\n{len(names) - len(failed)} of {len(names)} benchmarks ran to the end; results in {folder}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(name: str, result: Path, quick: bool) -> int:
    """Runs one benchmark and returns its exit code, which is not 0 if it wrote no result. After Ctrl-C it waits until
    the benchmark has stopped its sandbox."""
    benchmark = BENCHMARKS[name]
    command = [sys.executable, "-m", f"benchmarks.{benchmark.module}", *benchmark.arguments]
    command += ["--json", str(result), *(["--quick"] if quick else [])]
    result.parent.mkdir(parents=True, exist_ok=True)
    if quick:
        result.unlink(missing_ok=True)
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        return process.wait() or int(not result.is_file())
    except KeyboardInterrupt:
        process.wait()
        raise


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
