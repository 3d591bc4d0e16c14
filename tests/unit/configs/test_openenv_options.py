"""sparring openenv: its options."""

import pytest

from configs.openenv import OpenEnvOptions


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
