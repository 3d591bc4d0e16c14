"""sparring openenv: its options."""

import pytest

from configs.openenv import OpenEnvOptions
from sparring.core.errors import SparringError


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), "unit_tests"),
        (("--game.base-weight", "0.5"), "unit_tests"),
        (("--game.kind", "code_execution"), "code_execution"),
        (("--game.kind", "code_execution", "--game.gate-on-tests"), "code_execution"),
    ],
)
def test_keys_of_a_game_without_its_kind_are_those_of_unit_tests(
    arguments: tuple[str, ...], kind: str
) -> None:
    assert OpenEnvOptions.read(["--dataset", "d", *arguments]).game.kind == kind


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--game.base-weight", "much"), "--game.base-weight: Input should be a valid number"),
        (
            ("--game.sandbox-limits.cpu-s", "-1"),
            "--game.sandbox-limits.cpu-s: Input should be greater than 0",
        ),
        (
            ("--game.kind", "code_golf", "--game.rewards.length-scale", "0"),
            "--game.rewards.length-scale: Input should",
        ),
        (
            ("--game.rewards.length-scale", "5"),
            "--game.rewards: game.kind multistage or code_golf takes it, not unit_t",
        ),
    ],
)
def test_a_fault_of_a_nested_key_names_it(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SparringError) as refused:
        OpenEnvOptions.read(["--dataset", "d", *arguments])
    assert said in str(refused.value)
