"""Compares our service with plain `vllm serve`: requests per second and latency of /v1/completions; and its behaviour
under mixed load.

    python -m benchmarks.serve                        1, 16 and 128 clients, taking turns with vllm serve
    python -m benchmarks.serve --mixed-minutes 10     in addition, mixed load of which a twentieth is bad

Both serve the shipped generator (0.4M parameters, so that the servers' own work dominates) on this machine, with the
same engine settings; ours has a key, a rate limit and an audit log. No two requests are equal; none is cached. A client
sends its next request as soon as it has an answer. `vs_vllm_serve_N` are requests per second, ours divided by theirs,
with N clients.
Mixed: completions and chats, in one piece and streamed, equal ones, /v1/solve with tests; bad are malformed JSON,
unknown models, wrong keys, too many tokens, and clients that hang up in mid-stream. A request is lost if its answer is
incomplete or has an unexpected status.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from actors.settings import ENGINE_ENVIRONMENT
from benchmarks.end_to_end import proportional_set_size, tree
from benchmarks.report import ROOT, arguments, percentile, publish
from sparring.core.project_files import EXAMPLES
from sparring.web.keys import add

MODEL = EXAMPLES / "toy" / "generator"
TOKENS = 32
CLIENTS = (1, 16, 128)
START_S = 240
MIXED_CLIENTS = 8
PARTS = 10
JSON = {"content-type": "application/json"}
Ask = dict[str, Any]


@dataclass(kw_only=True)
class RunningServer:
    url: str
    process: subprocess.Popen[bytes]
    headers: dict[str, str] = field(default_factory=dict)

    def memory(self) -> int:
        """Returns the proportional set size of all processes of the server, in bytes."""
        return sum(proportional_set_size(process) for process in tree(self.process.pid))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--mixed-minutes", type=float, default=0.0, help="of mixed load besides (default: none)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        ours = servers.enter_context(our_service(Path(folder)))
        theirs = servers.enter_context(vllm_serve(Path(folder)))
        figures, ratios = asyncio.run(against(ours, theirs, quick=options.quick))
        if options.mixed_minutes:
            figures |= asyncio.run(
                mixed(ours, min(options.mixed_minutes * 60, 20 if options.quick else math.inf))
            )
    publish(options.json, figures, ratios)
    if figures.get("mixed_lost"):
        raise SystemExit("requests were lost")


# ---------------------------------------------------------------- the two servers


def our_service(folder: Path) -> contextlib.AbstractContextManager[RunningServer]:
    key = add(folder / "keys.json", "bench")
    options = {
        "model": f"model={MODEL}",
        "keys": folder / "keys.json",
        "kv-cache-mb": 256,
        "requests-per-minute": 10_000_000,
        "audit-log": folder / "audit.jsonl",
        "idle-s": 3600,
    }
    return started("sparring.cli.serve", options, folder / "ours.log", {"authorization": f"Bearer {key}"})


def vllm_serve(folder: Path) -> contextlib.AbstractContextManager[RunningServer]:
    options = {
        "model": MODEL,
        "served-model-name": "model",
        "host": "127.0.0.1",
        "dtype": "float32",
        "enforce-eager": True,
        "kv-cache-memory-bytes": 256 << 20,
        "max-model-len": 512,
        "max-num-seqs": 128,
        "no-enable-chunked-prefill": True,
        "max-num-batched-tokens": 65536,
        "distributed-executor-backend": "uni",
        "generation-config": "vllm",
        "disable-log-stats": True,
        "disable-uvicorn-access-log": True,
    }
    # the same as `vllm serve`, which requires a package of that name: the CPU build has another
    return started("vllm.entrypoints.openai.api_server", options, folder / "theirs.log", {})


@contextlib.contextmanager
def started(
    module: str, options: dict[str, object], log: Path, headers: dict[str, str]
) -> Iterator[RunningServer]:
    """Starts a server on a free port and yields it once it has answered a completion. Options that are True take no
    value."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", module, "--port", str(port)]
    for name, value in options.items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    environment = os.environ | ENGINE_ENVIRONMENT
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    server = RunningServer(url=f"http://127.0.0.1:{port}", process=process, headers=headers)
    try:
        deadline = time.monotonic() + START_S
        while not asyncio.run(answers(server)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{module} did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.5)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


async def answers(server: RunningServer) -> bool:
    async with session(server) as http:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            return (await post(http, server, "/v1/completions", completion(0)))[0] == 200
    return False


@contextlib.asynccontextmanager
async def session(server: RunningServer) -> AsyncIterator[aiohttp.ClientSession]:
    timeout, connections = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=server.headers, timeout=timeout, connector=connections) as http:
        yield http


async def post(
    http: aiohttp.ClientSession, server: RunningServer, path: str, asked: Ask | bytes, **more: Any
) -> tuple[int, bytes]:
    body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    headers = JSON | more.get("headers", {})
    async with http.post(server.url + path, data=body, headers=headers) as response:
        return response.status, await response.read()


def completion(number: int, **more: Any) -> Ask:
    return {"model": "model", "prompt": f"<p>Return {number} times n.<s1>", "max_tokens": TOKENS} | more


# ---------------------------------------------------------------- completions, taking turns


async def against(
    ours: RunningServer, theirs: RunningServer, *, quick: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    figures: dict[str, Any] = {"tokens_per_request": TOKENS}
    ratios = {}
    numbers = itertools.count(1)
    servers = {"ours": ours, "vllm_serve": theirs}
    for clients in CLIENTS:
        speeds: dict[str, list[float]] = {name: [] for name in servers}
        seconds: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(2 if quick else 6):
            for name, server in servers.items():
                taken, each = await load(server, clients, 1.5 if quick else 8.0, numbers)
                if number:  # the first round warms up
                    speeds[name].append(len(each) / taken)
                    seconds[name] += each
        for name in servers:
            figures[f"{name}_{clients}_requests_per_s"] = median(speeds[name])
            for percent in (50, 99):
                figures[f"{name}_{clients}_p{percent}_ms"] = 1000 * percentile(seconds[name], percent)
        ratios[f"vs_vllm_serve_{clients}"] = median(speeds["ours"]) / median(speeds["vllm_serve"])
    return figures, ratios


async def load(
    server: RunningServer, clients: int, seconds: float, numbers: Iterator[int]
) -> tuple[float, list[float]]:
    """Returns the seconds in total, and those of each request."""
    taken: list[float] = []
    start = time.perf_counter()

    async def client(http: aiohttp.ClientSession) -> None:
        while (began := time.perf_counter()) - start < seconds:
            status, body = await post(
                http, server, "/v1/completions", completion(next(numbers), ignore_eos=True)
            )
            assert status == 200, body
            taken.append(time.perf_counter() - began)

    async with session(server) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return time.perf_counter() - start, taken


# ---------------------------------------------------------------- mixed load

MESSAGES = [{"role": "user", "content": "Return n doubled."}]
SOLVE = {"problem": "Return n doubled.", "signature": "def f(n: int) -> int:", "tests": ["assert f(2) == 4"]}
GOOD: list[tuple[str, Ask]] = [
    ("/v1/completions", completion(0)),
    ("/v1/completions", completion(0, stream=True)),
    ("/v1/completions", completion(0, temperature=0)),
    ("/v1/chat/completions", {"model": "model", "messages": MESSAGES, "max_tokens": TOKENS}),
    ("/v1/chat/completions", {"model": "model", "messages": MESSAGES, "max_tokens": TOKENS, "stream": True}),
    ("/v1/solve", {"model": "model", **SOLVE}),
]
BAD: dict[str, tuple[int, Ask | bytes, dict[str, str]]] = {
    "malformed": (400, b'{"model": ', {}),
    "unknown_model": (404, completion(0, model="nobody"), {}),
    "wrong_key": (401, completion(0), {"authorization": "Bearer nobody"}),
    "too_many_tokens": (400, completion(0, max_tokens=1 << 30), {}),
    "too_large": (413, b" " * (9 << 20), {}),
}


async def mixed(server: RunningServer, seconds: float) -> dict[str, Any]:
    """Sends mixed load, one bad request in twenty. Memory is the median of the second tenth and of the last tenth."""
    counted: Counter[str] = Counter()
    lost: list[str] = []
    memory: list[tuple[float, int]] = []
    start = time.monotonic()

    async def client(http: aiohttp.ClientSession, seed: int) -> None:
        chance = random.Random(seed)
        for number in itertools.count():
            if time.monotonic() - start > seconds:
                return
            kind = chance.choice([*BAD, "hung_up"]) if number % 20 == 19 else "good"
            try:
                fault = await one(http, server, kind, chance)
            except (aiohttp.ClientError, TimeoutError) as error:
                fault = f"{kind}: {type(error).__name__}: {error}"
            counted[kind] += 1
            lost.extend([fault] if fault else [])

    async def watch() -> None:
        while True:
            memory.append((time.monotonic() - start, await asyncio.to_thread(server.memory)))
            await asyncio.sleep(min(2.0, seconds / 30))

    async with session(server) as http:
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(http, seed) for seed in range(MIXED_CLIENTS)))
        watching.cancel()

    def in_part(part: int) -> float:
        return median(m for at, m in memory if part <= at / seconds * PARTS <= part + 1) / 2**20

    figures = {f"mixed_{kind}_requests": float(count) for kind, count in sorted(counted.items())}
    early, late = in_part(1), in_part(PARTS - 1)
    figures |= {"mixed_s": seconds, "mixed_requests": float(counted.total()), "mixed_lost": float(len(lost))}
    return figures | {
        "mixed_lost_listed": lost[:10],
        "mixed_memory_early_mib": early,
        "mixed_memory_late_mib": late,
    }


async def one(http: aiohttp.ClientSession, server: RunningServer, kind: str, chance: random.Random) -> str:
    """Sends one request and returns why it is lost; empty if it is not."""
    if kind == "hung_up":
        asked = completion(chance.randrange(10**6), stream=True, max_tokens=400, ignore_eos=True)
        async with http.post(server.url + "/v1/completions", json=asked) as response:
            await response.content.readline()
            response.close()
        return ""
    if kind in BAD:
        wanted, asked, headers = BAD[kind]
        status, body = await post(http, server, "/v1/completions", asked, headers=headers)
        return "" if status == wanted and b'"error"' in body else f"{kind}: {status} {body[:200]!r}"
    path, asked = chance.choice(GOOD)
    if asked.get("temperature") != 0:
        asked = asked | {"seed": chance.randrange(10**9)}
    status, body = await post(http, server, path, asked)
    whole = body.rstrip().endswith(b"[DONE]") if asked.get("stream") else body.rstrip().endswith(b"}")
    return "" if status == 200 and whole else f"{path}: {status} {body[:200]!r}"


if __name__ == "__main__":
    main()
