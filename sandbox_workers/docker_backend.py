"""A warm container as a sandbox backend, by the Docker SDK.

The container ends when its attached stdin does and is then removed by the engine, so a worker that is killed
-9 leaves nothing. What even that missed (an engine killed too) is found by its labels: `remove_orphans`.
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import LogConfig, Ulimit
from docker.utils.socket import frames_iter

import docker
from core.verdict import Verdict
from sandbox_workers.channel import ChannelBackend
from sandbox_workers.jobs import Job, SandboxUnavailable
from sandbox_workers.languages import mounts
from sandbox_workers.seccomp import PROFILE

LABEL, RUN_LABEL, OWNER_LABEL = "sparring.sandbox", "sparring.run", "sparring.owner"
STDOUT = 1
TEST_MEMORY_MB = 192
"""What a slot's test process is expected to use, MiB."""
RUNNER_MEMORY_MB = 128
DIRECTORY_MB = 16


def connect() -> docker.DockerClient:
    """Raise SandboxUnavailable where no engine answers within 10 s."""
    try:
        client = docker.from_env(timeout=10)
        client.ping()
    except (DockerException, OSError) as error:
        where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        raise SandboxUnavailable(
            f"no Docker Engine answers at {where} ({_first_cause(error)}); start one: make engine"
        ) from None
    return client


def _first_cause(error: BaseException) -> str:
    """In the operating system's words where it has any: the SDK wraps an error of a socket three times."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return getattr(error, "strerror", None) or str(error)


def require_image(client: docker.DockerClient, tag: str) -> str:
    """The image's id. Raise SandboxUnavailable where it is missing."""
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound:
        raise SandboxUnavailable(
            f"the Docker Engine has no image {tag}; build it: make image (or docker/engine.sh image)"
        ) from None
    except (DockerException, OSError) as error:  # the SDK lets time-outs of its HTTP client through
        raise SandboxUnavailable(f"the engine does not answer: {error}") from None


def runtimes(client: docker.DockerClient) -> set[str]:
    return set(client.info().get("Runtimes", {}))


def require_runtime(client: docker.DockerClient, runtime: str) -> None:
    """Raise SandboxUnavailable where the engine does not know the runtime."""
    if runtime not in (known := runtimes(client)):
        raise SandboxUnavailable(
            f"the engine knows no runtime {runtime!r}, only {', '.join(sorted(known))}; "
            "for gVisor: install runsc, add it to the engine's daemon.json, restart the engine"
        )


def process_identity(pid: int) -> str | None:
    """host:pid:start time, which no later process shares; None where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"{socket.gethostname()}:{pid}:{stat.rpartition(')')[2].split()[19]}"


def remove_orphans(client: docker.DockerClient) -> int:
    """Remove the containers whose owner ran on this host and is gone; how many."""
    removed = 0
    for container in client.containers.list(all=True, filters={"label": f"{LABEL}=1"}, ignore_removed=True):
        owner = container.labels.get(OWNER_LABEL, "")
        host, _, rest = owner.partition(":")
        if host != socket.gethostname() or process_identity(int(rest.partition(":")[0])) == owner:
            continue
        with contextlib.suppress(NotFound, APIError):
            container.remove(force=True)
            removed += 1
    return removed


class DockerBackend(ChannelBackend):
    """One container of `slots` slots.

    Args:
        image: tag of the sandbox image.
        uid_base: first of 2 * slots uids; RLIMIT_NPROC counts per uid across containers, so ranges must not overlap.
        memory_mb: largest `Limits.memory_mb` of its jobs, MiB; sizes the container.
    """

    def __init__(
        self,
        *,
        image: str,
        slots: int = 2,
        uid_base: int = 200_000,
        memory_mb: int = 512,
        run_id: str = "local",
        runtime: str | None = None,
    ) -> None:
        super().__init__(slots)
        self._image = image
        self._uid_base = uid_base
        self._memory_mb = memory_mb
        self._run_id = run_id
        self._runtime = runtime
        self._client: docker.DockerClient | None = None
        self._container: Container | None = None

    def start(self) -> None:
        self._client = client = connect()
        try:
            require_image(client, self._image)
            self._container = client.containers.create(self._image, **self._settings())
            # Attached before it starts: nothing of its output is missed, and its stdin ends with us.
            attached = self._container.attach_socket(
                params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self._attached = attached
            self._socket: Any = getattr(attached, "_sock", attached)
            self._socket.settimeout(None)
            self._container.start()
        except SandboxUnavailable:
            self.close()
            raise
        except (DockerException, OSError) as error:
            self.close()
            raise SandboxUnavailable(f"the sandbox container does not start: {error}") from None
        frames = frames_iter(attached, tty=False)

        def receive() -> bytes:
            for stream, chunk in frames:
                if stream == STDOUT:
                    return chunk
                self._keep_stderr(chunk)
            return b""

        self._connect(self._socket.sendall, receive, f"container of {self._image}")

    def _settings(self) -> dict:
        memory = f"{self.slots * (self._memory_mb + TEST_MEMORY_MB + DIRECTORY_MB) + RUNNER_MEMORY_MB}m"
        directories = {
            f"/jobs/{slot}{role}": f"size={DIRECTORY_MB}m,nr_inodes=2048,mode=0770,nosuid,nodev,exec,"
            f"uid=0,gid={self._uid_base + 2 * slot + index}"
            for slot in range(self.slots)
            for index, role in enumerate("pt")
        }
        return {
            "network_mode": "none",
            "read_only": True,
            "ipc_mode": "none",
            "cap_drop": ["ALL"],
            "cap_add": ["SETUID", "SETGID"],
            # The profile's text, not its path: the engine may be on another machine.
            "security_opt": ["no-new-privileges:true", "seccomp=" + PROFILE.read_text()],
            "tmpfs": directories,
            "mem_limit": memory,
            "memswap_limit": memory,
            # gVisor counts its own threads, too.
            "pids_limit": 8192 if self._runtime == "runsc" else 64 * self.slots + 32,
            "runtime": self._runtime,
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
            "volumes": {host: {"bind": inside, "mode": "ro"} for host, inside in mounts()},
            "environment": self._environment(self._uid_base),
            "stdin_open": True,
            "auto_remove": True,
            "stop_signal": "SIGKILL",
            "log_config": LogConfig(type="none"),
            "labels": {
                LABEL: "1",
                RUN_LABEL: Path(self._run_id).name,
                OWNER_LABEL: process_identity(os.getpid()) or "",
            },
        }

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        for job in jobs:
            if job.limits.memory_mb > self._memory_mb:
                raise ValueError(
                    f"Limits.memory_mb={job.limits.memory_mb} above the sandbox's {self._memory_mb}"
                )
        return super().judge_batch(jobs)

    def close(self) -> None:
        container, self._container = self._container, None
        client, self._client = self._client, None
        with contextlib.suppress(AttributeError, OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
            self._wait_ended()
            # Python 3.13 complains of a response whose socket was closed first
            self._attached._response.close()  # pyright: ignore[reportAttributeAccessIssue]
            self._socket.close()
        if container is not None:
            with contextlib.suppress(DockerException):  # the engine may be removing it already
                container.remove(force=True)
        if client is not None:
            client.close()
