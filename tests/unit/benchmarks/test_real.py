"""What a run of the experiment on a pretrained model practised."""

import argparse
import asyncio
import json
from pathlib import Path

from benchmarks.experiments import real

TASKS = [
    {"task_id": 601, "text": "Double.", "code": "def f(n):\n    return n * 2\n", "test_list": ["assert f(2) == 4"]},
    {"task_id": 602, "text": "Halve.", "code": "def g(n):\n    return n / 2\n", "test_list": ["assert g(2) == 1"]},
]  # fmt: skip


def options(directory: Path, learnable: bool = True) -> argparse.Namespace:
    (directory / "mbpp.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    rates = {"pass_rates": {"mbpp/601": 0.5, "mbpp/602": 0.25}}
    (directory / "training_rates.json").write_text(json.dumps(rates))
    plain = {"model": "m", "max_tokens": 9, "suite_tokens": 9, "steps": 3, "more": []}
    dataset = directory / "mbpp.jsonl"
    return argparse.Namespace(output=directory, dataset=dataset, learnable=learnable, **plain)


def test_programs_are_compared_with_those_of_the_untrained_model(tmp_path: Path) -> None:
    right, wrong = ("def f(n): return n + n", "def f(n): return 0")
    halves = "def g(n): return n / 2"
    attempts = [(1, 601, wrong), (1, 601, right), (2, 601, right), (2, 602, halves), (4, 602, "")]
    rows = [
        {"step": step, "problem": f"mbpp/{task}", "player": "generator", "artifact": program}
        for step, task, program in attempts
    ]
    rows.append({"step": 1, "problem": "mbpp/601", "player": "discriminator", "artifact": "assert f(1) == 2"})
    (tmp_path / "episodes.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    gains = asyncio.run(real.practised(tmp_path, options(tmp_path)))
    assert [mean for mean, _ in gains] == [0.0, (0.5 + 0.75) / 2, -0.25]  # nothing was played in step 3


def test_a_run_may_leave_out_what_the_model_always_or_never_solves(tmp_path: Path, monkeypatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(real, "finished_run", lambda recipe, name, output, words: asked.append(words))
    for learnable in (True, False):
        real.trained("sparring", 1, options(tmp_path, learnable))
    filtered, whole = asked
    place = filtered.index("--problems.pass-rates")
    assert filtered[place + 1] == str(tmp_path / "training_rates.json")
    assert filtered[:place] + filtered[place + 2 :] == whole
