"""Measures the judge service under load: `python -m sandbox_workers serve` in its own process, with many clients at
once.

    python -m benchmarks.judge_service           some minutes; on an otherwise idle machine
    python -m benchmarks.judge_service --quick   under a minute

An honest request is a program that takes about 1 ms, with five tests (as in benchmarks.sandbox); all programs differ,
and each verdict is checked. A hostile request has a program of hostile_jobs.py; the answer must contain no verdict
PASSED, or be a 503. `mixed` has 200 requests in flight, of which one in 20 is hostile. Latencies are those of honest
requests, measured by the client. The clients share the machine's cores with the service. `vs_in_process` is the
service's honest requests/s divided by those of the same sandbox called without HTTP, in the same run, with 200 in
flight in both.
The exit code is 1 if a request was lost, an honest one was judged wrongly or a hostile one passed.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
import psutil

from benchmarks.hostile_jobs import HOSTILE, LIMITS, TEST
from benchmarks.report import ROOT, arguments, percentile, publish
from benchmarks.sandbox import judge_all, make_jobs
from sandbox_workers.local import LocalSandbox

IN_FLIGHT = 200
HOSTILE_SHARE = 0.05
Request = tuple[dict[str, Any], bool]
"""The request's body, and whether it is hostile."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sandbox", choices=("docker", "namespace"), help="default: docker where it runs")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    jobs = 200 if options.quick else 2000
    sandbox = ("--sandbox", options.sandbox or "auto", "--slots", str(options.slots))
    figures: dict[str, Any] = {"slots": options.slots}
    with service(*sandbox) as (url, process):
        asyncio.run(ask(url, honest(100), 16))
        before = process.memory_info().rss
        for in_flight in (1, 16, IN_FLIGHT):
            answers = asyncio.run(ask(url, honest(jobs if in_flight > 1 else jobs // 4), in_flight))
            figures |= answers.figures(f"honest_{in_flight}")
        mixed = asyncio.run(ask(url, [*honest(jobs), *hostile(int(jobs * HOSTILE_SHARE))], IN_FLIGHT))
        figures |= mixed.figures("mixed")
        figures["mixed_hostile_requests"] = mixed.hostile
        figures["service_rss_mib"] = process.memory_info().rss / 2**20
        figures["service_rss_grown_mib"] = (process.memory_info().rss - before) / 2**20
    with LocalSandbox(options.sandbox or "auto", slots=options.slots, cache_size=0) as direct:
        figures["backend"] = direct.description.removeprefix("sandbox: ").split(" (")[0]
        asyncio.run(judge_all(direct, make_jobs(100), IN_FLIGHT))
        start = time.perf_counter()
        asyncio.run(judge_all(direct, make_jobs(jobs), IN_FLIGHT))
        figures["in_process_per_s"] = jobs / (time.perf_counter() - start)
    ratios = {"vs_in_process": figures[f"honest_{IN_FLIGHT}_per_s"] / figures["in_process_per_s"]}
    publish(options.json, figures, ratios)
    sys.exit(int(any(figures[name] for name in figures if name.endswith(("_lost", "_wrong")))))


@contextmanager
def service(*arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "sandbox_workers", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        if not said.startswith("listening on "):
            sys.exit("the service did not start")
        try:
            yield said.split()[-1], psutil.Process(running.pid)
        finally:
            running.terminate()


def honest(count: int) -> list[Request]:
    return [({"program": program, "tests": tests}, False) for program, tests in make_jobs(count)]


def hostile(count: int) -> list[Request]:
    """Returns hostile requests in proportion to their weights; no two programs are equal."""
    rng = random.Random(0)
    chosen = rng.choices(HOSTILE, [one.weight for one in HOSTILE], k=count)
    limits = LIMITS.model_dump()
    return [
        ({"program": f"# {number}\n{one.program}", "tests": [TEST], "limits": limits}, True)
        for number, one in enumerate(chosen)
    ]


class Answers:
    """The service's answers and how long they took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """Latencies of the honest requests that were judged."""
        self.hostile = 0
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.wall_s = 0.0

    def figures(self, name: str) -> dict[str, float]:
        for what in [*self.lost, *self.wrong][:5]:
            print(f"{name}: {what}", file=sys.stderr)
        return {
            f"{name}_per_s": (sum(self.statuses.values()) - self.statuses[503]) / self.wall_s,
            f"{name}_p50_ms": 1000 * percentile(self.seconds, 50),
            f"{name}_p99_ms": 1000 * percentile(self.seconds, 99),
            f"{name}_not_judged": self.statuses[503],
            f"{name}_lost": len(self.lost),
            f"{name}_wrong": len(self.wrong),
        }


async def ask(url: str, requests: Sequence[Request], in_flight: int) -> Answers:
    """Sends all requests in random order, with `in_flight` requests at a time."""
    answers, waiting = Answers(), iter(random.Random(1).sample(requests, len(requests)))

    async def client(session: aiohttp.ClientSession) -> None:
        for body, is_hostile in waiting:
            await one(session, f"{url}/judge", body, is_hostile, answers)

    start = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(300)) as session:
        await asyncio.gather(*(client(session) for _ in range(in_flight)))
    answers.wall_s = time.perf_counter() - start
    return answers


async def one(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], is_hostile: bool, answers: Answers
) -> None:
    start = time.perf_counter()
    try:
        async with session.post(url, json=body) as response:
            said = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        answers.lost.append(f"{error!r}: {body['program'][:80]!r}")
        return
    seconds = time.perf_counter() - start
    answers.statuses[response.status] += 1
    answers.hostile += is_hostile
    if response.status == 503:
        return
    passed = [verdict["status"] == "PASSED" for verdict in said.get("verdicts", ())]
    if response.status != 200 or (any(passed) if is_hostile else not passed or not all(passed)):
        answers.wrong.append(f"{response.status} {str(said)[:200]}: {body['program'][:80]!r}")
    if not is_hostile:
        answers.seconds.append(seconds)


if __name__ == "__main__":
    main()
