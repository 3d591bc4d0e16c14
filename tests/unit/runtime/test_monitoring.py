"""The dashboard asks for what the code measures."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHELLS = (
    "actors/engines.py",
    "actors/rollout.py",
    "actors/rollout_actor.py",
    "learners/mailbox.py",
    "sandbox_workers/pool.py",
    "sparring/runtime/monitoring.py",
)
SUFFIXES = r"(?:_bucket|_total|_sum|_count)?"


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    measured = {
        name for file in SHELLS for name in re.findall(r'"(sparring_\w+)"', (ROOT / file).read_text())
    }
    dashboard = json.loads((ROOT / "docker" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {re.sub(f"{SUFFIXES}$", "", name) for e in asked for name in re.findall(r"ray_(sparring_\w+)", e)}
    assert shown == measured and len(measured) > 15


def test_nothing_else_measures() -> None:
    rooms = [file for file in ROOT.glob("*/*.py") if ".venv" not in file.parts]
    others = [
        f for f in rooms if "ray.util.metrics" in f.read_text() and str(f.relative_to(ROOT)) not in SHELLS
    ]
    assert others == []
