"""Hooks and fixtures for all tests."""

import os
import re
import time
from collections.abc import Iterator

import pytest

COMPUTES_ALONE = re.compile(
    r"tests/(unit|properties|gpu)/|tests/chaos/test_(many_strikes|learner_killed)|tests/integration/test_("
    # a Ray whose actors only sleep, or workers of one thread:
    r"cluster_hardware|engines_lost|memory_runs_out|parallel_learner|placement|rollouts|sharded_|"
    # one process with one thread at a time:
    r"bad_input\.py::(?!.*for_the_pool)|benchmarks\.py::test_an_experiment|evaluate|game_runs|installed|local_run|mirror|notebooks|opponents|"
    r"report_page|resume|setup|sixth_stage|solve|trackers|window|your_own_game)"
)
TOGETHER = re.compile(
    r"tests/integration/test_(bad_input|game_runs|local_run|mirror|opponents|resume|trackers|window)\."
)
"""Tests of one process that share the run `finished`."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Returns the scheduler for the two workers of `make test` and `make test-slow`. One worker runs all tests that
    start sandboxes, engines and runs, in order. Tests that only compute or wait, and short local runs, go to any idle
    worker. Without xdist (tests/gpu) this hook is not called."""
    from xdist.scheduler import LoadScopeScheduling

    class OneAfterAnother(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if not COMPUTES_ALONE.match(nodeid):
                return "one after another"
            return "local runs" if TOGETHER.match(nodeid) else nodeid.partition("::")[0]

    return OneAfterAnother(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test that would begin too late, and names it: a forge limits the time of a run (.ci/run)."""
    if time.time() > float(os.environ.get("SPARRING_TESTS_END", "inf")):
        pytest.skip("this run's time is over: SPARRING_TESTS_END")


@pytest.fixture(scope="session", autouse=True)
def test_environment() -> Iterator[None]:
    """Excludes this machine from the environment's proxy, which cannot reach the services of tests, disables requests to
    the Hugging Face hub and uploads to W&B, and gives Ray's workers the same priority as the tests: with Ray's default niceness of 15 they
    would nearly stop beside a test that computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("WANDB_API_KEY", raising=False)  # a run with a key uploads by itself
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, ",".join(filter(None, ("127.0.0.1,localhost", os.environ.get(name)))))
        yield
