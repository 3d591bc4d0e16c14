"""Models behind HTTP: OpenAI's /v1/chat/completions, /v1/completions and /v1/models, and /v1/solve.

    python -m scripts.serve --model best=output/RUN
    python -m scripts.serve --model generator=output/RUN/checkpoints/best/generator --model chat=OWNER/HUB-ID
    python -m web.keys add alice && python -m scripts.serve --model best=output/RUN --keys keys.json --host 0.0.0.0

A run is its best generator. A model is loaded by the first request for it and put away when nobody has asked for a while.
What a client may send: docs/serving.md. Ends with Ctrl-C or SIGTERM; requests under way are answered first.
"""

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the rooms are found from the root
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.errors import SparringError, exit_with
from runtime.logs import quiet_logs

_ONGOING = 4096
"""Requests at once; the engine's own queue holds them."""


def main(arguments: Sequence[str]) -> None:
    from web.service import check_options

    options = _options(arguments)
    try:
        check_options(options)
        serve_until_told(options)
    except (SparringError, OSError) as error:
        exit_with(error)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    from web.service import add_options

    parser = argparse.ArgumentParser(
        prog="python -m scripts.serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--model",
        action="append",
        required=True,
        metavar="NAME=WHERE",
        help="a run, a checkpoint, a directory in Hugging Face format or a hub id, by the name that requests give; may "
        "be repeated",
    )
    add("--idle-s", type=float, default=300.0, help="a model is put away after so long without a request (%(default)s)")
    add("--max-models", type=int, default=2, help="loaded at once, fewer where memory does not allow it (%(default)s)")
    add("--max-tokens", type=int, default=4096, help="that one request may be answered with (%(default)s)")
    add("--max-model-len", type=int, help="tokens of prompt and completion; default: the model's context")
    add("--cache-mb", type=float, default=64.0, help="kept answers of each loaded model; 0: none (%(default)s)")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--dtype", choices=["float32", "bfloat16"], help="default: bfloat16 on a GPU that has it, else float32")
    add("--kv-cache-mb", type=int, default=1024, help="of each loaded model, on CPU (%(default)s)")
    add("--threads", type=int, default=1, help="CPU threads of each loaded model; give a large one more (%(default)s)")
    add("--sandbox", choices=["auto", "docker", "namespace", "process"], default="auto", help="of /v1/solve")
    add_options(parser, port=8000)
    return parser.parse_args(arguments)


def serve_until_told(options: argparse.Namespace) -> None:
    from serving.engine import EngineOptions
    from serving.models import fitting, open_models

    models = open_models(options.model, "--model")
    count = options.max_models
    if options.device == "cpu":
        count = fitting(models, count, options.dtype, options.kv_cache_mb)
    port = _free_port(options.host, options.port)
    engines = EngineOptions(
        device=options.device,
        dtype=options.dtype,
        max_model_len=options.max_model_len,
        max_tokens=options.max_tokens,
        kv_cache_mb=options.kv_cache_mb,
        gpu_memory_utilization=0.9 / count,
        cache_mb=options.cache_mb,
    )
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    ...
