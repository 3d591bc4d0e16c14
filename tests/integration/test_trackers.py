"""The real libraries: what they store of a run that stops after a step and goes on, read back by their own readers."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sparring.core.errors import SparringError
from sparring.tracking.writers import Ending, TrackedRun, open_writer
from tests.integration.conftest import Drive, rows_of
from tests.serving import served
from tests.trackers import tracked, wandb_config, wandb_history

SETTINGS = {
    "seed": 7,
    "generator.model": "sparring/examples/toy/generator",
    "tracking.name": None,
    **{f"key.{i}": "v" * 900 for i in range(120)},
}


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in (
        "WANDB_API_KEY",
        "WANDB_MODE",
        "WANDB_PROJECT",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_EXPERIMENT_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    yield
    if (wandb := sys.modules.get("wandb")) is not None:
        wandb.teardown()  # it reads its variables once, and has a process of its own


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / "curves.png")
    return tmp_path / "curves.png"


def of_run(tmp_path: Path, done: int = -1) -> TrackedRun:
    (tmp_path / "run").mkdir(exist_ok=True)
    told = {"settings": SETTINGS, "environment": {"git": "abc123", "torch": "2"}}
    return tracked(tmp_path / "run", project="sparring-test", done=done, **told)


def halves(name: str, tmp_path: Path, picture: Path) -> Iterator[str]:
    """Steps 1 and 2; then, from a checkpoint of step 1, steps 2 and 3."""
    both: tuple[tuple[int, tuple[int, int], Ending], ...] = ((-1, (1, 2), "failed"), (1, (2, 3), "finished"))
    for done, steps, ending in both:
        writer = open_writer(name, of_run(tmp_path, done))
        for step in steps:
            writer.metrics(step, {"generator/loss": step + 0.5 * (done + 1), "step": float(step)})
        writer.text(steps[-1], "samples", "=== p1\n<b> def f(n): # code")
        writer.image(steps[-1], "learning_curves", picture)
        writer.close(ending)
        yield writer.where
        time.sleep(1.1)  # W&B's directories are named by the second


def test_tensorboard_has_each_step_once(tmp_path: Path, picture: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    list(halves("tensorboard", tmp_path, picture))
    stored = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    stored.Reload()
    losses = [(event.step, event.value) for event in stored.Scalars("generator/loss")]
    assert losses == [(1, 1.0), (2, 3.0), (3, 4.0)]
    (*_, samples) = stored.Tensors("samples/text_summary")
    assert b"    <b> def f(n): # code" in samples.tensor_proto.string_val[0]
    assert stored.Images("learning_curves")[-1].width == 6
    (*_, settings) = stored.Tensors("settings/text_summary")
    assert b"| git | abc123 |" in settings.tensor_proto.string_val[0]
    content = stored.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert started.hparams["seed"].number_value == 7


@pytest.mark.slow
def test_wandb_is_offline_without_a_key_and_goes_on_in_the_same_run(tmp_path: Path, picture: Path) -> None:
    first, second = halves("wandb", tmp_path, picture)
    assert "offline, as there is no WANDB_API_KEY; later: wandb sync" in first
    directories = [Path(where.split("wandb sync ")[1]) for where in (first, second)]
    assert len({d.name.rsplit("-", 1)[1] for d in directories}) == 1  # the run's id
    config = wandb_config(directories[0])
    assert config["seed"] == 7 and config["environment.git"] == "abc123"
    rows = [wandb_history(directory) for directory in directories]
    losses = [
        [(row["step"], row["generator/loss"]) for row in half if "generator/loss" in row] for half in rows
    ]
    assert losses == [[(1, 1.0), (2, 2.0)], [(2, 3.0), (3, 4.0)]]
    (html,) = (directories[0] / "files" / "media" / "html").glob("samples*.html")
    assert "&lt;b&gt; def f(n): # code" in html.read_text()
    assert list((directories[1] / "files" / "media" / "images").glob("learning_curves*.png"))


@pytest.mark.slow
def test_wandb_is_offline_where_its_server_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # discard: nobody listens
    writer = open_writer("wandb", of_run(tmp_path))
    writer.close("finished")
    assert "offline, as http://127.0.0.1:9 does not answer" in writer.where


@contextmanager
def wandb_server(status: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its URL; it answers everything with the status."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await Response(status_code=status)(scope, receive, send)

    with served(answer) as url:
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_BASE_URL", url)
        yield url


@pytest.mark.slow
def test_a_key_that_wandb_refuses_refuses_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = pytest.raises(SparringError, match=r"tracking\.to wandb: .*401.*mend WANDB_API_KEY")
    with wandb_server(401, monkeypatch), refused:
        open_writer("wandb", of_run(tmp_path))


@pytest.mark.slow
def test_wandb_is_offline_where_its_server_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wandb_server(503, monkeypatch) as url:
        writer: Any = open_writer("wandb", of_run(tmp_path))
    writer.close("finished")
    assert f"offline, as {url} answers 503" in writer.where
    assert 0 < writer._run.settings.finish_timeout < 1000, (
        "a network that is lost would hold up the end for ever"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "key", "said"),
    [
        ("disabled", "0" * 40, "wandb: nothing, as WANDB_MODE is disabled"),
        ("offline", "", "wandb: offline, as WANDB_MODE is offline; later: wandb sync"),
    ],
)
def test_wandbs_own_mode_is_kept(
    mode: str, key: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("WANDB_API_KEY", key)
    writer = open_writer("wandb", of_run(tmp_path))
    writer.metrics(1, {"generator/loss": 0.5})
    writer.close("finished")
    assert said in writer.where


def test_a_key_that_cannot_be_one_refuses_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "too short")
    with pytest.raises(SparringError, match=r"tracking\.to wandb: .*mend WANDB_API_KEY"):
        open_writer("wandb", of_run(tmp_path))


@pytest.mark.slow
def test_mlflow_has_one_run_with_settings_steps_and_files(tmp_path: Path, picture: Path) -> None:
    from mlflow.tracking import MlflowClient

    list(halves("mlflow", tmp_path, picture))
    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("sparring-test")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "mine" and run.info.status == "FINISHED"
    assert run.data.params["seed"] == "7" and len(run.data.params) == len(SETTINGS)
    assert run.data.tags["git"] == "abc123"
    losses = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "generator/loss")]
    assert sorted(losses) == [(1, 1.0), (2, 2.0), (2, 3.0), (3, 4.0)]
    there = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert there == {"samples", "curves.png"}


@pytest.mark.slow
def test_a_store_that_cannot_be_written_to_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/file/store")
    with pytest.raises(SparringError, match=r"tracking\.to mlflow: .*file/store.*mend MLFLOW_TRACKING_URI"):
        open_writer("mlflow", of_run(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_is_away_refuses_the_run_soon_and_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush@127.0.0.1:9")  # discard: nobody listens
    with pytest.raises(SparringError, match=r"tracking\.to mlflow: http://127\.0\.0\.1:9: ") as refused:
        open_writer("mlflow", of_run(tmp_path))
    assert "hush" not in str(refused.value)


@pytest.mark.slow
def test_a_run_that_is_killed_and_goes_on_is_one_run_in_tensorboard(
    local_drive: Drive, small: tuple[str, ...], tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / local_drive.name()
    local_drive.kill_at_step(
        2,
        run,
        "--config",
        "debug",
        *small,
        "--curriculum.stages",
        "1",
        "--tracking.to",
        "tensorboard",
        "--trace",
    )
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    assert done.out.count(f"tracking: tensorboard --logdir {run}") == 1
    stored = EventAccumulator(str(run / "tensorboard"))
    stored.Reload()
    rows = rows_of(run)
    for name, of_row in {
        "generator_reward": lambda row: row.get("generator_reward"),
        "reward/avg_batch_reward": lambda row: row.get("generator_reward"),
        "discriminator/policy_loss": lambda row: row.get("discriminator", {}).get("policy_loss"),
        "held_out/kill_rate": lambda row: row.get("held_out", {}).get("kill_rate"),
    }.items():
        ours = [(row["step"], pytest.approx(of_row(row))) for row in rows if of_row(row) is not None]
        assert [(event.step, event.value) for event in stored.Scalars(name)] == ours and ours
    assert stored.Images("learning_curves") and stored.Tensors("samples/text_summary")
    events = json.loads((run / "trace.json").read_text().rstrip().rstrip(",") + "]")
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    parts = {"startup", "rollout", "generate", "sandbox", "learn", "publish", "checkpoint", "evaluation"}
    assert parts <= named
