"""Which problems fit the engines."""

from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.core.project_files import EXAMPLES
from sparring.runtime import build
from sparring.runtime.start import open_tokenizer
from tests.playing import Letters
from tests.unit.runtime.makers import both, problem, start_at

TRAIN, HELD_OUT = [[problem(f"{part}{size}", "a" * size) for size in (10, 20_000)] for part in "th"]


def config(way: str, room: int = 9000) -> Config:
    policy = {"engine": {"max_model_len": room}, "max_tokens": 50}
    return both(policy, problems={"file": "problems.json", "too_long": way})


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token each."""
    monkeypatch.setattr(build, "format_for", lambda tokenizer: Letters())


TOKENIZERS: dict[str, Any] = {"generator": None, "discriminator": None}


def test_a_problem_too_long_refuses_the_run_with_how_many_there_are() -> None:
    with pytest.raises(SparringError, match=r"[th]20000: .* 9000, .* 2 of 4 problems: .*too-long leave_out"):
        build.fitting(config("refuse"), TRAIN, HELD_OUT, TOKENIZERS)


def test_those_too_long_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    kept = build.fitting(config("leave_out"), TRAIN, HELD_OUT, TOKENIZERS)
    assert [[p.id for p in part] for part in kept] == [["t10"], ["h10"]]
    assert "too few for 2 of 4 problems, which are left out" in capsys.readouterr().out


def test_where_none_would_be_left_the_run_is_refused() -> None:
    with pytest.raises(SparringError, match=r"too few for 2 of 3 problems: raise it"):
        build.fitting(config("leave_out"), TRAIN, HELD_OUT[1:], TOKENIZERS)


MODELS = {role: str(EXAMPLES / "toy" / role) for role in ("generator", "discriminator")}


def test_engines_are_probed_with_text(tmp_path: Path) -> None:
    """In 16 bits, what engine and learner say of random tokens may differ by more than the tolerance."""
    for role, spec in build.learner_specs(config("refuse"), start_at(tmp_path, models=MODELS)).items():
        assert open_tokenizer(MODELS[role]).decode(spec.probe).startswith("Return the sum of all numbers")


@pytest.mark.parametrize("checkpoint", [None, EXAMPLES / "toy"])
def test_weights_of_a_checkpoint_are_handed_in_even_if_it_is_the_model_too(
    tmp_path: Path, checkpoint: Path | None
) -> None:
    """Otherwise a run with --resume-from would wait for them."""
    start = start_at(tmp_path, models=MODELS, checkpoint=checkpoint)
    specs = build.learner_specs(config("refuse"), start).values()
    assert [spec.from_checkpoint for spec in specs] == [checkpoint is not None] * 2
