from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from core.interfaces import EngineFailure
from runtime import local, session
from runtime.parts import Start


def test_where_a_part_of_a_run_fails_its_checkpoints_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing(*_: Any) -> Iterator[None]:
        yield
        raise EngineFailure("vLLM ended: out of memory")

    monkeypatch.setattr(local, "local_parts", failing)
    start = Start(run_directory=tmp_path, models={}, checkpoint=None, versions={}, state=None)
    with (
        pytest.raises(EngineFailure) as failed,
        session._parts(Config.model_validate({"local": True}), start, []),
    ):
        pass
    assert failed.value.__notes__ == [f"the checkpoints are in {tmp_path}; continue with --resume"]
