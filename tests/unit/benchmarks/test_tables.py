"""Pages are made from results; on a repository of the test's own, and the one at hand."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.catalogue import BENCHMARKS
from benchmarks.report import ROOT, git
from benchmarks.tables import OLD, update

PAGE = "# Learners\n\nBelow `<!-- table: NAME -->` stands a table.\n\n<!-- table: learner -->\n<!-- end -->\n\nThe end.\n"


def commit(root: Path) -> str:
    git("add", ".", root=root)
    git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x", "--allow-empty", root=root)
    return git("rev-parse", "--short=12", "HEAD", root=root).strip()


def measure(root: Path, at: str, speed: float, command: str = "python -m benchmarks.learner") -> None:
    result = {"command": command, "commit": at, "date": "2026-11-22", "versions": {}, "ratios": {}}
    result["machine"] = {"cpu": "a CPU", "cores": 2, "memory_gib": 23.4}
    result["figures"] = {"of step": {"speed": speed}}
    (root / "benchmarks" / "results" / "learner.json").write_text(json.dumps(result))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With figures of its only commit, and a page that does not show them yet."""
    for folder in ("docs", "learners", "sparring/games/boards", "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("README.md", "learners/learner.py", "sparring/games/boards/kuhn.py"):
        (tmp_path / file).write_text("first\n")
    (tmp_path / "docs" / "learners.md").write_text(PAGE)
    template = "| speed |\n|---|\n| {figures[of step][speed]:.1f} |\n"
    (tmp_path / "benchmarks" / "results" / "learner.md").write_text(template)
    git("init", "-q", root=tmp_path)
    measure(tmp_path, commit(tmp_path), 2.04)
    return tmp_path


def page(root: Path) -> str:
    return (root / "docs" / "learners.md").read_text()


def test_a_page_shows_the_result_with_its_commit_date_and_machine(root):
    assert update(root, write=False) == ["docs/learners.md"] and page(root) == PAGE
    assert update(root, write=True) == ["docs/learners.md"]
    head = git("rev-parse", "--short=12", "HEAD", root=root).strip()
    origin = f"`python -m benchmarks.learner`, 2026-11-22, 2 cores of a CPU, 23 GiB, commit {head}."
    table = f"| speed |\n|---|\n| 2.0 |\n\n{origin}\n"
    assert page(root) == PAGE.replace("<!-- end", f"{table}<!-- end")
    assert update(root, write=False) == []
    measure(root, head, 3.0)
    assert update(root, write=False) == ["docs/learners.md"]


def test_figures_of_changed_code_say_so_once(root, capsys):
    update(root, write=True)
    # the learner's benchmark does not speak of games
    (root / "sparring" / "games" / "kuhn.py").write_text("second\n")
    commit(root)
    assert update(root, write=True) == [] and OLD not in page(root)
    (root / "learners" / "learner.py").write_text("second\n")  # before it is committed, too
    assert update(root, write=True) == ["docs/learners.md"] and OLD in page(root)
    for text in ("third\n", "fourth\n"):
        (root / "learners" / "learner.py").write_text(text)
        commit(root)
    capsys.readouterr()
    assert update(root, write=False) == []
    assert "learner: 2 commits to learners, sparring/core/batch.py since" in capsys.readouterr().out
    measure(root, commit(root), 2.0)
    assert update(root, write=True) == ["docs/learners.md"] and OLD not in page(root)


def test_where_git_does_not_know_the_commit_the_page_keeps_what_it_says(root):
    measure(root, "unknown", 2.0)
    update(root, write=True)
    assert OLD not in page(root)
    said = page(root).replace("commit unknown", f"commit unknown{OLD}")
    (root / "docs" / "learners.md").write_text(said)
    assert update(root, write=True) == [] and page(root) == said


@pytest.mark.parametrize(
    ("text", "command", "why"),
    [
        (PAGE.replace("learner ", "lerner "), "x", "no benchmark is called lerner"),
        (PAGE.replace("learner ", "sandbox "), "x", "sandbox.json is missing"),
        (PAGE.replace("<!-- end -->", ""), "x", "learners.md: not every"),
        (PAGE, "python -m benchmarks.learner --quick", "is of a --quick run"),
    ],
)
def test_what_cannot_be_shown_is_named(root, text, command, why):
    measure(root, "unknown", 2.0, command)
    (root / "docs" / "learners.md").write_text(text)
    with pytest.raises(ValueError, match=why):
        update(root, write=True)
    assert page(root) == text


def test_figures_that_a_table_wants_and_a_result_lacks_are_named(root):
    (root / "benchmarks" / "results" / "learner.md").write_text("{figures[of step][size]}")
    with pytest.raises(ValueError, match=r"learner\.md asks for what .*learner\.json does not have: .*size"):
        update(root, write=True)


def test_what_failed_is_named_and_the_rest_is_shown(root):
    results = root / "benchmarks" / "results"
    template = "{figures[theirs_s]:.1f}, {figures[step]}, {ratios[ours_vs_theirs]:.2f}"
    (results / "learner.md").write_text(template)
    file = results / "learner.json"
    result = json.loads(file.read_text())
    result["figures"] = {"step": 3, "theirs_failed": "ImportError: no\nsuch module"}
    file.write_text(json.dumps(result | {"ratios": {}}))
    update(root, write=True)
    assert "failed, 3, failed\n\n`theirs` failed: ImportError: no such module.\n\n" in page(root)


def test_the_command_checks_and_names_a_damaged_result_in_one_line(root, monkeypatch, capsys):
    monkeypatch.setattr(tables, "ROOT", root)
    monkeypatch.setattr(sys, "argv", ["tables", "--check"])
    with pytest.raises(SystemExit, match=r"stale: docs/learners\.md: run python -m benchmarks\.tables"):
        tables.main()
    (root / "benchmarks" / "results" / "learner.json").write_text('{"figures":')
    with pytest.raises(SystemExit, match=r"error: .*learner\.json is damaged") as error:
        tables.main()
    assert "\n" not in str(error.value)


def test_the_pages_show_the_results_that_there_are(tmp_path):
    """But for whether they are older than the code, which `make check` asks for: no change of code fails here."""
    for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = file.read_text()
        assert tables.filled(file, text, ROOT).replace(OLD, "") == text.replace(OLD, ""), file


def test_the_paths_spoken_of_are_there():
    paths = {path for benchmark in BENCHMARKS.values() for path in benchmark.speaks_of}
    assert not [path for path in paths if not (ROOT / path).exists()]
