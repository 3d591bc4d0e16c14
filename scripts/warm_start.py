"""Make the embedded models that are in the repository again: the same bits on the same kind of machine.

    python -m scripts.warm_start shipped

A run makes those of any other recipe by itself.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import torch

from configs.load import load_run
from embedded.teaching import SHIPPED, identity, make_missing
from tracking.run_record import cpu_model, versions


def ship(directory: Path = SHIPPED) -> None:
    """Make the default recipe's models, and note what they are made from."""
    config = load_run([])[0].to_config()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as drafts:
        make_missing({role: Path(drafts) / role for role in config.policies}, config.game, config.warm_start)
        for role in config.policies:
            shutil.rmtree(directory / role, ignore_errors=True)
            (Path(drafts) / role).rename(directory / role)
    models = {role: identity(role, config.game, config.warm_start) for role in config.policies}
    instructions = torch.backends.cpu.get_cpu_capability()
    made_on = {"cpu": cpu_model(), "instructions": instructions, "versions": versions()}
    made_from = {"models": models, "made_on": made_on}
    (directory / "made_from.json").write_text(json.dumps(made_from, indent=1) + "\n")
    print(f"made in {directory}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the embedded models that are in the repository again.")
    parser.add_argument("models", choices=["shipped"])
    parser.parse_args()
    ship()


if __name__ == "__main__":
    main()
