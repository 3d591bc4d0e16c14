"""Files that come with the project. Recipes and commands name them by their paths in the repository, from any directory."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "sparring" / "examples"
"""Toy problems and toy models, which lab/ makes: a directory for each game, with train.json, held_out.json and a directory
for each policy's model."""


def located(path: str | Path) -> Path:
    """Returns a path with the home directory in place of "~". A relative path that exists only
    in the project's directory is returned as a path there."""
    path = Path(path).expanduser()
    return ROOT / path if not path.exists() and (ROOT / path).exists() else path


def is_example(path: str | Path) -> bool:
    """Returns whether a path names a file or a directory in EXAMPLES."""
    return located(path).resolve().is_relative_to(EXAMPLES)
