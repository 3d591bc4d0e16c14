import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learners import checkpoints
from learners.checkpoints import CheckpointError, CheckpointStore, base_of, check_fits, read_checkpoint
from learners.settings import LearnerSettings
from tests.learning import Tokenizer

STATE = {"step": 1, "score": 0.5, "parts": {"curriculum": {"done": 1, "memory": {}}}}


class FullDisk:
    """Where the files of a tokenizer go. The tokenizers library writes by itself and raises no OSError."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def save_pretrained(self, directory: Path) -> None:
        raise self.error


TOKENIZERS = {"generator": Tokenizer(), "discriminator": Tokenizer()}


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=2)


@pytest.fixture
def policies(tmp_path) -> dict[str, Path]:
    made = {}
    for name in TOKENIZERS:
        made[name] = tmp_path / "learners" / name
        made[name].mkdir(parents=True)
        (made[name] / "model.safetensors").write_bytes(name.encode() * 100)
        (made[name] / "config.json").write_text("{}")
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(directory)): f.read_bytes() for f in sorted(directory.rglob("*")) if f.is_file()
    }


# ---------------------------------------------------------------------- writing
def test_what_is_saved_is_read_even_if_the_learners_files_are_gone(store, policies):
    path = store.save(1, policies, TOKENIZERS, STATE)
    assert path.name == "step_000001"
    for name, source in policies.items():
        weights = (source / "model.safetensors").read_bytes()
        shutil.rmtree(source)
        assert (path / name / "model.safetensors").read_bytes() == weights
        assert (path / name / "tokenizer.json").is_file()
    assert read_checkpoint(path) == STATE


def test_the_manifest_names_every_file_but_itself(store, policies):
    path = store.save(1, policies, TOKENIZERS, STATE)
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest) == set(contents(path)) - {"manifest.json"}
    assert all(
        manifest[name]["bytes"] == len(data) for name, data in contents(path).items() if name in manifest
    )


def test_it_is_copied_where_hard_links_are_impossible(store, policies, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    assert read_checkpoint(store.save(1, policies, TOKENIZERS, STATE)) == STATE


def test_saving_a_step_again_replaces_it(store, policies):
    store.save(1, policies, TOKENIZERS, STATE)
    path = store.save(1, policies, TOKENIZERS, STATE | {"score": 0.75})
    assert read_checkpoint(path)["score"] == 0.75


def test_the_latest_is_the_highest_step(store, policies):
    assert store.latest() is None
    for step in (9, 10, 2):
        store.save(step, policies, TOKENIZERS, STATE)
    assert store.latest().name == "step_000010"


def test_a_draft_left_by_a_killed_process_is_no_checkpoint(store, policies):
    path = store.save(1, policies, TOKENIZERS, STATE)
    draft = store.root / ".draft_step_000002"
    shutil.copytree(path, draft)
    (draft / "stale").write_text("left over")
    assert store.latest() == path
    again = store.save(2, policies, TOKENIZERS, STATE)
    assert read_checkpoint(again) == STATE
    assert "stale" not in contents(again)


# ---------------------------------------------------------------------- a full disk
@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """Those that were made: nobody waits."""
    made: list[float] = []
    monkeypatch.setattr(checkpoints.time, "sleep", made.append)
    return made


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def full_disk(*_: object) -> None:
    raise NO_SPACE


@pytest.mark.parametrize("where", ["weights", "tokenizer", "tokenizer in Rust", "state", "rename"])
def test_a_full_disk_leaves_the_earlier_checkpoints_as_they_are(store, policies, monkeypatch, pauses, where):
    earlier = store.save(1, policies, TOKENIZERS, STATE)
    before = contents(earlier)
    tokenizers: dict[str, Any] = dict(TOKENIZERS)
    match where:
        case "weights":
            monkeypatch.setattr(os, "link", full_disk)
        case "tokenizer":
            tokenizers["discriminator"] = FullDisk(NO_SPACE)
        case "tokenizer in Rust":
            tokenizers["discriminator"] = FullDisk(Exception("No space left on device (os error 28)"))
        case "state":
            monkeypatch.setattr(os, "fsync", full_disk)
        case "rename":
            monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(CheckpointError, match=r"step 2.*free some space.*--resume"):
        store.save(2, policies, tokenizers, STATE)
    assert contents(earlier) == before
    assert read_checkpoint(store.latest()) == STATE
    assert [p.name for p in store.root.iterdir()] == ["step_000001"]


def test_another_error_is_passed_on_with_its_words(store, policies, pauses):
    policies["generator"] = policies["generator"] / "missing"
    with pytest.raises(CheckpointError, match="No such file"):
        store.save(1, policies, TOKENIZERS, STATE)
    assert store.latest() is None


def test_what_passes_is_tried_again(store, policies, monkeypatch, pauses):
    rename, failures = os.replace, [OSError(errno.EIO, "Input/output error")] * 2

    def flaky(source, target):
        if failures:
            raise failures.pop()
        rename(source, target)

    monkeypatch.setattr(os, "replace", flaky)
    assert read_checkpoint(store.save(1, policies, TOKENIZERS, STATE)) == STATE
    assert pauses == list(checkpoints.RETRY_PAUSES_S)


def test_what_cannot_fit_is_not_begun(store, policies, monkeypatch, pauses):
    """Files of another file system have to be copied; there is less room than they take."""
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    assert read_checkpoint(store.save(1, policies, TOKENIZERS, STATE)) == STATE, "links take no room"
    stat = Path.stat

    def elsewhere(path, **options):
        found = stat(path, **options)
        device = 77 if "learners" in path.parts else found.st_dev
        return SimpleNamespace(st_dev=device, st_size=found.st_size, st_mode=found.st_mode)

    monkeypatch.setattr(Path, "stat", elsewhere)
    monkeypatch.setattr(store, "_write", lambda *a: pytest.fail("was begun"))
    with pytest.raises(CheckpointError, match="free some space"):
        store.save(2, policies, TOKENIZERS, STATE)


# ---------------------------------------------------------------------- reading
@pytest.fixture
def saved(store, policies) -> Path:
    store.save(1, policies, TOKENIZERS, STATE)
    return store.save(2, policies, TOKENIZERS, STATE)


WEIGHTS = "generator/model.safetensors"


def rewrite(file: Path, data: bytes) -> None:
    file.unlink()  # it may be a link to the learner's own file
    file.write_bytes(data)


def missing(file: Path) -> None:
    file.unlink()


def truncated(file: Path) -> None:
    rewrite(file, file.read_bytes()[:-10])


def corrupted(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[450] ^= 1
    rewrite(file, bytes(data))


@pytest.mark.parametrize(
    ("damage", "name", "said"),
    [
        (missing, WEIGHTS, "is missing"),
        (missing, "discriminator/tokenizer.json", "is missing"),
        (truncated, WEIGHTS, "is truncated .890 of 900 bytes.*step_000001"),
        (corrupted, WEIGHTS, "is corrupted"),
    ],
)
def test_a_damaged_file_is_named(saved, damage, name, said):
    damage(saved / name)
    with pytest.raises(CheckpointError, match=f"{name} {said}"):
        read_checkpoint(saved)


@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
@pytest.mark.parametrize("damage", [None, b"", b"{", b"\xff\xfe"])
def test_without_manifest_or_state_it_is_no_complete_checkpoint(saved, name, damage):
    (saved / name).unlink()
    if damage is not None:
        (saved / name).write_bytes(damage)
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        read_checkpoint(saved)


def test_a_checkpoint_of_an_older_version_is_refused(store, policies):
    state = {"step": 1, "score": 0.5, "curriculum": {"done": 1}}
    with pytest.raises(CheckpointError, match=r"step_000001: written by an older version.*start a new run"):
        read_checkpoint(store.save(1, policies, TOKENIZERS, state))


def test_a_missing_checkpoint_says_which_ones_there_are(saved):
    with pytest.raises(CheckpointError, match="step_000001, step_000002"):
        read_checkpoint(saved.parent / "step_000077")


# ---------------------------------------------------------------------- what fits this run
SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "vocab_size": 640,
}
LORA = {"lora": {"rank": 4, "alpha": 8}}


def learner(**settings: object) -> dict:
    """As a config is saved."""
    return LearnerSettings.model_validate(settings).model_dump(mode="json")


def directory_with(path: Path, config: dict | None) -> Path:
    path.mkdir()
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def ours(tmp_path) -> Path:
    return directory_with(tmp_path / "ours", SHAPE)


def test_the_same_architecture_fits(tmp_path, ours):
    theirs = directory_with(tmp_path / "theirs", SHAPE | {"torch_dtype": "bfloat16"})
    check_fits(theirs, ours, learner(), learner(learning_rate_scale=2.0))


@pytest.mark.parametrize(
    ("key", "value"), [("model_type", "llama"), ("hidden_size", 64), ("vocab_size", 32000)]
)
def test_another_architecture_is_refused_with_both_values(tmp_path, ours, key, value):
    theirs = directory_with(tmp_path / "theirs", SHAPE | {key: value})
    with pytest.raises(CheckpointError, match=f"{key} is {value}, .* {SHAPE[key]}"):
        check_fits(theirs, ours, learner(), learner())
    check_fits(theirs, Path("owner/name"), learner(), learner())  # a hub's: not here to be compared


def test_a_checkpoint_without_a_config_is_refused(tmp_path, ours):
    with pytest.raises(CheckpointError, match=r"no readable config\.json"):
        check_fits(directory_with(tmp_path / "theirs", None), ours, learner(), learner())


GAE, GRPO = ({"estimator": {"kind": kind}} for kind in ("gae", "grpo"))


@pytest.mark.parametrize(
    ("saved", "now", "key"),
    [
        (GAE, GRPO, "estimator.kind"),
        (GRPO, GAE, "estimator.kind"),
        (GAE, {"estimator": {"kind": "gae", "critic": "model"}}, "estimator.critic"),
        ({}, LORA, "lora"),
        (LORA, {}, "lora"),
        (LORA, {"lora": {"rank": 8, "alpha": 8}}, "lora"),
        (LORA, {"lora": {"rank": 4, "alpha": 16}}, "lora"),
    ],
)
def test_another_tuning_is_refused(tmp_path, ours, saved, now, key):
    """Else what was trained would be thrown away without a word."""
    theirs = directory_with(tmp_path / "generator", SHAPE)
    with pytest.raises(CheckpointError, match=f"generator: saved with {key} .*resume with the same {key}"):
        check_fits(theirs, ours, learner(**saved), learner(**now))


@pytest.mark.parametrize("changed", [{"estimator": "gae"}, {"estimator": None}, {"lora": ...}])
def test_settings_of_an_older_version_are_refused(tmp_path, ours, changed):
    theirs = directory_with(tmp_path / "generator", SHAPE)
    saved = {key: value for key, value in (learner() | changed).items() if value is not ...}
    with pytest.raises(CheckpointError, match="generator: written by an older version"):
        check_fits(theirs, ours, saved, learner())


def test_an_adapter_is_of_the_model_beneath_it(tmp_path, ours):
    other = directory_with(tmp_path / "other", SHAPE | {"hidden_size": 192})
    saved = directory_with(tmp_path / "generator", None)

    def check(base: Path | str) -> None:
        (saved / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
        check_fits(saved, ours, learner(**LORA), learner(**LORA))

    for base in (ours, "owner/name", tmp_path / "gone"):
        check(base)
        assert base_of(saved) == str(base)
    with pytest.raises(CheckpointError, match="hidden_size is 192"):
        check(other)
    (saved / "adapter_config.json").unlink()
    with pytest.raises(CheckpointError, match="generator: written by an older version"):
        check_fits(saved, ours, learner(**LORA), learner(**LORA))
    assert base_of(ours) is None and base_of("owner/name") is None
