"""Every script is run by `python -m benchmarks`, with arguments that it knows."""

import sys

import pytest

from benchmarks import __main__ as runner
from benchmarks.catalogue import BENCHMARKS, Benchmark
from benchmarks.report import ROOT


def test_every_script_is_in_the_catalogue_and_takes_quick_and_json():
    scripts = {
        file.relative_to(ROOT / "benchmarks").with_suffix("").as_posix().replace("/", "."): file.read_text()
        for file in (ROOT / "benchmarks").rglob("*.py")
        if "\ndef main(" in file.read_text() and file.stem not in ("__main__", "tables")
    }
    assert scripts.keys() == {benchmark.module for benchmark in BENCHMARKS.values()}
    assert not [name for name, text in scripts.items() if "arguments(__doc__)" not in text]


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    """Three benchmarks: one works, one raises, one forgets its result."""
    (tmp_path / "benchmarks").mkdir()
    bodies = {
        "works": "pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text(' '.join(sys.argv[1:]))",
        "raises": "raise TypeError",
        "forgets": "pass",
    }
    for name, body in bodies.items():
        (tmp_path / "benchmarks" / f"{name}.py").write_text(f"import pathlib, sys\n{body}\n")
    names = ("raises", "forgets", "works")
    listed = {name: Benchmark(module=name, speaks_of=(), hours=name == "forgets") for name in names}
    monkeypatch.setattr(runner, "BENCHMARKS", listed)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    return tmp_path


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    runner.main()


def test_one_that_fails_is_named_at_the_end_and_the_others_run(scripts, monkeypatch, capfd):
    (scripts / "output" / "benchmarks").mkdir(parents=True)
    (scripts / "output" / "benchmarks" / "forgets.json").write_text("of a quick run before")
    with pytest.raises(SystemExit, match=r"^failed: raises, forgets$"):
        run(monkeypatch, "--quick")
    result = scripts / "output" / "benchmarks" / "works.json"
    assert result.read_text() == f"--json {result} --quick"
    assert "1 of 3 benchmarks ran to the end" in capfd.readouterr().out


def test_a_full_run_leaves_out_what_takes_hours_and_a_quick_one_leaves_its_results_alone(
    scripts, monkeypatch
):
    results = scripts / "benchmarks" / "results"
    results.mkdir()
    with pytest.raises(SystemExit, match=r"^failed: raises$"):
        run(monkeypatch)
    assert [file.name for file in results.iterdir()] == ["works.json"]
    full = (results / "works.json").read_text()
    run(monkeypatch, "works", "--quick")
    assert (results / "works.json").read_text() == full and "--quick" not in full


def test_a_name_that_is_none_is_refused(scripts, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "wroks")
    assert "no benchmark is called wroks: there are raises, forgets, works" in capsys.readouterr().err


def test_experiments_are_run_by_one_flag(monkeypatch, tmp_path):
    asked = []

    def run(name, result, quick):
        asked.append(name)
        return 0

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--experiments", "--output", str(tmp_path)])
    runner.main()
    assert {"particular", "white_box", "kuhn_rae"} <= set(asked) and not {"rollout", "scale"} & set(asked)
