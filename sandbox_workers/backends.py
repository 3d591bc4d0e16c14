"""Which sandbox runs here, and why: `choose_backend` decides once, `Choice.open` builds as many as are
wanted."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from sandbox_workers.jobs import Backend, SandboxUnavailable
from sandbox_workers.namespace_backend import NamespaceBackend, privilege, require_bubblewrap

Kind = Literal["auto", "docker", "namespace"]
ROOT = Path(__file__).parent.parent
UID_FLOOR, UIDS_PER_BACKEND, UID_RANGES = 200_000, 64, 16_000


@cache
def runner_version() -> str:
    """Hash of what runs inside; the tag of its image. docker/engine.sh computes the same."""
    digest = hashlib.sha256()
    for path in (
        ROOT / "docker" / "sandbox.Dockerfile",
        *sorted((ROOT / "sandbox_workers" / "runner").glob("*.py")),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def image_tag() -> str:
    """The image that `docker/engine.sh image` builds of this tree."""
    return f"sparring-sandbox:{runner_version()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A kind of sandbox that can run here. Plain data: it travels to the workers."""

    kind: Literal["docker", "namespace"]
    description: str
    """One line for the user: what was chosen and why."""
    version: str
    """Of the runner and what it runs on; part of every cache key."""
    image: str = ""

    def open(self, *, slots: int, index: int, run_id: str, memory_mb: int = 512) -> Backend:
        """A backend, not yet started. `index` numbers the backends of a run: each gets uids of its own."""
        uid_base = uid_range(run_id, index)
        if self.kind == "namespace":
            return NamespaceBackend(slots=slots, uid_base=uid_base)
        from sandbox_workers.docker_backend import DockerBackend  # the docker SDK only where Docker is used

        return DockerBackend(
            image=self.image, slots=slots, uid_base=uid_base, memory_mb=memory_mb, run_id=run_id
        )


def uid_range(run_id: str, index: int) -> int:
    """First uid of a backend: neighbours within a run never overlap, runs hardly ever."""
    start = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4], "big")
    return UID_FLOOR + (start + index) % UID_RANGES * UIDS_PER_BACKEND


def choose_backend(kind: Kind = "auto") -> Choice:
    """Docker where an engine answers and has the image, else namespaces; or the kind that is asked for.

    Raises:
        SandboxUnavailable: what is missing, and how to get it.
    """
    if kind == "namespace":
        return _namespace("as configured")
    if kind == "docker":
        return _docker("as configured")
    if kind != "auto":
        raise ValueError(f"sandbox backend must be auto, docker or namespace, not {kind!r}")
    try:
        return _docker("an engine answers and has the image")
    except SandboxUnavailable as missing:
        try:
            return _namespace(str(missing))
        except SandboxUnavailable as error:
            raise SandboxUnavailable(
                f"no sandbox can run here. Docker: {missing}. Namespaces: {error}"
            ) from None


def _docker(why: str) -> Choice:
    from sandbox_workers.docker_backend import connect, require_image

    image = image_tag()
    identity = require_image(connect(), image)
    return Choice(
        kind="docker",
        description=f"sandbox: Docker containers of {image} ({why})",
        version=f"docker {identity} {runner_version()}",
        image=image,
    )


def _namespace(why: str) -> Choice:
    require_bubblewrap()
    return Choice(
        kind="namespace",
        description=f"sandbox: bubblewrap namespaces as {privilege()} ({why})",
        version=f"namespace {runner_version()}",
    )


def open_backend(
    kind: Kind = "auto", *, slots: int = 2, index: int = 0, run_id: str = "local", memory_mb: int = 512
) -> tuple[Backend, str]:
    """A started backend, and the line that says what it is and why."""
    choice = choose_backend(kind)
    backend = choice.open(slots=slots, index=index, run_id=run_id, memory_mb=memory_mb)
    backend.start()
    return backend, choice.description
