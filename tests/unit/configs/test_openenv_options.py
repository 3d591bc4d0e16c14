"""sparring openenv: its options."""

import pytest

from configs.openenv import OpenEnvOptions
from sparring.core.errors import SparringError


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("", "unit_tests"),
        ("--game.base-weight 0.5", "unit_tests"),
        ("--game.kind code_execution", "code_execution"),
        ("--game.kind code_execution --game.gate-on-tests", "code_execution"),
    ],
)
def test_keys_of_a_game_without_its_kind_are_those_of_unit_tests(arguments: str, kind: str) -> None:
    assert OpenEnvOptions.read(["--dataset", "d", *arguments.split()]).game.kind == kind


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--game.base-weight much", "--game.base-weight: "),
        ("--game.sandbox-limits.cpu-s -1", "--game.sandbox-limits.cpu-s: "),
        ("--game.kind code_golf --game.rewards.length-scale 0", "--game.rewards.length-scale: "),
        ("--game.rewards.length-scale 5", "--game.rewards: game.kind multistage or code_golf takes it"),
    ],
)
def test_a_fault_of_a_nested_key_names_it(arguments: str, said: str) -> None:
    with pytest.raises(SparringError, match=said):
        OpenEnvOptions.read(["--dataset", "d", *arguments.split()])
