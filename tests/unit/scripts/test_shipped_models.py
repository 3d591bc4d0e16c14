"""The embedded models in the repository are those that today's sources make."""

import json
from pathlib import Path

import pytest

from configs.load import load_run
from scripts import warm_start
from scripts.warm_start import SHIPPED
from tracking.run_record import cpu_model, versions

ROLES = ("generator", "discriminator")
MADE_FROM = json.loads((SHIPPED / "made_from.json").read_text())
REMEDY = "what the shipped models are made from has changed: python -m scripts.warm_start shipped"


@pytest.mark.parametrize("role", ROLES)
def test_their_sources_have_not_changed(role: str) -> None:
    config = load_run([])[0].to_config()
    assert warm_start.fingerprint(config, role) == MADE_FROM["models"][role]["fingerprint"], REMEDY


@pytest.mark.parametrize("recipe", ["embedded", "debug"])
def test_the_recipes_of_the_first_day_start_from_them(recipe: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = load_run(["--config", recipe])[0].to_config()
    assert warm_start.ensure_embedded(config, ROLES) == {role: SHIPPED / role for role in ROLES}
    assert not list(tmp_path.iterdir())


def test_another_demonstrator_is_another_model() -> None:
    config = load_run(["--warm-start.misconceptions", "0.5"])[0].to_config()
    assert warm_start.find_embedded(config, "generator") != SHIPPED / "generator"


def test_without_the_shipped_files_they_are_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(warm_start, "SHIPPED", tmp_path)
    found = warm_start.find_embedded(load_run([])[0].to_config(), "generator")
    assert found.parent == warm_start.cache_directory()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_made_again_they_are_the_same_to_the_bit(tmp_path: Path) -> None:
    made_on = MADE_FROM["made_on"]
    here = {
        "cpu": cpu_model(),
        **{name: versions().get(name) for name in ("torch", "transformers")},
    }
    there = {
        "cpu": made_on["cpu"],
        **{name: made_on["versions"].get(name) for name in ("torch", "transformers")},
    }
    if here != there:
        pytest.skip(f"arithmetic may differ in the last bit: made on {there}, this is {here}")
    warm_start.ship(tmp_path)
    for role in ROLES:
        for name in ("model.safetensors", "tokenizer.json"):
            assert (tmp_path / role / name).read_bytes() == (SHIPPED / role / name).read_bytes(), (
                f"{role}/{name}"
            )
