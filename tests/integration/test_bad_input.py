"""What is wrong with a run is said in one line: what, where, how to mend it. Nothing that was there is damaged."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import Drive, ImportedDriver

Arguments = list[object]


@dataclass
class Place:
    """A directory with a finished run, problem files and models, for one test to spoil."""

    root: Path
    finished: Path
    train: Path
    held_out: Path
    models: dict[str, str]
    imported_driver: ImportedDriver

    def problems(self, change: Callable[[list[dict]], object]) -> Path:
        """The training problems as `change` leaves them."""
        entries = json.loads(self.train.read_text())["problems"]
        change(entries)
        return self.write("spoilt.json", json.dumps({"problems": entries}))

    def write(self, name: str, text: str) -> Path:
        (self.root / name).write_text(text)
        return self.root / name

    def recipe(self, **changes: object) -> Path:
        values = yaml.safe_load((self.finished / "config.yaml").read_text())
        del values["run_name"], values["output_dir"]
        return self.write("recipe.yaml", yaml.safe_dump(values | changes))

    def using(self, file: Path) -> Arguments:
        return ["--config", self.recipe(), "--problems-file", file]

    def checkpoint(self) -> Path:
        """A copy of a checkpoint, in a run directory of its own."""
        shutil.copytree(self.finished, self.root / "spoilt", symlinks=True)
        return self.root / "spoilt" / "checkpoints" / "step_000006"


@pytest.fixture
def place(
    finished: Path,
    small_problems: tuple[Path, Path],
    models: dict[str, str],
    imported_driver: ImportedDriver,
    tmp_path: Path,
) -> Place:
    return Place(tmp_path, finished, *small_problems, models, imported_driver)


def digest(directory: Path) -> dict[str, str]:
    return {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def refused(
    drive, place: Place, arguments: Arguments, *said: str, lines: int = 1, **environment: str
) -> None:
    """The run ends at once, with one line that says all of `said`, and the finished run is as it was."""
    before = digest(place.finished)
    if "--output-dir" not in arguments:
        arguments = [*arguments, "--output-dir", place.root / "out"]
    if "--run-name" not in arguments:
        arguments = [*arguments, "--run-name", drive.name()]
    drive.before.add(place.imported_driver.known)
    done = place.imported_driver.run(*arguments, timeout=150, **environment)
    assert done.code == 2, (done.out, done.err)
    assert "Traceback" not in done.out + done.err, done.err
    told = [line for line in done.err.splitlines() if line.strip()]
    assert len(told) == lines, done.err
    assert told[0].startswith("error: ")
    for part in said:
        assert part in done.err, done.err
    assert digest(place.finished) == before
    assert not list((place.root / "out").glob("*/metrics.jsonl"))


# ---------------------------------------------------------------------- problem files
def test_malformed_problem_file(drive, place: Place) -> None:
    file = place.write("bad.json", '{"problems": [\n  {"id": "a",}\n]}')
    refused(drive, place, place.using(file), "bad.json", "line 2", "malformed JSON", "correct it there")


def test_reference_that_fails_its_own_tests(drive, place: Place) -> None:
    def spoil(entries: list[dict]) -> None:
        entries[5]["baseline_tests"][1] = "assert f([1]) == 'nothing of the kind'"

    id_ = json.loads(place.train.read_text())["problems"][5]["id"]
    file = place.problems(spoil)
    refused(
        drive,
        place,
        place.using(file),
        str(file),
        repr(id_),
        "baseline_tests[1]",
        "correct the test or the solution",
    )


@pytest.mark.slow
def test_problems_whose_references_fail_are_left_out_where_that_is_wanted(
    local_drive: Drive, small: tuple[str, ...], place: Place, tmp_path: Path
) -> None:
    def spoil(entries: list[dict]) -> None:
        entries[5]["baseline_tests"][1] = "assert f([1]) == 'nothing of the kind'"

    id_ = json.loads(place.train.read_text())["problems"][5]["id"]
    arguments = [str(place.problems(spoil)) if word == str(place.train) else word for word in small]
    arguments += [
        "--problems.failing-references", "leave_out", "--curriculum.stages", "1", "--n-discriminator-steps", "0",
        "--n-generator-steps", "0", "--k-alternating-steps", "1",
    ]  # fmt: skip
    done = local_drive.run(
        "--config", "debug", *arguments, "--output-dir", tmp_path, "--run-name", "left_out"
    )
    assert done.code == 0, done.err
    assert f"1 problems ({id_}) left out" in done.out
    assert (tmp_path / "left_out" / "training_results.json").is_file()


def test_training_problems_that_are_all_held_out(drive, place: Place) -> None:
    """Some would be left out; here nothing would be left."""
    file = place.write("same.json", place.held_out.read_text())
    refused(drive, place, place.using(file), str(place.held_out), "nothing is left to train on")


# ---------------------------------------------------------------------- models
def test_model_path_that_does_not_exist(drive, place: Place) -> None:
    arguments = ["--config", place.recipe(), "--generator-model", place.root / "nowhere"]
    refused(drive, place, arguments, "generator.model", "nowhere", "no such directory")


# ---------------------------------------------------------------------- configuration
def test_run_name_that_is_used(drive, place: Place) -> None:
    arguments = [
        "--config",
        place.recipe(),
        "--output-dir",
        place.finished.parent,
        "--run-name",
        place.finished.name,
    ]
    refused(drive, place, arguments, str(place.finished), "holds a run already", "--resume")


def test_output_directory_that_is_a_file(drive, place: Place) -> None:
    arguments = ["--config", place.recipe(), "--output-dir", place.write("file", "mine")]
    refused(drive, place, arguments, str(place.root / "file"), "--output-dir")
    assert (place.root / "file").read_text() == "mine"


# ---------------------------------------------------------------------- checkpoints
def test_truncated_checkpoint(drive, place: Place) -> None:
    checkpoint = place.checkpoint()
    weights = checkpoint / "generator" / "model.safetensors"
    copy = weights.read_bytes()
    weights.unlink()  # it may be a hard link
    weights.write_bytes(copy[: len(copy) // 2])
    before = digest(place.root / "spoilt")
    resumed = ["--resume", "--output-dir", place.root, "--run-name", "spoilt"]
    refused(drive, place, resumed, "step_000006", "model.safetensors is truncated", "step_000003")
    assert digest(place.root / "spoilt") == before
    new = ["--config", place.recipe(), "--resume-from", checkpoint]
    refused(drive, place, new, "model.safetensors is truncated", "step_000003")


def test_more_layers_to_train_than_there_are(drive, place: Place) -> None:
    arguments = ["--config", place.recipe(), "--generator.learner.trainable-layers", "9"]
    refused(drive, place, arguments, "generator: trainable_layers is 9, but the model has 3")


# ---------------------------------------------------------------------- machines
def test_no_docker_engine(drive, place: Place) -> None:
    arguments = ["--config", place.recipe(), "--sandbox.backend", "docker"]
    nowhere = "unix:///nonexistent.sock"
    refused(drive, place, arguments, nowhere, "no Docker Engine answers", "make engine", DOCKER_HOST=nowhere)


@pytest.mark.slow  # like test_no_docker_engine, after the start of a Ray
def test_no_docker_engine_for_the_pool(drive, place: Place) -> None:
    arguments = ["--config", place.recipe(local=False), "--sandbox.backend", "docker"]
    nowhere = "unix:///nonexistent.sock"
    refused(drive, place, arguments, "no Docker Engine answers", nowhere, DOCKER_HOST=nowhere)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_output_directory_without_permission(drive, place: Place) -> None:
    locked = place.root / "locked"
    locked.mkdir(mode=0o500)
    refused(drive, place, ["--config", place.recipe(), "--output-dir", locked], str(locked), "--output-dir")
