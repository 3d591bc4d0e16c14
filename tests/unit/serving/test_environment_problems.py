"""Problems of a data set that somebody brings, as an environment for another trainer takes them."""

import json
from pathlib import Path

import pytest

from sparring.core.errors import SparringError
from sparring.core.problem import Problem
from sparring.games.multistage.rules import MultistageRules
from sparring.serving.environment_problems import environment_problems


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set of three problems, of which the game refuses the second."""
    rows = [
        {"task_id": i, "text": f"{i}", "code": "def f(n): return n", "test_list": ["assert f(2) == 2"]}
        for i in range(3)
    ]
    path = tmp_path / "mbpp.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def refuse(rules: MultistageRules, problem: Problem) -> str | None:
        return "no" if problem.id == "mbpp/1" else None

    monkeypatch.setattr(MultistageRules, "refuse", refuse)
    return str(path)


def test_what_the_game_cannot_play_is_named_and_left_out(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = environment_problems(file, "mbpp", {}, None, MultistageRules())
    assert [problem.id for problem in problems] == ["mbpp/0", "mbpp/2"]
    assert "mbpp/1: no" in capsys.readouterr().out


def test_a_set_of_which_nothing_can_be_played_is_refused(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MultistageRules, "refuse", lambda rules, problem: "no")
    with pytest.raises(SparringError, match="mbpp/0: no"):
        environment_problems(file, "mbpp", {}, None, MultistageRules())
