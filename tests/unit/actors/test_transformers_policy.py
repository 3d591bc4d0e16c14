"""Ctrl-C while the engine decodes, which it does within one turn of the event loop."""

import asyncio
import signal
from pathlib import Path

import pytest

from actors.settings import TransformersEngineSettings
from actors.transformers_policy import TransformersPolicy
from sparring.core.interfaces import Sampling
from tests.learning import save_tiny_model

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it


def test_ctrl_c_ends_decoding_after_the_token(tmp_path: Path) -> None:
    policy = TransformersPolicy(str(save_tiny_model(tmp_path)), TransformersEngineSettings(max_num_seqs=2))
    model, passes = policy._model, 0

    def interrupted_at_the_third(**inputs: object) -> object:
        nonlocal passes
        passes += 1
        if passes == 3:
            signal.raise_signal(signal.SIGINT)
        return model(**inputs)

    async def play() -> None:
        asked = Sampling(max_tokens=200, stop_token_ids=())
        await asyncio.gather(*(policy.generate([1, 2, 3], asked) for _ in range(5)))

    policy._model = interrupted_at_the_third
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(play())
    assert passes == 3
