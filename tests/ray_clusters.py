"""Rays of a test's own on this machine, of one node or of several."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster


@contextmanager
def own_ray(**options: Any) -> Iterator[Any]:
    """Starts a Ray whose files go with it, and yields what ray.init returns. The directory's path is short, because those of
    sockets must be."""
    directory = tempfile.mkdtemp(prefix="spar-")
    defaults = {
        "num_cpus": 2,
        "include_dashboard": False,
        "log_to_driver": False,
        "object_store_memory": 128 << 20,
    }
    try:
        yield ray.init(address="local", _temp_dir=directory, **defaults | options)
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


def start_cluster(**head: object) -> Cluster:
    """Starts a cluster with a head node. Tries again, since Ray gives a node half a minute, which a busy machine may not have."""
    for tries_left in (2, 1, 0):
        before = set(psutil.Process().children(recursive=True))
        try:
            return Cluster(initialize_head=True, head_node_args=head)
        except Exception:
            for process in set(psutil.Process().children(recursive=True)) - before:
                with suppress(psutil.Error):
                    process.kill()
            if not tries_left:
                raise
    raise AssertionError
