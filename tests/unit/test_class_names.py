"""One name is one thing: no two modules define classes of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "configs", "learners", "sparring", "lab", "benchmarks")
"""Without sandbox_workers, whose runner is copied into the sandbox by itself."""


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
