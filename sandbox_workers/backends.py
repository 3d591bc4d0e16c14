"""Chooses the kind of sandbox that runs here. `choose_backend` decides once and gives its reason; `SandboxChoice.open` creates
any number of backends of this kind."""

import contextlib
import hashlib
import itertools
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from sandbox_workers.jobs import Backend, SandboxUnavailable
from sandbox_workers.languages import packages
from sandbox_workers.namespace_backend import NamespaceBackend, find_way
from sandbox_workers.process_backend import ProcessBackend, weaker_points
from sandbox_workers.runner.zygote import UIDS_PER_SANDBOX
from sparring.core.interfaces import SandboxKind

ROOT = Path(__file__).parent.parent
UID_FLOOR, UID_RANGES, GENERATION_STEP = 200_000, 16_000, 1000
MOST_SLOTS = UIDS_PER_SANDBOX // 2 - 1
_generations = itertools.count()
"""Numbers the sandboxes that this process opens, so that a sandbox and the one that replaces it do not share uids."""


@cache
def runner_version() -> str:
    """Returns a hash of the files that make up the sandbox image, which is the tag of the image. docker/engine.sh
    computes the same hash. An installed package has no Dockerfile: images are built in a clone."""
    digest = hashlib.sha256()
    for path in (
        *ROOT.glob("docker/sandbox.Dockerfile"),
        *sorted((ROOT / "sandbox_workers" / "runner").glob("*.py")),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def image_tag() -> str:
    """Returns the name of the image that `docker/engine.sh image` builds from this source tree."""
    return f"sparring-sandbox:{runner_version()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxChoice:
    """A kind of sandbox that can run here. It is plain data, so it can be sent to the workers."""

    kind: Literal["docker", "namespace", "process"]
    description: str
    """One line for the user: which kind was chosen, and why."""
    version: str
    """Identifies the runner and the environment that it runs in. It is part of every cache key."""
    image: str = ""
    runtime: str | None = None

    def open(self, *, slots: int, index: int, run_id: str, memory_mb: int = 512) -> Backend:
        """Returns a backend that is not started yet.

        Args:
            slots: number of programs that are judged at once.
            index: number of the backend within its run. Each backend of a run gets its own uids.
            run_id: directory of the run. The containers carry its name as a label.
            memory_mb: largest `Limits.memory_mb` of a job, MiB; it sizes the container.

        Raises:
            SandboxUnavailable: `slots` is above MOST_SLOTS.
        """
        if slots > MOST_SLOTS:
            raise SandboxUnavailable(
                f"a sandbox has at most {MOST_SLOTS} slots, not {slots}: use more sandboxes"
            )
        uid_base = uid_range(run_id, index + GENERATION_STEP * next(_generations))
        if self.kind == "namespace":
            return NamespaceBackend(slots=slots, uid_base=uid_base)
        if self.kind == "process":
            return ProcessBackend(slots=slots, uid_base=uid_base)
        from sandbox_workers.docker_backend import DockerBackend  # only Docker needs the docker SDK

        return DockerBackend(
            image=self.image,
            slots=slots,
            uid_base=uid_base,
            memory_mb=memory_mb,
            run_id=run_id,
            runtime=self.runtime,
        )


def uid_range(run_id: str, index: int) -> int:
    """Returns the first uid of a backend. Ranges of neighbouring backends of a run never overlap, those of different
    runs hardly ever."""
    start = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4], "big")
    return UID_FLOOR + (start + index) % UID_RANGES * UIDS_PER_SANDBOX


def choose_backend(
    kind: SandboxKind = "auto", runtime: str | None = None, *, trusted: bool = False
) -> SandboxChoice:
    """Returns the kind of sandbox to use: the requested kind or, for "auto", Docker if an engine answers and has the
    image, otherwise namespaces.

    Args:
        kind: the requested kind.
        runtime: runtime of the containers, such as "runsc". With `kind` "auto" it selects Docker.
        trusted: True if all programs come from toy models on toy problems. Then "auto" falls back to plain processes if
            neither Docker nor namespaces are available.

    Raises:
        SandboxUnavailable: the sandbox cannot run here. The message says what is missing and how to get it.
    """
    if kind == "namespace":
        return _namespace("as configured")
    if kind == "docker" or (kind == "auto" and runtime is not None):
        return _docker("as configured", runtime)
    if kind == "process":
        return _process("as configured")
    if kind != "auto":
        raise ValueError(f"sandbox backend must be auto, docker, namespace or process, not {kind!r}")
    try:
        return _docker("an engine answers and has the image", None)
    except SandboxUnavailable as error:
        no_docker = str(error)
    try:
        return _namespace(no_docker)
    except SandboxUnavailable as error:
        missing = f"{no_docker}; {error}"
    if trusted:
        return _process(f"for toy models on toy problems only; {missing}")
    raise SandboxUnavailable(
        f"no sandbox can run here: {missing}. Start Docker, or allow user namespaces (how: sandbox_workers/README.md), "
        "or say yourself that plain processes will do: backend process (driver.py --sandbox.backend process, other commands "
        "--sandbox process); python -m sandbox_workers check_host says what they lack"
    )


def _contents() -> str:
    """Returns the runner's version and a hash of the file names in the packages directory. Each package has a metadata
    directory there whose name holds its version."""
    directory = packages()
    names = "\n".join(sorted(os.listdir(directory))) if directory else ""
    return f"{runner_version()} {hashlib.sha256(names.encode()).hexdigest()[:16]}"


def _docker(why: str, runtime: str | None) -> SandboxChoice:
    from sandbox_workers.docker_backend import connect, require_image, require_runtime

    image = image_tag()
    under = ""
    with contextlib.closing(connect()) as client:
        identity = require_image(client, image)
        if runtime is not None:
            require_runtime(client, runtime)
            under = f" under {runtime}"
    return SandboxChoice(
        kind="docker",
        description=f"sandbox: Docker containers of {image}{under} ({why})",
        version=f"docker{under} {identity} {_contents()}",
        image=image,
        runtime=runtime,
    )


def _namespace(why: str) -> SandboxChoice:
    way = find_way()
    return SandboxChoice(
        kind="namespace",
        description=f"sandbox: bubblewrap namespaces as {way.privilege} ({why})",
        version=f"namespace {_contents()}",
    )


def _process(why: str) -> SandboxChoice:
    return SandboxChoice(
        kind="process",
        description=f"sandbox: plain processes ({why}). NOT CONTAINED: {'; '.join(weaker_points())}",
        version=f"process {_contents()}",
    )
