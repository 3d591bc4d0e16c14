import asyncio
from pathlib import Path

import pytest

from benchmarks.experiments import r0
from configs.load import load_run
from lab import examples
from lab.problems import toy_specs
from lab.sampling import run_reference
from lab.traces import weak_input
from sparring.core.episode import Trajectory


@pytest.mark.parametrize("arm", r0.ARMS)
def test_every_arm_earns_as_r0_says(arm: str) -> None:
    config = load_run(["--config", "toy", *r0.ARMS[arm]])[0].to_config()
    assert (config.game.rewards.validity_weight, config.game.rewards.validity_slots) == (0, 1)
    assert config.credit.kind == ("all" if arm.endswith("all_stages") else "stage")
    assert config.game.test_format == ("strict" if "strict" in arm else "input_only")


def test_the_strict_arms_models_were_shown_asserts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(examples, "ensure_models", lambda roles, rules, settings: shown.append(rules) or {})
    r0.strict_models()
    assert [rules.test_format for rules in shown] == ["strict"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("assert f([1, -2]) == 3", ([1, -2], 3)),
        ("assert f('a') == 'A'", ("a", "A")),
        ("f(3)", None),
        ("assert f(3) == x", None),
        ("assert f(3 == 4", None),
    ],
)
def test_an_assert_is_read(line: str, read: tuple | None) -> None:
    assert r0.read_assert(line) == read


def test_asserts_are_counted_by_kind_of_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each problem a right one on a weak input, a wrong one on another, one of another type, and what is no assert."""
    specs = iter(toy_specs("held_out"))

    async def written(problems: list, *_: object) -> list[list[str]]:
        return [[suite(next(specs))] for _ in problems]

    def suite(spec) -> Trajectory:
        weak = weak_input(spec, r0.Random(1))
        (output,) = run_reference(spec, [weak])
        other = {"list": [50, 60], "int": 50, "str": "xyz"}[spec.kind.input_type]
        text = (
            f"assert f({weak!r}) == {output!r}\nassert f({other!r}) == 'wrong'\nassert f(None) == 0\nf(1)\n"
        )
        return Trajectory(player="discriminator", attempt=0, turns=[], artifact=text)

    class Nobody:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(r0, "writer", lambda *_: Nobody())
    monkeypatch.setattr(r0, "write_suites", written)
    config = load_run(["--config", "toy", *r0.ARMS["r0_strict"]])[0].to_config()
    found = asyncio.run(r0.which_hold(Path(), config, seed=1))
    assert found == {"weak inputs": [True] * 100, "other inputs": [False] * 200}
