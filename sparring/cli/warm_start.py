"""Rebuilds the embedded models that the repository contains. On the same kind of machine the result is equal bit for
bit.

    python -m sparring warm_start

A run makes the embedded models of any other recipe by itself.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import torch

from configs.load import load_run
from sparring.embedded.teaching import WARM_STARTS, identity, make_missing
from sparring.tracking.run_record import cpu_model, versions

RECIPES = {"embedded": "embedded", "edges": "embedded:edges"}
"""Recipe of each directory."""


def ship(name: str, warm_starts: Path = WARM_STARTS) -> None:
    """Makes the models of an entry of RECIPES, and records what they are made from."""
    config, directory = load_run(["--config", RECIPES[name]])[0].to_config(), warm_starts / name
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as drafts:
        make_missing({role: Path(drafts) / role for role in config.policies}, config.game, config.warm_start)
        for role in config.policies:
            shutil.rmtree(directory / role, ignore_errors=True)
            (Path(drafts) / role).rename(directory / role)
    models = {role: identity(role, config.game, config.warm_start) for role in config.policies}
    instructions = torch.backends.cpu.get_cpu_capability()
    made_on = {"cpu": cpu_model(), "instructions": instructions, "versions": versions()}
    made_from = {"recipe": RECIPES[name], "models": models, "made_on": made_on}
    (directory / "made_from.json").write_text(json.dumps(made_from, indent=1) + "\n", "utf-8")
    print(f"made in {directory}")


def main() -> None:
    argparse.ArgumentParser(prog="python -m sparring warm_start", description=__doc__).parse_args()
    for name in RECIPES:
        ship(name)


if __name__ == "__main__":
    main()
