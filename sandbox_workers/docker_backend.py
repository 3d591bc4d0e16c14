"""A warm container as a sandbox backend, through the Docker SDK.

The container ends when its attached stdin closes, and the engine then removes it, so a worker that is killed by SIGKILL
leaves nothing behind. If the engine was killed too, a container may remain: `remove_orphans` finds it by its labels.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import LogConfig, Mount, Ulimit
from docker.utils.socket import frames_iter

import docker
from sandbox_workers.channel import ChannelBackend
from sandbox_workers.jobs import Job, SandboxUnavailable
from sandbox_workers.languages import mounts
from sandbox_workers.seccomp import PROFILE
from sparring.core.verdict import Verdict

log = logging.getLogger(__name__)

LABEL, RUN_LABEL, OWNER_LABEL = "sparring.sandbox", "sparring.run", "sparring.owner"
STDOUT = 1
TEST_MEMORY_MB = 192
"""Memory that the test process of a slot is expected to use, MiB."""
RUNNER_MEMORY_MB = 128
DIRECTORY_MB = 16


def connect() -> docker.DockerClient:
    """Connects to the Docker Engine.

    Raises:
        SandboxUnavailable: no engine answers within 10 s.
    """
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
    """Returns the text of the innermost error, in the operating system's words if it has any. The SDK wraps a socket
    error three times."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return getattr(error, "strerror", None) or str(error)


def require_image(client: docker.DockerClient, tag: str) -> str:
    """Returns the image's id.

    Raises:
        SandboxUnavailable: the image is missing, or the engine does not answer.
    """
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
    """Checks that the engine knows the runtime.

    Raises:
        SandboxUnavailable: it does not.
    """
    if runtime not in (known := runtimes(client)):
        raise SandboxUnavailable(
            f"the engine knows no runtime {runtime!r}, only {', '.join(sorted(known))}; "
            "for gVisor: install runsc, add it to the engine's daemon.json, restart the engine"
        )


def process_identity(pid: int) -> str | None:
    """Returns host:pid:start time, which no later process shares, or None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    return f"{socket.gethostname()}:{pid}:{stat.rpartition(')')[2].split()[19]}"


def remove_orphans(client: docker.DockerClient) -> int:
    """Removes the containers whose owner ran on this host and has ended. Returns their number."""
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
    """A container with `slots` slots.

    Args:
        image: tag of the sandbox image.
        uid_base: first of 2 * slots uids. RLIMIT_NPROC counts processes per uid across containers, so the ranges of
            containers must not overlap.
        memory_mb: largest `Limits.memory_mb` of the jobs, MiB; it sizes the container.
        run_id: directory of the run. The container carries its name as a label.
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
        self._lowered: set[int] = set()
        """Memory limits above it that were warned of."""
        self._run_id = run_id
        self._runtime = runtime
        self._client: docker.DockerClient | None = None
        self._container: Container | None = None

    def start(self) -> None:
        self._client = client = connect()
        try:
            require_image(client, self._image)
            remove_orphans(client)
            self._container = client.containers.create(self._image, **self._settings())
            # Attach before the start, so that no output is lost and the container's stdin closes with this process.
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
            "security_opt": ["no-new-privileges:true", "seccomp=" + PROFILE.read_text("utf-8")],
            "tmpfs": directories,
            "mem_limit": memory,
            "memswap_limit": memory,
            # gVisor counts its own threads, too.
            "pids_limit": 8192 if self._runtime == "runsc" else 64 * self.slots + 32,
            "runtime": self._runtime,
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
            "mounts": [Mount(inside, host, type="bind", read_only=True) for host, inside in mounts()],
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
        return super().judge_batch([self._within_memory(job) for job in jobs])

    def _within_memory(self, job: Job) -> Job:
        """Returns the job with at most the memory of a slot, for which the container was made."""
        wanted = job.limits.memory_mb
        if wanted <= self._memory_mb:
            return job
        if wanted not in self._lowered:
            self._lowered.add(wanted)
            log.warning("programs that may take %d MiB get %d, the sandbox's", wanted, self._memory_mb)
        return replace(job, limits=job.limits.model_copy(update={"memory_mb": self._memory_mb}))

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
            # the engine may be removing it already, or not answer
            with contextlib.suppress(DockerException, OSError):
                container.remove(force=True)
        if client is not None:
            client.close()
