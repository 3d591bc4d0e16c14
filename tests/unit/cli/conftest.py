"""Models that write what a test tells them to, and a sandbox for the tests' own harmless programs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.model import build_tokenizer
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import Sampling
from sparring.evaluation.writing import PolicyWriter
from sparring.games.prompts import END, MARKER_TOKENS, PAD
from sparring.runtime.model import Model
from tests.playing import ScriptedPolicy


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return build_tokenizer(["def f(n):\n    return n * 2\n", "Double n."] * 3, MARKER_TOKENS, PAD, END)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox("process") as local:
        yield local


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says when it refuses its arguments, in one line of its own or with argparse's usage above."""

    def said(main: Callable[[list[str]], object], *arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == 2
        return capsys.readouterr().err

    return said


@dataclass
class Scripted:
    """A model whose answer to a prompt is `answer(prompt as text, sampling)`."""

    tokenizer: Any
    answer: Callable[[str, Sampling], str]
    run: dict = field(default_factory=dict)
    context: int | None = None
    prompts: list[str] = field(default_factory=list)
    engines: list[tuple[str, str | None]] = field(default_factory=list)
    """Device and dtype of each that was loaded."""

    def model(self) -> Model:
        return Model(path="some/model", tokenizer=self.tokenizer, context=self.context, run=self.run)

    @asynccontextmanager
    async def loaded(self, model, engine, device, style, max_tokens, seed) -> AsyncIterator[PolicyWriter]:
        def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
            self.prompts.append(self.tokenizer.decode(prompt))
            return style.completion(self.answer(self.prompts[-1], sampling))

        self.engines.append((device, engine.dtype))
        await asyncio.sleep(0)
        yield PolicyWriter(policy=ScriptedPolicy(script), format=style, max_tokens=max_tokens, seed=seed)


@pytest.fixture
def scripted(tokenizer, monkeypatch) -> Callable[..., Scripted]:
    """Puts a scripted model in the place of the one that the options name."""

    def put(answer: Callable[[str, Sampling], str], **more: Any) -> Scripted:
        fake = Scripted(tokenizer, answer, **more)
        for script in ("evaluate", "solve"):
            monkeypatch.setattr(f"sparring.cli.{script}.open_model", lambda name, key: fake.model())
            monkeypatch.setattr(f"sparring.cli.{script}.loaded", fake.loaded)
        return fake

    return put
