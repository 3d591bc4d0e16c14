"""The sandbox of games that run no programs. It starts nothing."""

from collections.abc import Sequence
from typing import NoReturn

from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, Test


class NoSandbox:
    """Stands in for a sandbox or a pool of sandboxes if a game runs no programs."""

    description = "no sandbox: this game runs no programs"

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> NoReturn:
        raise SandboxFailure("this game runs no programs")

    def stats(self) -> dict[str, float]:
        return {}

    def client(self) -> "NoSandbox":
        return self

    def shutdown(self) -> None:
        """Does nothing, because nothing was started."""

    def __enter__(self) -> "NoSandbox":
        return self

    def __exit__(self, *exception: object) -> None:
        pass
