"""The game of docs/your_own_game.md, as a user adds it: its file, its name in the list, and a step of training."""

import json
from pathlib import Path

import pytest

from tests import your_own_game
from tests.integration.houses import copy_house, run


@pytest.mark.slow  # a run in a process of its own
def test_the_game_of_the_manual_trains_two_models(chat_model: Path, tmp_path: Path) -> None:
    house = copy_house(tmp_path / "house")
    (house / "sparring" / "games" / "regex.py").write_text(your_own_game.source())
    names = house / "sparring" / "games" / "__init__.py"
    last = "    | KuhnRules,\n"
    before, after = names.read_text().split(last)
    before = before.replace("GameRules = ", "from sparring.games.regex import RegexRules\n\nGameRules = ")
    names.write_text(before + last.replace(",", " | RegexRules,") + after)
    (house / "problems.json").write_text(json.dumps({"problems": your_own_game.PROBLEMS}))
    (house / "regex.yaml").write_text(
        "{game: {kind: regex}, problems: {file: problems.json}, "
        f"generator: &model {{model: {chat_model}, max_tokens: 12, engine: {{kind: transformers}}}}, discriminator: *model}}"
    )
    run(
        house, "driver.py", "--config", "regex.yaml", "--local", "--sandbox.backend", "process", "--run-name", "own",
        "--n-discriminator-steps", 1, "--n-generator-steps", 0, "--k-alternating-steps", 0,
        "--curriculum.problems-per-step", 2, "--curriculum.attempts", 2, "--curriculum.frozen-programs", 2,
    )  # fmt: skip
    before, row = [json.loads(line) for line in (house / "output/own/metrics.jsonl").read_text().splitlines()]
    assert set(before["held_out"]) == {"writer_reward", "breaker_reward", "unjudged"}
    assert 0 <= row["writer_reward"] <= 1 and 0 <= row["breaker_reward"] <= 1
    assert not row["dropped"]["sandbox_failure"]
