"""Ray clusters of several nodes on this machine."""

from contextlib import suppress

import psutil
from ray.cluster_utils import Cluster


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
