"""The parts of a run in one process."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs.load import load_run
from runtime import local
from runtime.parts import Start


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "threads"), [(1, 1), (2, 2), (9, 2)])
def test_the_process_has_no_more_threads_than_its_learners_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None, asked: int, threads: int
) -> None:
    async def close() -> None: ...

    runner: Any = SimpleNamespace(close=close)
    monkeypatch.setattr(local, "build_runner", lambda *_: runner)
    monkeypatch.setattr(local, "_build", lambda group: {})
    arguments = ["--config", "spiral_kuhn", "--local", "--device", "cpu"]
    config = load_run([*arguments, "--generator.learner.threads", str(asked)])[0].to_config()
    models = dict.fromkeys(config.policies, "nobody's")
    start = Start(run_directory=tmp_path, models=models, checkpoint=None, versions={}, state=None)
    with local.local_parts(config, [], start):
        assert torch.get_num_threads() == threads
