"""The README and the pages of docs/: their commands are understood by what they call, their links lead somewhere.

Nothing is run here: arguments are read by the driver's and the scripts' own parsers. What cannot be read that way is
listed in RUN_ELSEWHERE.
"""

import argparse
import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import pytest

import configs.load
from configs.evaluate import EvaluateOptions
from configs.load import load_run
from configs.solve import SolveOptions
from sparring.__main__ import COMMANDS as COMMANDS_OF_SPARRING
from sparring.core.project_files import EXAMPLES
from sparring.problems.formats import load_dataset

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (
    README,
    *(ROOT / name for name in ("AGENTS.md", "CONTRIBUTING.md", "sandbox_workers/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)

RUN_ELSEWHERE = {
    "git clone": "by hand, 2026-11-22",
    "cd sparring": "by hand, 2026-11-22",
    "ray": "tests/integration/test_two_nodes.py",
    "export": "tests/integration/test_two_nodes.py",
    "curl": "tests/integration/test_judge_service.py",
    "sbatch": "tests/unit/deploy/test_slurm.py",
    "pip install --target": "by hand, 2026-11-27",
    "pip install . ./examples/sparring_env": "by hand, 2026-11-28",
    "vf-eval sparring-env": "tests/integration/test_verifiers.py",
    "python driver.py --config regex.yaml": "tests/integration/test_your_own_game.py",
    "python -m pytest tests/gpu": "tests/gpu/conftest.py",
    "python -m pytest tests/contracts/test_policy_contract.py": "by hand, 2026-11-26",
    "python -m benchmarks.learner": "tests/integration/test_benchmarks.py",
    "python -m benchmarks.trl_parity": "tests/integration/test_benchmarks.py",
    "python -m benchmarks.trl_speed": "tests/integration/test_benchmarks.py",
    "python -m benchmarks.verl_parity": "tests/integration/test_benchmarks.py",
}
"""How a command begins -> the test that runs it, or the day on which it was run by hand."""

WRITTEN_IN = ("", "bash", "sh")
"""Blocks of these languages hold commands; of others (python, json, text) none."""


@dataclass(frozen=True)
class Command:
    page: Path
    words: tuple[str, ...]
    in_a_sentence: bool
    """It may be named there without all that it needs."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {shlex.join(self.words)}"


# ---------------------------------------------------------------------- what the pages say
def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(language, text) of each fenced block."""
    yield from re.findall(
        r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands_of(page: Path) -> Iterator[Command]:
    """Those of the blocks, and those that stand in a sentence (`make check`)."""
    for language, text in blocks(page):
        for line in text.replace("\\\n", " ").splitlines() if language in WRITTEN_IN else ():
            if language or line.startswith(("python ", "make ", "ray ", "pip ")):  # else it may be output
                yield from (Command(page, words, False) for words in parts_of(line))
    for line in re.findall(r"`((?:[A-Z_]+=\S+ )?(?:python driver.py|python -m|make) [^`]+)`", prose(page)):
        yield from (Command(page, words, True) for words in parts_of(line))


def parts_of(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line of shell, without redirections, comments and variables set before a command.

    Example: "A=1 make run > log; make test  # all" -> ("make", "run"), ("make", "test")
    """
    line = re.sub(r"<[\w ]+>", "PLACEHOLDER", line)
    tokens = shlex.shlex(line, posix=True, punctuation_chars=";&|>")
    tokens.whitespace_split = True
    words: list[str] = []
    for token in chain(tokens, [";"]):
        if token in (";", "&&", "|"):
            if words:
                yield tuple(words)
            words = []
        elif token == ">":
            next(tokens)
        elif words or not re.match(r"[A-Z_]+=", token):
            words.append(token)


PROGRAMS = [(page, text) for page in PAGES for language, text in blocks(page) if language == "python"]
IN_BENCH = re.findall(r"^([\w-]+)==", (ROOT / "requirements" / "bench.lock").read_text(), re.MULTILINE)
"""Packages that `make .bench` installs, elsewhere than the tests' own."""

COMMANDS = list(dict.fromkeys(command for page in PAGES for command in commands_of(page)))


# ---------------------------------------------------------------------- what understands them
class Understood(Exception):
    """A parser took the arguments, and nothing ran."""


def understand(words: tuple[str, ...]) -> None:
    """Raises what the program called would say of these arguments."""
    match words:
        case ("python", "driver.py", *arguments):
            with pytest.MonkeyPatch.context() as patch:  # no mirror is asked
                patch.setattr(configs.load, "fetch", lambda uri, into: into)
                load_run(arguments)
        case ("python", "-m", "sparring", "evaluate", *arguments):
            EvaluateOptions.read(arguments)
        case ("python", "-m", "sparring", "solve", *arguments):
            SolveOptions.read(arguments)
        case ("python", "-m", "sparring", name, *arguments):
            read_by_its_parser(COMMANDS_OF_SPARRING[name], arguments)
        case ("python", "-m", module, *arguments):
            read_by_its_parser(module, arguments)
        case ("make", *words_of_make):
            understand_make(words_of_make)
        case ("pip", "install", "-r", file):
            assert (ROOT / file).is_file(), f"there is no {file}"
        case ("docker/engine.sh", verb):
            assert re.search(rf"^\s*{verb}\)", (ROOT / words[0]).read_text(), re.MULTILINE), f"no verb {verb}"
        case _:
            raise AssertionError("nothing here understands it: see RUN_ELSEWHERE")


def read_by_its_parser(module: str, arguments: list[str]) -> None:
    """Start a module whose arguments argparse reads, up to there."""
    parse, environment = argparse.ArgumentParser.parse_args, dict(os.environ)

    def parse_only(parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        parse(parser, *given)
        raise Understood

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # of runpy, where a test has imported the module already
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [module, *arguments])
        try:
            with pytest.raises(Understood):
                runpy.run_module(module, run_name="__main__")
        finally:  # a module may set what its engines need
            os.environ.clear()
            os.environ.update(environment)


def understand_make(words: list[str]) -> None:
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    targets = [word for word in words if "=" not in word]
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), f"the Makefile has no {target}"
    for name in variables:
        assert re.search(rf"^{name} \?=", makefile, re.MULTILINE), f"the Makefile has no {name}"
    if "run" in targets:
        load_run(shlex.split(variables.get("ARGS", "")))


def elsewhere(command: Command) -> str | None:
    """How RUN_ELSEWHERE calls it."""
    line = " ".join(command.words) + " "
    return next((start for start in RUN_ELSEWHERE if line.startswith(f"{start} ")), None)


@pytest.fixture
def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory holds output/RUN, which --resume looks for; no setting comes from the environment."""
    (tmp_path / "output" / "RUN").mkdir(parents=True)
    shutil.copy(ROOT / "configs" / "debug.yaml", tmp_path / "output" / "RUN" / "config.yaml")
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith(("SPARRING_", "MBPP_", "WANDB_"))]:
        monkeypatch.delenv(name)


# ---------------------------------------------------------------------- the tests
@pytest.mark.parametrize("command", [c for c in COMMANDS if elsewhere(c) is None], ids=str)
def test_a_command_is_understood_by_what_it_calls(command: Command, a_run: None, capsys) -> None:
    try:
        understand(command.words)
    except SystemExit as leaving:
        message = capsys.readouterr().err
        in_part = command.in_a_sentence and "arguments are required" in message
        assert not leaving.code or in_part, message  # --help ends with 0


def test_a_command_for_published_grids_leaves_out_what_does_not_fit() -> None:
    """At 16,384 tokens one of ARC's 400 tasks does not, and would refuse the run."""
    grids = [c.words for c in COMMANDS if "driver.py" in c.words and "grids" in c.words]
    assert grids
    for words in grids:
        assert load_run(list(words[2:]))[0].problems.too_long == "leave_out", words


@pytest.mark.parametrize(
    "line",
    [
        "python driver.py --no-such-key 1",
        "python driver.py --config no_such_recipe",
        "python -m sparring evaluate --dataset d.jsonl --policy p --format no_such_format",
        "python -m lab.examples --no-such-option",
        "python -m sandbox_workers no_such_command",
        "python -m benchmarks.experiments.kuhn rae --no-such-option",
        "python -m benchmarks.no_such_benchmark",
        "make no_such_target",
        "make run ARGS='--config no_such_recipe'",
        "make run NOTHING=1",
        "pip install -r requirements/no_such.lock",
        "docker/engine.sh no_such_verb",
        "no_such_program",
    ],
)
def test_a_wrong_command_would_be_noticed(line: str, a_run: None) -> None:
    (words,) = parts_of(line)
    with pytest.raises((Exception, SystemExit)) as refused:
        understand(words)
    assert not isinstance(refused.value, SystemExit) or refused.value.code


def problems_asked_on(page: Path) -> Iterator[tuple[str, str]]:
    """(text, signature) of every problem that the page's commands and requests give to a trained model."""
    for command in commands_of(page):
        if command.words[:4] == ("python", "-m", "sparring", "solve") and "--problem" in command.words:
            options = SolveOptions.read(command.words[4:])
            yield options.problem or "", options.signature
    for language, text in blocks(page):
        if language == "json" and "problem" in (asked := json.loads(text)):
            yield asked["problem"], asked["signature"]


def test_every_problem_on_a_page_is_of_the_kind_that_the_shipped_models_know() -> None:
    asked = [one for page in PAGES for one in problems_asked_on(page) if one[0] != "..."]
    kinds = {
        re.sub(r"\d+", "N", problem.description): problem.entry_point
        for name in ("toy", "edges")
        for problem in load_dataset(EXAMPLES / name / "train.json", "problems")
    }
    assert len(asked) >= 3
    for text, signature in asked:
        assert kinds[re.sub(r"\d+", "N", text)] == "f" and signature.startswith("def f("), text


def test_a_line_of_shell_is_taken_apart() -> None:
    line = 'A=1 git clone <this repository> && cd x; make run ARGS="--config debug" > log  # it\'s quick'
    assert list(parts_of(line)) == [
        ("git", "clone", "PLACEHOLDER"),
        ("cd", "x"),
        ("make", "run", "ARGS=--config debug"),
    ]


def test_what_is_run_elsewhere_is_on_a_page_and_run_there() -> None:
    assert {elsewhere(command) for command in COMMANDS} - {None} == set(RUN_ELSEWHERE)
    tests = [where for where in RUN_ELSEWHERE.values() if not where.startswith("by hand, 20")]
    assert all((ROOT / test).is_file() for test in tests)


@pytest.mark.parametrize(("page", "program"), PROGRAMS, ids=lambda given: getattr(given, "name", None))
def test_a_program_on_a_page_imports_what_there_is(page: Path, program: str) -> None:
    for of, imported in re.findall(r"^(?:from ([\w.]+) )?import ([\w., ]+)$", program, re.MULTILINE):
        names = imported.split(", ")
        for module in (of,) if of else names:
            written_by_the_reader = module == "sparring.games.regex"
            if module.split(".")[0] not in IN_BENCH and not written_by_the_reader:
                found = importlib.import_module(module)
                assert [name for name in names if of and not hasattr(found, name)] == [], f"{page}: {module}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_file_names_of_a_page_lead_somewhere(page: Path) -> None:
    text = prose(page)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}"
    folders = {folder.name for folder in ROOT.iterdir() if folder.is_dir()} - {"output"}  # there after a run
    for name in re.findall(r"`([\w./-]+\.(?:py|yaml|json|md|sh))`", text):
        if "/" in name and name.split("/")[0] in folders and "NAME" not in name:
            assert (ROOT / name).exists() or (page.parent / name).exists(), f"{page.name} names {name}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = re.findall(r"\]\(([^)#]+\.md)", prose(page))
        waiting += [p for t in targets if (p := (page.parent / t).resolve()) not in reached and p.is_file()]
    assert set(PAGES) <= reached


def test_the_readme_is_short_and_its_file_map_holds_every_folder() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    rows = re.findall(r"^\| (`.+?) \| ", text.split("## File map")[1].split("\n## ")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named and all((ROOT / name).exists() for name in named)
    packages = [init.parent for init in (*ROOT.glob("*/__init__.py"), *ROOT.glob("sparring/*/__init__.py"))]
    assert {f"{package.relative_to(ROOT)}/" for package in packages} - {"sparring/"} <= named
