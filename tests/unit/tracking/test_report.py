"""What the report gathers from a run's files, and how it puts that into the page."""

import base64
import gzip
import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox_workers.local import LocalSandbox
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.multistage.rewards import RewardRules
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.tracking.report import ReportData, gather, is_over, names_of, page
from sparring.tracking.rows import append_row
from tests.playing import play, reader
from tests.recorded import DOUBLE, PROGRAMS, match, record, spar

HOSTILE = '</script><script>window.stolen = 1</script><img src=x onerror="stolen=1">&lt;<!--'


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox("process") as local:
        yield local


@pytest.fixture
def run(tmp_path: Path, sandbox: LocalSandbox) -> Path:
    """Two steps of three programs on two suites, and a third step without attempts."""
    rules = MultistageRules(rewards=RewardRules(validity_slots=3, validity_weight=0.3))
    suites = ["assert f(1) == 2\nassert f(3) == 6\nassert f(3)==6", "hm"]
    played = [spar(rules, PROGRAMS, suites, sandbox)]
    record(tmp_path / "a", rules, played, played, [])
    return tmp_path / "a"


def episodes(found: ReportData, step: int) -> list[list[dict[str, Any]]]:
    return json.loads(gzip.decompress(base64.b64decode(found.steps[step])))


def blocks(text: str) -> dict[str, str]:
    return dict(re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', text, re.DOTALL))


def test_every_figure_of_the_metrics_is_a_column(run: Path) -> None:
    append_row(run / "metrics.jsonl", {"step": 4, "generator": {"policy_loss": math.nan, "entropy": 1 / 3}})
    columns = gather(run, "a").summary["columns"]
    assert columns["step"] == [0, 1, 2, 3, 4]
    assert columns["held_out.generator_pass_rate"] == [0.25, None, None, None, None]
    assert columns["generator_reward"] == [None, 0.5, 0.5, 0.5, None]
    assert columns["generator.entropy"][-1] == 0.33333
    assert "generator.policy_loss" not in columns, "a loss that is no number has no point"


def test_the_page_has_the_config(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"seed": 7}))
    assert gather(run, "a").summary["config"]["seed"] == "7"


def test_attempts_are_packed_by_step_with_reasons_and_turns(run: Path) -> None:
    found = gather(run, "a")
    assert found.steps.keys() == {1, 2} and [e["step"] for e in found.summary["index"]] == [1, 2]
    ((entry,), (episode,)) = found.summary["index"][0]["problems"], episodes(found, 1)
    assert entry["problem"] == "double" and entry["attempts"] == len(episode) == 5
    assert entry["rewards"]["generator"] == pytest.approx(0.5)
    second = episode[1]
    assert second["why"] == "share of the tests passed, of those that count"
    assert second["texts"] == ["a thought"] * 4 + ["def f(n): return 7 if n == 3 else n * 2"]
    assert second["stages"] == [1, 2, 3, 4, 5] and not second["suite"]
    assert found.summary["stages"][4] == "constraints and invariants"
    suite = episode[3]
    assert suite["suite"] and suite["why"].endswith("0.67 validity (2 valid of 3 tests)")
    assert [outcome["status"] for outcome in suite["outcomes"]] == ["valid", "valid", "duplicate"]


def test_the_kill_matrix_agrees_with_the_recorded_kill_rate(run: Path) -> None:
    found = gather(run, "a")
    kills = found.summary["kills"]
    assert kills["bins"] == [[1, 1], [2, 2]]
    suite = episodes(found, 1)[0][3]
    killed, pairs = kills["cells"][0][0]
    assert (killed, pairs) == (2, 3) and killed / pairs == pytest.approx(suite["components"]["kill_rate"])
    assert kills["cells"][0][1] == (2, 3), "the same programs came up again in step 2"


def test_the_league_is_shown_where_one_was_played(run: Path) -> None:
    assert gather(run, "a").summary["league"] == {}
    league = {"members": ["before"], "kills": [[None]], "ratings": [{"policy": "generator", "points": 0.0}]}
    (run / "league.json").write_text(json.dumps(league))
    assert gather(run, "a").summary["league"] == league


def test_a_run_is_going_on_until_its_log_says_otherwise(run: Path) -> None:
    def summary_after(*said: str) -> dict[str, Any]:
        with (run / "run.log").open("a") as handle:
            handle.writelines(f"2026-01-01 10:00:00 {line}\n" for line in said)
        return gather(run, "a").summary

    assert summary_after()["state"] == "going on" and not is_over(run)
    failed = summary_after("step 3/65 stage 1 generator", "ended by an error\nTraceback …")
    assert failed["state"] == "failed" and failed["total"] == 65
    assert summary_after("step 4/70 stage 1 generator")["state"] == "going on", "it was resumed"
    assert summary_after("interrupted")["state"] == "interrupted"
    assert summary_after("results: training_results.json")["state"] == "going on", "it still closes its parts"
    (run / "training_results.json").write_text(json.dumps({"wall_time_s": {"total": 12.0}}))
    finished = summary_after("finished")
    assert finished["state"] == "finished" and finished["seconds"] == {"total": 12.0} and is_over(run)
    shutil.copytree(run, run.with_name("copied"), copy_function=shutil.copy)  # in any order, with new times
    assert is_over(run.with_name("copied"))


def test_checkpoints_that_are_there_and_the_best(run: Path) -> None:
    assert gather(run, "a").summary["checkpoints"] == {"steps": [], "best": None}
    for name in ("step_000002", "step_000012", ".step_000013.draft"):
        (run / "checkpoints" / name).mkdir(parents=True)
    (run / "checkpoints" / "best").symlink_to("step_000002")
    assert gather(run, "a").summary["checkpoints"] == {"steps": [2, 12], "best": 2}


def test_a_run_that_is_being_written_and_one_that_has_only_begun(run: Path, tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "episodes.jsonl", "task_history.jsonl"):
        with (run / name).open("a") as handle:
            handle.write('{"step": 3, "problem": "dou')
    found = gather(run, "a")
    assert found.summary["columns"]["step"] == [0, 1, 2, 3] and found.steps.keys() == {1, 2}
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "metrics.jsonl").touch()
    (empty / "config.yaml").write_text("game: [of another")
    summary = gather(empty, "empty").summary
    assert summary["game"] == "unknown" and summary["columns"] == {} and summary["kills"]["cells"] == []


def test_another_versions_config_and_components_leave_rewards_without_reasons(run: Path) -> None:
    text = (run / "episodes.jsonl").read_text()
    (run / "episodes.jsonl").write_text(text.replace('"wrong_outputs"', '"of_old"'))
    whys = [row["why"] for row in episodes(gather(run, "a"), 1)[0]]
    assert whys[3] == "" and whys[0] != ""
    (run / "config.yaml").write_text("game: {kind: multistage, gone: 1}\n")
    found = gather(run, "a")
    assert episodes(found, 1)[0][0]["why"] == "" and found.summary["game"] == "multistage"


def test_every_kind_of_game_is_gathered(tmp_path: Path, sandbox: LocalSandbox) -> None:
    foretold = [reader("author", ["print(6)"]), reader("opponent", ["6"], seed=2)]
    golf = [reader("generator", ["def f(n): return n * 2"])]
    for rules, episode in (
        (TicTacToeRules(), match()),
        (OutputPredictionRules(), play(OutputPredictionRules().game(), DOUBLE, foretold, sandbox)),
        (CodeGolfRules(), play(CodeGolfRules().game(), DOUBLE, golf, sandbox)),
    ):
        record(tmp_path / rules.kind, rules, [episode])
        found = gather(tmp_path / rules.kind, rules.kind)
        assert found.summary["players"] == list(rules.seats) and found.summary["kills"]["cells"] == []
        assert found.summary["stages"] == {}
        assert all(row["why"] for row in episodes(found, 1)[0])
    moves = episodes(gather(tmp_path / "tictactoe", "t"), 1)[0]
    first = next(row for row in moves if row["player"] == "first")
    assert first["texts"] == ["1", "2"] and first["artifact"] == "1 2"


def test_an_episode_ends_where_a_players_number_comes_again(run: Path) -> None:
    first = (run / "episodes.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "episodes.jsonl").write_text(first + first.replace('"attempt": 0', '"attempt": 1') + first)
    assert [len(episode) for episode in episodes(gather(run, "a"), 1)] == [2, 1]


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    assert names_of([tmp_path / "x"]) == ["x"]
    assert names_of([tmp_path / "x", tmp_path / "y"]) == ["x", "y"]
    assert names_of([tmp_path / "1/x", tmp_path / "2/x"]) == ["1/x", "2/x"]


def test_texts_cannot_leave_their_block_and_only_our_script_may_run(run: Path) -> None:
    for file in ("episodes.jsonl", "metrics.jsonl"):
        text = (run / file).read_text().replace("double", HOSTILE.replace('"', '\\"'))
        (run / file).write_text(text)
    (run / "config.yaml").write_text(json.dumps({"game": {"kind": "multistage"}, "run_name": HOSTILE}))
    found = gather(run, HOSTILE)
    text = page([found], live=False)
    data = json.loads(blocks(text)["data"])
    assert data["runs"][0]["name"] == HOSTILE and data["runs"][0]["config"]["run_name"] == HOSTILE
    assert data["runs"][0]["index"][0]["problems"][0]["problem"] == HOSTILE
    assert HOSTILE not in text and "<img" not in text
    assert text.count("<script") == text.count("</script>") == 2 + len(found.steps)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert len(script) == 1 and f"script-src 'sha256-{digest}'" in text


def test_the_page_is_one_file_that_names_no_other(run: Path) -> None:
    text = page([gather(run, "a"), gather(run, "b")], live=True)
    assert blocks(text).keys() == {"data", *(f"run-{r}-step-{s}" for r in (0, 1) for s in (1, 2))}
    assert json.loads(blocks(text)["data"])["live"] is True
    addresses = set(re.findall(r"https?://[\w./]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a kind of element, never loaded"
    assert "{{" not in text and "<link" not in text


def test_a_component_that_is_no_number_is_null(run: Path) -> None:
    text = (run / "episodes.jsonl").read_text().replace('"pass_rate": 1.0', '"pass_rate": NaN')
    (run / "episodes.jsonl").write_text(text)
    assert episodes(gather(run, "a"), 1)[0][0]["components"]["pass_rate"] is None
