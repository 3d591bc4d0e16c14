import json
from pathlib import Path

import pytest

from benchmarks import report


def test_what_is_written_says_what_ran_where_and_when(tmp_path, monkeypatch):
    command = "python -m benchmarks.x --json a/b.json --file /home/a/b.jsonl --repeats 3"
    monkeypatch.setattr(report.sys, "orig_argv", command.split())
    file = tmp_path / "result.json"
    report.write(file, {"speed": 2.0}, {"vs_other": 0.5})
    found = report.read(file)
    assert found.keys() == report.KEYS
    assert (found["figures"], found["ratios"]) == ({"speed": 2.0}, {"vs_other": 0.5})
    assert found["command"] == "python -m benchmarks.x --file b.jsonl --repeats 3"
    assert found["machine"]["cores"] > 0 and found["versions"]["python"] and len(found["date"]) == 10


def test_one_killed_while_it_writes_leaves_the_result_before(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    report.write(file, {"speed": 2.0}, {})
    whole = file.read_text()

    def killed_half_way(path: Path, text: str, encoding: str) -> None:
        with path.open("w") as handle:
            handle.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", killed_half_way)
    with pytest.raises(KeyboardInterrupt):
        report.write(file, {"speed": 3.0}, {})
    assert file.read_text() == whole


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"figures": {"spe', "is damaged"),
        ("", "is damaged"),
        ("[]", "not an object"),
        ('{"figures": {}}', "no command, commit, date"),
    ],
)
def test_a_damaged_result_is_named_in_one_line(tmp_path, text, why):
    file = tmp_path / "sandbox.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=why) as error:
        report.read(file)
    assert str(file) in str(error.value) and "\n" not in str(error.value)
    assert "run the benchmark again" in str(error.value)


def test_a_place_that_cannot_be_written_is_refused_before_the_measurement(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        report.arguments("").parse_args(["--json", str(tmp_path / "file" / "result.json")])
    assert "no file can be written there" in capsys.readouterr().err
    given = report.arguments("").parse_args(["--json", str(tmp_path / "new" / "result.json")])
    report.write(given.json, {}, {})
    assert json.loads(given.json.read_text())["figures"] == {}


def test_results_and_pages_are_not_changes_of_the_code(tmp_path, monkeypatch):
    for folder in ("benchmarks/results", "learners"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.json").write_text("1")
    report.git("init", "-q", root=tmp_path)
    report.git("add", ".", root=tmp_path)
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    report.git(*who, "commit", "-qm", "first", root=tmp_path)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    head = report.git("rev-parse", "--short=12", "HEAD", root=tmp_path).strip()
    commit = report.commit.__wrapped__
    (tmp_path / "benchmarks" / "results" / "file.json").write_text("2")
    assert commit() == head
    (tmp_path / "learners" / "file.json").write_text("2")
    assert commit() == f"{head}-dirty"


def test_without_a_history_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert report.commit.__wrapped__() == "unknown"
