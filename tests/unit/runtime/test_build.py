"""Which problems fit the engines."""

from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.core.problem import Problem
from sparring.core.project_files import EXAMPLES
from sparring.runtime import build
from sparring.runtime.parts import Start
from sparring.runtime.start import open_tokenizer
from tests.playing import Letters

TRAIN, HELD_OUT = [
    [
        Problem(
            id=f"{part}{size}",
            description="a" * size,
            function_signature="def f(n):",
            baseline_tests=("assert f(1) == 1",),
            reference_solution="def f(n): return n",
        )
        for size in (10, 20_000)
    ]
    for part in "th"
]


def config(way: str, room: int) -> Config:
    policy = {"engine": {"max_model_len": room}, "max_tokens": 50}
    problems = {"file": "problems.json", "too_long": way}
    return Config.model_validate({"generator": policy, "discriminator": policy, "problems": problems})


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token each."""
    monkeypatch.setattr(build, "format_for", lambda tokenizer: Letters())


TOKENIZERS: dict[str, Any] = {"generator": None, "discriminator": None}


def test_a_problem_too_long_refuses_the_run_with_how_many_there_are() -> None:
    with pytest.raises(
        SparringError,
        match=r"problem [th]20000: .* is 9000, too few for 2 of 4 problems: .*too-long leave_out",
    ):
        build.fitting(config("refuse", 9000), TRAIN, HELD_OUT, TOKENIZERS)


def test_those_too_long_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    kept = build.fitting(config("leave_out", 9000), TRAIN, HELD_OUT, TOKENIZERS)
    assert [[p.id for p in part] for part in kept] == [["t10"], ["h10"]]
    assert "too few for 2 of 4 problems, which are left out" in capsys.readouterr().out


def test_where_none_would_be_left_the_run_is_refused() -> None:
    with pytest.raises(SparringError, match=r"too few for 2 of 3 problems: raise it"):
        build.fitting(config("leave_out", 9000), TRAIN, HELD_OUT[1:], TOKENIZERS)


def test_engines_are_probed_with_text(tmp_path: Path) -> None:
    """In 16 bits, what engine and learner say of random tokens may differ by more than the tolerance."""
    folder = str(EXAMPLES / "toy/generator")
    start = Start(
        run_directory=tmp_path,
        models={"generator": folder, "discriminator": folder},
        checkpoint=None,
        versions={},
        state=None,
    )
    for spec in build.learner_specs(config("refuse", 9000), start).values():
        assert open_tokenizer(folder).decode(spec.probe).startswith("Return the sum of all numbers")


@pytest.mark.parametrize("checkpoint", [None, EXAMPLES / "toy"])
def test_weights_of_a_checkpoint_are_handed_in_even_if_it_is_the_model_too(
    tmp_path: Path, checkpoint: Path | None
) -> None:
    """Otherwise a run with --resume-from would wait for them."""
    models = {role: str(EXAMPLES / "toy" / role) for role in ("generator", "discriminator")}
    start = Start(run_directory=tmp_path, models=models, checkpoint=checkpoint, versions={}, state=None)
    specs = build.learner_specs(config("refuse", 9000), start).values()
    assert [spec.from_checkpoint for spec in specs] == [checkpoint is not None] * 2
