"""Serves models over HTTP: OpenAI's /v1/chat/completions, /v1/completions and /v1/models, and /v1/solve.

    python -m sparring serve --model best=output/RUN
    python -m sparring serve --model generator=output/RUN/checkpoints/best/generator --model chat=OWNER/HUB-ID
    python -m sparring keys add alice && python -m sparring serve --model best=output/RUN --keys keys.json --host 0.0.0.0

A run stands for its best generator. A model is loaded by the first request for it, and unloaded when it has not been
used for a while. What a client may send: docs/serving.md. Ctrl-C or SIGTERM ends the service; requests under way have
10 s to be answered.
"""

import argparse
import contextlib
import logging
import math
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    from fastapi import FastAPI

from sparring.core.commands import parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.core.interfaces import SandboxKind
from sparring.runtime.logs import quiet_logs
from sparring.web.options import add_options

_ONGOING = 4096
"""Maximum number of requests at once; the engine's own queue holds them."""
_OBJECT_STORE_BYTES = 128 << 20
_GRACE_S = 10
"""Seconds that requests under way have at the end."""
_BY_ITSELF = {
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
    "RAY_SERVE_PORT_QUARANTINE_S": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_worker_niceness": "0",  # with Ray's 15, clients on this machine would take nearly all CPU time
}
"""Settings with which the replica itself listens for requests. If Serve's proxy listened, each request and each piece
of an answer would pass between processes two more times. On a cluster the nodes' proxies listen."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        serve_until_told(options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring serve", __doc__)
    add = parser.add_argument
    add(
        "--model",
        action="append",
        required=True,
        metavar="NAME=WHERE",
        help="a run, a checkpoint, a directory in Hugging Face format, a GGUF file or a hub id, by the name that "
        "requests give; may be repeated",
    )
    add(
        "--idle-s",
        type=float,
        default=300.0,
        help="seconds without a request after which a model is closed. Default: %(default)s",
    )
    add(
        "--max-models",
        type=int,
        default=2,
        help="maximum number of models that are loaded at once; fewer if memory does not allow it. Default: %(default)s",
    )
    add(
        "--max-tokens",
        type=int,
        default=4096,
        help="maximum number of tokens of all completions of one request together. Default: %(default)s",
    )
    add(
        "--max-model-len",
        type=int,
        help="maximum number of tokens of prompt and completion. Default: as many as the model and its cache allow",
    )
    add(
        "--cache-mb",
        type=float,
        default=64.0,
        help="size of the cache of answers of each loaded model, in MiB; 0: none. Default: %(default)s",
    )
    add(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="auto takes cuda if this machine has a GPU that can be used. Default: %(default)s",
    )
    add(
        "--dtype",
        choices=["float32", "bfloat16"],
        help="data type of the weights. Default: bfloat16 on a GPU that supports it, else float32",
    )
    add(
        "--kv-cache-mb",
        type=int,
        default=1024,
        help="size of the key-value cache of each loaded model on a CPU, MiB. Default: %(default)s",
    )
    add(
        "--threads",
        type=int,
        default=1,
        help="number of CPU threads of each loaded model; a large model needs more. Default: %(default)s",
    )
    add(
        "--sandbox",
        choices=[*get_args(SandboxKind), "none"],
        default="auto",
        help="sandbox of /v1/solve",
    )
    add(
        "--slots",
        type=int,
        default=2,
        help="number of programs that the sandbox runs at once. Default: %(default)s",
    )
    add_options(parser, port=8000)
    return parser.parse_args(arguments)


def serve_until_told(options: argparse.Namespace) -> None:
    """Serves until the process is stopped. Raises SparringError."""
    from sandbox_workers.backends import choose_backend
    from sparring.runtime.hardware import of_engine
    from sparring.serving.models import fitting, open_models, with_context
    from sparring.web.service import address, check

    leasts = {
        "max_models": 1, "max_tokens": 1, "max_model_len": 32, "cache_mb": 0, "kv_cache_mb": 16, "threads": 1, "slots": 1,
    }  # fmt: skip
    for option, least in leasts.items():
        if (value := getattr(options, option)) is not None and not value >= least:  # nan, too
            raise SparringError(f"--{option.replace('_', '-')} {value}: {least} or more")
    if math.isinf(options.cache_mb):
        raise SparringError(f"--cache-mb {options.cache_mb:g}: a number of MiB")
    if not options.idle_s > 0:
        raise SparringError(f"--idle-s {options.idle_s:g}: more than 0")
    check(options)  # here, and not in a replica's log
    models = open_models(options.model, "--model")
    for name, model in models.items():
        if note := model.note():
            print(f"{name}: {note}", flush=True)
    options.device = of_engine(options.device, options.dtype)["device"]
    if options.device == "cpu":
        dtype = options.dtype or "float32"
        with_context(models, options.max_model_len, dtype, options.kv_cache_mb)
        options.max_models = fitting(models, options.max_models, dtype, options.kv_cache_mb)
    if options.sandbox != "none":
        print(choose_backend(options.sandbox).description, flush=True)
    options.port = _free_port(options.host, options.port)
    with on_ray(options):
        told = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray's own handler would end it with an error
            signal.signal(number, lambda *_: told.set())
        where = address(options.host, options.port)
        print(
            f"serving {', '.join(models)} at {where}/v1, at most {options.max_models} loaded at once",
            flush=True,
        )
        told.wait()
        print(f"stopping; requests under way have {_GRACE_S} s to be answered", flush=True)


def _free_port(host: str, port: int) -> int:
    """Returns a free port. Raises SparringError if the port is taken: Serve would try again and again."""
    from sparring.web.service import listening

    try:
        with listening(host, port) as probe:
            return probe.getsockname()[1]
    except SparringError as error:
        raise SparringError(f"{error}; give another, or --port 0") from None


@contextlib.contextmanager
def on_ray(options: argparse.Namespace) -> Iterator[None]:
    """Starts the service on Ray, and stops it afterwards. Raises SparringError if the service does not start."""
    proxy_port = options.port
    if not os.environ.get("RAY_ADDRESS"):
        # the proxy starts all the same, on a port that is not announced
        proxy_port = _free_port(options.host, 0)
        os.environ |= _BY_ITSELF | {
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(options.port),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(options.port + 1),
            # Ray's processes listen on all interfaces and obey any client that sends the token, so the token is secret.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
    import ray
    from ray import serve
    from ray.exceptions import RayError

    from actors.settings import ENGINE_ENVIRONMENT
    from sparring.runtime.ray_start import join_ray, start_ray

    def build() -> "FastAPI":
        from sparring.serving.app import build_app
        from sparring.web.service import guarded

        return guarded(build_app(options), options)

    replica = serve.deployment(
        name="replica",
        max_ongoing_requests=_ONGOING,
        graceful_shutdown_timeout_s=_GRACE_S,
        logging_config={"enable_access_log": False},
        ray_actor_options={
            "num_cpus": 0,
            "num_gpus": int(options.device == "cuda"),
            "runtime_env": {"env_vars": ENGINE_ENVIRONMENT | {"OMP_NUM_THREADS": str(options.threads)}},
        },
    )(serve.ingress(build)())
    if os.environ.get("RAY_ADDRESS"):
        join_ray()
    else:
        start_ray(include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES)
    try:
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(http_options={"host": options.host, "port": proxy_port})
        serve.run(replica.bind(), name="sparring", route_prefix="/")
        yield
    except (RayError, RuntimeError) as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        raise SparringError(f"the service did not start: {last}") from error
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    quiet_logs()
    main(sys.argv[1:])
