"""What every benchmark shares: its arguments, the machine, the file it writes."""

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracking.run_record import versions


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smaller measurement, under a minute")
    parser.add_argument("--json", type=Path, help="write machine, versions, figures and ratios to this file")
    return parser


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
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def publish(path: Path | None, figures: Mapping[str, Any], ratios: Mapping[str, float]) -> None:
    """Print, and write where a path is given."""
    for name, value in {**figures, **ratios}.items():
        print(f"{name:<40} {value:.6g}" if isinstance(value, float) else f"{name:<40} {value}")
    write(path, figures, ratios)


def write(path: Path | None, figures: Mapping[str, Any], ratios: Mapping[str, float]) -> None:
    """Write {"machine", "versions", "figures", "ratios"} where a path is given."""
    if path is not None:
        document = {
            "machine": machine(),
            "versions": versions(),
            "figures": dict(figures),
            "ratios": dict(ratios),
        }
        path.write_text(json.dumps(document, indent=1))
