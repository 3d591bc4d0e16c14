"""Reads the corpus: honest programs with honest tests, each beside wrong programs that these tests tell from it.

A file of `corpus/` is a theme; those named `programs` hold whole programs, the others Python with tests that are code:

    === name of the job
    the program
    --- test                 Python source, any number of tests
    --- stdin                or: what the program reads (may be missing)
    --- stdout               and what it prints
    --- mutant
    old => new               a wrong program per line: the program with one replacement
    --- wrong
    a wrong program in full
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparring.core.verdict import Limits, OutputTest, Test

CORPUS = Path(__file__).parent / "corpus"
LIMITS = Limits(wall_s=16.0, cpu_s=4.0)
"""Twice the default's, for machines differ in speed."""
SUFFIXES = {"py": "python", "js": "javascript", "lua": "lua", "sh": "bash", "c": "c"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """`program` passes all tests, each of `wrong` fails one at least: in plain CPython, or by its interpreter."""

    theme: str
    name: str
    program: str
    tests: tuple[Test, ...]
    wrong: tuple[str, ...]
    language: str = "python"

    def __str__(self) -> str:
        return f"{self.theme}: {self.name}"

    def programs(self) -> tuple[str, ...]:
        """The right one first."""
        return (self.program, *self.wrong)


def read_corpus() -> list[Job]:
    return [job for path in sorted(CORPUS.glob("*.txt")) for job in read_theme(path)]


def read_theme(path: Path) -> Iterator[Job]:
    theme, suffix, _ = path.name.split(".")
    language = SUFFIXES[suffix]
    for block in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        program, *parts = re.split(r"^--- (\w+)\n", rest, flags=re.MULTILINE)
        sections = list(zip(parts[::2], parts[1::2], strict=True))
        tests: list[Test] = []
        wrong: list[str] = []
        stdin = ""
        for section, text in sections:
            match section:
                case "test":
                    tests.append(text.rstrip("\n"))
                case "stdin":
                    stdin = text
                case "stdout":
                    tests.append(OutputTest(stdin=stdin, stdout=text))
                    stdin = ""
                case "wrong":
                    wrong.append(text)
                case "mutant":
                    wrong += [mutant(program, line) for line in text.splitlines() if line]
                case _:
                    raise ValueError(f"{path.name}, {name}: no section '--- {section}'; see jobs.py")
        yield Job(
            theme=f"{theme} in {language}" if theme == "programs" else theme,
            name=name,
            program=program,
            tests=tuple(tests),
            wrong=tuple(wrong),
            language=language,
        )


def mutant(program: str, line: str) -> str:
    old, arrow, new = line.partition(" => ")
    assert arrow and old in program, f"no 'old => new' of this program: {line}"
    return program.replace(old, new, 1)
