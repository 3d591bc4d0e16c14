"""Run records survive crashes; the display says what it should; curves are drawn."""

import io
import json
import platform
from pathlib import Path

import yaml
from rich.console import Console

from sparring.core.episode import Completion, Episode, FinishReason, Outcome, Trajectory, Turn
from sparring.tracking.plots import learning_curves, plot_learning_curves
from sparring.tracking.progress import Display
from sparring.tracking.run_record import RunRecord, versions
from tests.recorded import lines

SCORES = {"generator_pass_rate": 0.25, "test_validity": 0.5, "kill_rate": 0.75}


def row(step: int, **more: object) -> dict[str, object]:
    base = {"step": step, "stage": 1 + step // 3, "phase": "generator", "generator_reward": 0.5}
    return base | {"discriminator_reward": None, "seconds": {"total": 1.5}} | more


def test_rows_beyond_a_checkpoint_are_forgotten_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.start({"seed": 1})
    for step in range(4):
        record.add(row(step))
    with (tmp_path / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 4, "sta')
    assert [r["step"] for r in record.rows()] == [0, 1, 2, 3]
    record.continue_from(2, {"seed": 3})
    record.add(row(3))
    assert [r["step"] for r in record.rows()] == [0, 1, 2, 3]
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_a_new_start_keeps_nothing_of_a_run_that_never_saved(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.start({"seed": 1})
    record.add(row(0))
    record.add_episodes([b'{"step": 1}\n'])
    (tmp_path / "episodes.3.jsonl").write_text('{"step": 1}\n')
    record.start({"seed": 2})
    assert record.rows() == [] and not list(tmp_path.glob("episodes*"))
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == {"seed": 2}
    assert {"python", "git", "torch"} <= json.loads((tmp_path / "versions.json").read_text()).keys()
    assert versions()["python"] == platform.python_version()


def test_a_commit_made_while_it_runs_is_not_the_runs(monkeypatch) -> None:
    began = versions()["git"]
    monkeypatch.setattr("sparring.tracking.run_record._git_commit", lambda: "another")
    assert versions()["git"] == began


def test_samples_are_readable_text(tmp_path: Path) -> None:
    completion = Completion(tokens=(1,), logprobs=(0.0,), version=0, finish_reason=FinishReason.STOP)
    turns = [Turn(stage=s, prompt_tokens=(), completion=completion, text=f"thought {s}") for s in (1, 5)]
    written = (Outcome(test="assert f(1) == 2", status="valid"), Outcome(test="f(", status="parse"))
    attempts = [
        Trajectory(player="generator", attempt=0, turns=turns, reward=0.5, artifact="def f(): ..."),
        Trajectory(player="generator", attempt=1, turns=turns[1:], artifact="thought 5"),
        Trajectory(player="discriminator", attempt=0, turns=turns[:1], outcomes=written),
    ]
    episode = Episode(problem_id="p7", trajectories=attempts)
    (episode.rows,) = lines(1, [episode], {"generator": "generator", "discriminator": "discriminator"})
    record = RunRecord(tmp_path)
    record.start({})
    record.add_samples("stage_1", [episode])
    text = (tmp_path / "samples" / "stage_1.txt").read_text()
    for expected in ("p7", "[stage 1] thought 1", "[stage 5] thought 5", "reward 0.50"):
        assert expected in text
    assert "--- generator #1 (not judged)\n[stage 5] thought 5" in text
    assert "valid tests: assert f(1) == 2\n" in text


def test_without_a_terminal_each_step_is_one_line() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=160))
    display.begin(total=9, done=0)
    display.step(row(2, tokens_per_s=1234.5))
    (line,) = out.getvalue().splitlines()
    assert line.startswith("step 2/9 stage 1 generator") and "tok/s 1234" in line
    assert "discriminator" not in line, "it earned nothing"


def test_learning_curves_are_a_picture_from_the_first_evaluation_on(tmp_path: Path) -> None:
    file, players = tmp_path / "curves.png", ("generator", "discriminator")
    rows = [{"step": 0, "held_out": SCORES}]
    plot_learning_curves(rows, file, tuple(SCORES), players)
    first = file.read_bytes()
    rows += [*(row(s) for s in range(1, 6)), row(6, held_out=SCORES)]
    plot_learning_curves(rows, file, tuple(SCORES), players)
    assert first.startswith(b"\x89PNG") and file.read_bytes() != first
    assert list(tmp_path.iterdir()) == [file]


def test_the_names_of_stages_are_inside_of_the_frame_and_neighbours_differ(tmp_path: Path) -> None:
    rows = [row(1, stage=1), row(2, stage=1), row(3, stage=5), row(4, stage=5, held_out=SCORES)]
    figure = learning_curves(rows, tuple(SCORES), ("generator",))
    figure.canvas.draw()
    for axis in figure.axes:
        frame, names = axis.get_window_extent(), [text.get_window_extent() for text in axis.texts]
        assert len(names) == 2 and all(name.y1 < frame.y1 - 1 for name in names)
        assert len(axis.patches) == 1, "one of two stages is shaded"
        assert all(float(tick).is_integer() for tick in axis.get_xticks())
