from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    """recipe("seed: 2") -> arguments that name a file with that text."""

    def write(text: str) -> tuple[str, str]:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return "--config", str(path)

    return write
