"""The parts that all benchmarks share: the arguments, the description of the machine, and the result file."""

import argparse
import functools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.tracking.run_record import versions, write_json

ROOT = Path(__file__).parents[1]
KEYS = {"command", "commit", "date", "machine", "versions", "figures", "ratios"}
"""The keys of every result file."""
LOAD_BEFORE = os.getloadavg()[0]


def arguments(description: str | None) -> argparse.ArgumentParser:
    commit()  # the commit of the code that is imported now, not of what is there at the end
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller measurement, under a minute")
    parser.add_argument(
        "--json", type=_file, help="write commit, date, machine, versions, figures, ratios there"
    )
    return parser


def _file(text: str) -> Path:
    """Returns the path. A path that cannot be written is reported before anything is measured."""
    try:
        Path(text).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"no file can be written there: {error}") from None
    return Path(text)


def machine() -> dict[str, Any]:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "load_before": LOAD_BEFORE,
    }
    torch = sys.modules.get("torch")
    return found | ({"gpu": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {})


def _named(argument: str) -> str:
    """Returns the file name of an absolute path, since the directory on this machine is not to be published; other
    arguments are unchanged."""
    return os.path.basename(argument) if os.path.isabs(argument) else argument


@functools.cache
def commit() -> str:
    """Returns the commit of the code, with "-dirty" if the code has changes; results and pages do not count as code."""
    ours = ["--untracked-files=no", "--", ".", ":!benchmarks/results", ":!*.md"]
    try:
        head, changes = (
            git("rev-parse", "--short=12", "HEAD", root=ROOT),
            git("status", "--porcelain", *ours, root=ROOT),
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("-dirty" if changes else "")


def git(*command: str, root: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
    ).stdout


def publish(path: Path | None, figures: Mapping[str, Any], ratios: Mapping[str, float]) -> None:
    """Prints the figures and ratios, and writes them if a path is given."""
    for name, value in {**figures, **ratios}.items():
        print(f"{name:<40} {value:.6g}" if isinstance(value, float) else f"{name:<40} {value}")
    write(path, figures, ratios)


def write(path: Path | None, figures: Mapping[str, Any], ratios: Mapping[str, float]) -> None:
    """Writes the result if a path is given: the whole file, or nothing."""
    if path is None:
        return
    document = {
        "command": re.sub(r" --json[= ]\S+", "", shlex.join(["python", *map(_named, sys.orig_argv[1:])])),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
        "figures": dict(figures),
        "ratios": dict(ratios),
    }
    write_json(path, document)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value such that at least `percent` percent of all values do not exceed it."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(0, int(rank) - 1)]


def read(path: Path) -> dict[str, Any]:
    """Reads a result file. Raises ValueError, with what to do about it, if the file is damaged or incomplete."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): run the benchmark again") from None
    if not isinstance(document, dict) or (missing := KEYS - document.keys()):
        lacks = f"no {', '.join(sorted(missing))}" if isinstance(document, dict) else "not an object"
        raise ValueError(f"{path} is no benchmark's result ({lacks}): run the benchmark again")
    return document
