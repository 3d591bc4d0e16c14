"""What a run trains on, and what it is measured on."""

import json

import pytest

from configs.schema import Config
from problems.loader import ProblemFileError
from runtime.problem_sets import load_splits


def problem(name: str, reference: str) -> dict:
    return {
        "id": name,
        "description": f"Return n, as {name} does.",
        "function_signature": f"def {name}(n: int) -> int:",
        "baseline_tests": [f"assert {name}(2) == 2"],
        "difficulty": "easy",
        "tags": [],
        "reference_solution": reference,
    }


@pytest.mark.parametrize("refused", ["train", "held_out"])
def test_a_problem_that_the_game_refuses_is_named_with_its_own_file(tmp_path, monkeypatch, refused):
    files = {}
    for name in ("train", "held_out"):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps({"problems": [problem(name, f"def {name}(n): return n")]}))
    config = Config.model_validate(
        {
            "problems": {"file": str(files["train"]), "held_out": {"file": str(files["held_out"])}},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    monkeypatch.setattr(
        type(config.game), "refuse", lambda rules, problem: "no" if problem.id == refused else None
    )
    with pytest.raises(ProblemFileError, match=rf"/{refused}\.json: problem {refused}: no$"):
        load_splits(config)
