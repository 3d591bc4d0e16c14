"""What becomes of a run whose trackers fail, and what the trackers are told."""

import logging
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import sparring.tracking.settings
from configs.load import ConfigError, load_run
from sparring.core.episode import Episode, Trajectory
from sparring.core.errors import SparringError
from sparring.core.evaluation import Scores
from sparring.runtime.plan import trackers
from sparring.tracking import writers
from sparring.tracking.figures import figures, mbpp_figures, reward_figures
from sparring.tracking.writers import TrackedRun, open_writers
from tests.trackers import tracked


class Scripted:
    """Fails at a metric of the name `broken`."""

    def __init__(self, name: str) -> None:
        self.where, self.told = name, []

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        if "broken" in figures and self.where == "wandb":
            raise ConnectionError("the line is dead\nand more of it")
        self.told.append(("metrics", step))

    def close(self, ending: str) -> None:
        self.told.append(("close", ending))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Scripted]:
    made: dict[str, Scripted] = {}

    def open_one(name: str, run: TrackedRun) -> Scripted:
        if name == "mlflow":
            raise SparringError("tracking.to mlflow: no")
        made[name] = Scripted(name)
        return made[name]

    monkeypatch.setattr(writers, "open_writer", open_one)
    return made


def test_a_tracker_that_fails_is_said_once_and_ends_nothing(opened, tmp_path, caplog) -> None:
    both = open_writers(["wandb", "tensorboard"], tracked(tmp_path))
    with caplog.at_level(logging.WARNING), both as all_of_them:
        for step in (1, 2):
            all_of_them.metrics(step, {"broken": 1.0})
    (warning,) = caplog.messages
    assert "tracking.to wandb" in warning and "the line is dead" in warning and "more of it" not in warning
    assert opened["wandb"].told == [("close", "finished")], "else its run would go on for ever"
    assert opened["tensorboard"].told == [("metrics", 1), ("metrics", 2), ("close", "finished")]


def test_one_that_does_not_start_refuses_the_run_and_closes_the_others(opened, tmp_path) -> None:
    with pytest.raises(SparringError, match="mlflow"), open_writers(["wandb", "mlflow"], tracked(tmp_path)):
        raise AssertionError
    assert opened["wandb"].told == [("close", "failed")]


@pytest.mark.parametrize(
    ("error", "ending"), [(KeyboardInterrupt, "killed"), (SystemExit, "killed"), (RuntimeError, "failed")]
)
def test_they_are_told_how_the_run_ended(opened, tmp_path, error: type[BaseException], ending: str) -> None:
    with pytest.raises(error), open_writers(["wandb"], tracked(tmp_path)):
        raise error
    assert opened["wandb"].told == [("close", ending)]


def test_a_run_remembers_its_ids(tmp_path: Path) -> None:
    tracked(tmp_path).remember("wandb", "a")
    tracked(tmp_path).remember("mlflow", "b")
    again = tracked(tmp_path, done=3)
    assert (again.remembered("wandb"), again.remembered("mlflow")) == ("a", "b")
    assert tracked(tmp_path / "other").remembered("wandb") is None


def test_damaged_ids_are_said_and_written_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tracking.json").write_text('{"wandb": "a"')
    assert tracked(tmp_path).remembered("wandb") is None
    (warning,) = caplog.messages
    assert "tracking.json is damaged: at wandb this run begins anew" in warning
    tracked(tmp_path).remember("wandb", "b")
    assert tracked(tmp_path).remembered("wandb") == "b" and len(caplog.messages) == 1


# ---------------------------------------------------------------------- settings
@pytest.fixture
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sparring.tracking.settings, "find_spec", lambda name: ModuleSpec(name, None, origin="there")
    )


def to(*arguments: str) -> tuple[tuple[str, ...], str | None, str | None]:
    told = load_run(list(arguments))[0].to_config().tracking
    return told.to, told.name, told.project


def test_r4s_flags_mean_keys_of_tracking(all_installed: None) -> None:
    assert to("--use_wandb", "--wandb_name", "n", "--wandb_project", "q-rl") == (("wandb",), "n", "q-rl")
    assert to("--use-wandb", "--wandb-name=a_b") == (("wandb",), "a_b", None)
    assert to("--tracking.to", "tensorboard", "--use-wandb")[0] == ("tensorboard", "wandb")
    assert to("--tracking.to", "wandb,mlflow", "--use-wandb")[0] == ("wandb", "mlflow")
    assert to()[0] == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tracking.to", "comet"], "tracking.to.0"),
        (["--wandb-name", "n"], "name has no effect unless `to` names wandb or mlflow"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], words: str, all_installed: None) -> None:
    with pytest.raises(ConfigError, match=words):
        load_run(arguments)


@pytest.mark.parametrize("spec", [None, ModuleSpec("wandb", None)], ids=["nothing", "a directory"])
def test_a_library_that_is_missing_is_named(spec: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run starts; the config of a run that was tracked elsewhere can be read."""
    monkeypatch.setattr(sparring.tracking.settings, "find_spec", lambda name: spec)
    for name, package in sparring.tracking.settings.PACKAGES.items():
        webhook = ["--tracking.webhook", "URL"] if name == "webhook" else []
        config = load_run(["--tracking.to", name, *webhook])[0].to_config()
        assert f"{name} is not installed: pip install {package}" in trackers(config)[0]


# ---------------------------------------------------------------------- figures
def test_a_row_becomes_flat_names_and_numbers() -> None:
    row = {"step": 3, "phase": "generator", "kill_rate": None, "generator": {"loss": 0.5, "of": {"deep": 1}}}
    assert figures(row) == {"step": 3.0, "generator/loss": 0.5, "generator/of/deep": 1.0}


def test_r1s_names() -> None:
    def episode(author: float | None, *predicted: float) -> Episode:
        made = [Trajectory(player="author", attempt=0, turns=[], reward=author)]
        for right in predicted:
            said = Trajectory(player="opponent", attempt=0, turns=[], reward=2 * right - 1)
            said.components["predicted"] = right
            made.append(said)
        return Episode(problem_id="p", trajectories=made)

    figures = reward_figures("author", [episode(1.0, 0.0), episode(0.0, 1.0), episode(None)])
    assert (figures["reward/avg_batch_reward"], figures["reward/successful_predictions_count"]) == (0.5, 1.0)
    assert reward_figures("author", []) == {}
    scores = Scores({"generator_pass_rate": 0.4}, 0.4, {"1": 1.0, "2": 0.5, "3": 1.0})
    assert mbpp_figures(scores) == {"mbpp_eval/pass_rate": 0.4, "mbpp_eval/problems_passed": 2.0}
    assert mbpp_figures(Scores({"prediction_accuracy": 0.4}, 0.4)) == {}
