"""For every test."""

import os
import re
import time
from collections.abc import Iterator

import pytest

COMPUTES_ALONE = re.compile(
    r"tests/(unit|properties|gpu)/|tests/chaos/test_many_strikes|tests/integration/test_("
    r"memory_runs_out|parallel_learner|placement|sharded_|"  # placement, many_strikes: a Ray whose parts only sleep
    # one process with one thread at a time:
    r"bad_input\.py::(?!.*for_the_pool)|benchmarks\.py::test_an_experiment|evaluate|game_runs|local_run|mirror|notebooks|"
    r"report_page|resume|setup|sixth_stage|solve|trackers|your_own_game)"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """For the two workers of `make test` and `make test-slow`: all that starts sandboxes, engines and runs is done by one of
    them, in its order; what computes alone, or only waits, and short local runs, by whoever has nothing to do. Without xdist
    (tests/gpu) nobody asks."""
    from xdist.scheduler import LoadScopeScheduling

    class OneAfterAnother(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0] if COMPUTES_ALONE.match(nodeid) else "one after another"

    return OneAfterAnother(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Benchmarks last: they show least."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/integration/test_benchmarks.py"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A forge gives a run so much time and no more (.ci/run): what would begin too late is left out, and named."""
    if time.time() > float(os.environ.get("SPARRING_TESTS_END", "inf")):
        pytest.skip("this run's time is over: SPARRING_TESTS_END")


@pytest.fixture(scope="session", autouse=True)
def loopback_alone() -> Iterator[None]:
    """What tests serve is on this machine, which a proxy of the environment cannot see; no hub is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, ",".join(filter(None, ("127.0.0.1,localhost", os.environ.get(name)))))
        yield
