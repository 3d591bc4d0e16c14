"""Measures the report's page of a run: its size, and the time to write it and to open it in headless Chromium.

    python -m benchmarks.report_page --run output/RUN

The page counts as opened when the curves are drawn and the newest step's attempts are listed. Another step counts when
its attempts are unpacked and listed. Figures are medians of five. --quick takes a made-up run of three steps.
vs_jsonl: bytes of the run's episodes.jsonl divided by those of the page.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import arguments, publish
from sparring.tracking.episodes import episode_files
from sparring.tracking.report import gather, page
from sparring.tracking.run_record import RunRecord

_CHROMIUM = "/usr/bin/chromium"
_TIMES = 5


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--run", type=Path, help="a finished run's directory")
    options = parser.parse_args()
    if options.run is None and not options.quick:
        parser.error("name a finished run: --run output/RUN")
    with tempfile.TemporaryDirectory() as directory:
        run = options.run or _made_up(Path(directory) / "run")
        publish(options.json, *measure(run, Path(directory) / "report.html"))


def measure(run: Path, file: Path) -> tuple[dict[str, Any], dict[str, float]]:
    began, cpu = time.perf_counter(), time.process_time()
    found = gather(run, run.name)
    file.write_text(page([found], live=False))
    written, cpu = time.perf_counter() - began, time.process_time() - cpu
    stored, size = sum(f.stat().st_size for f in episode_files(run)), file.stat().st_size
    index = found.summary["index"]
    figures = {
        "steps": len(index),
        "attempts": sum(entry["attempts"] for entry in index),
        "episodes_mb": stored / 1e6,
        "page_mb": size / 1e6,
        "write_s": written,
        "write_cpu_s": cpu,
    }
    return figures | _opened(file), {"vs_jsonl": stored / size}


def _opened(file: Path) -> dict[str, int | None]:
    """Returns the milliseconds to open the page and another step; None if Chromium is missing."""
    if not Path(_CHROMIUM).exists():
        print(f"not opened: there is no {_CHROMIUM} (apt-get install chromium)")
        return {"open_ms": None, "another_step_ms": None}
    from playwright.sync_api import sync_playwright

    opened, turned = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        for _ in range(_TIMES):
            view = browser.new_page()
            began = time.perf_counter()
            view.goto(file.as_uri())
            view.locator(".option").first.wait_for()
            opened.append(1000 * (time.perf_counter() - began))
            before = view.locator(".detail .meta").first.inner_text()
            began = time.perf_counter()
            view.keyboard.press("[")
            while view.locator(".detail .meta").first.inner_text() == before:
                pass
            turned.append(1000 * (time.perf_counter() - began))
            view.close()
        browser.close()
    return {"open_ms": round(median(opened)), "another_step_ms": round(median(turned))}


def _made_up(run: Path) -> Path:
    record = RunRecord(run)
    record.start({"game": {"kind": "multistage"}})
    for step in (1, 2, 3):
        record.add_episodes(json.dumps(row).encode() + b"\n" for row in _attempts(step))
        record.add({"step": step, "stage": 1, "phase": "generator", "generator_reward": 0.5})
    return run


def _attempts(step: int) -> Iterator[dict[str, Any]]:
    for attempt in range(8):
        outcomes = [{"test": f"assert f({n}) == {n}", "status": "PASSED"} for n in range(attempt + 1)]
        yield {
            "step": step, "stage": 1, "phase": "generator", "problem": "p", "policy": "generator",
            "player": "generator", "attempt": attempt, "version": step, "reward": 1.0,
            "components": {"pass_rate": 1.0}, "artifact": f"def f(n): return {attempt}", "tokens": [7],
            "finish": ["stop"], "outcomes": outcomes,
        }  # fmt: skip


if __name__ == "__main__":
    main()
