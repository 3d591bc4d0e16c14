"""Models that cannot be loaded: what is said."""

import json
import os
import shutil
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from huggingface_hub import constants

from configs.load import RECIPES, load_run
from sparring.core.errors import SparringError
from sparring.core.project_files import EXAMPLES, is_example
from sparring.games.prompts import MARKER_TOKENS
from sparring.runtime import start
from sparring.runtime.hardware import Hardware, detect
from sparring.runtime.start import (
    _differences,
    end_token_ids,
    find_model,
    load_tokenizer,
    load_tokenizers,
    open_tokenizer,
    resolve,
    starting_models,
)
from tests.unit.runtime.makers import CPU, card


def test_offline_a_hub_id_without_a_copy_says_where_to_put_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # read from the variable at the import
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SparringError, match=r"^generator\.model nobody/such-model: ") as caught:
        load_tokenizers({"generator": "nobody/such-model"})
    line = str(caught.value)
    assert all(key in line for key in ("HF_HUB_OFFLINE is set", "HF_HOME")) and "\n" not in line


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_directory_without_a_model_says_what_is_expected(tmp_path, monkeypatch, offline: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises(SparringError, match=r"cannot be loaded .*give a directory in Hugging Face format"):
        load_tokenizers({"generator": str(tmp_path)})


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A copy of a toy model."""
    return Path(shutil.copytree(EXAMPLES / "toy/generator", tmp_path / "model"))


# ---------------------------------------------------------------------- a whole model's directory, spoiled
def no_tokenizer(model: Path) -> None:
    for file in (*model.glob("tokenizer*"), model / "chat_template.jinja"):
        file.unlink(missing_ok=True)


def cut_off(model: Path) -> None:
    os.truncate(model / "model.safetensors", (model / "model.safetensors").stat().st_size // 2)


def second_of_two_files_not_copied(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def without(name: str) -> Callable[[Path], None]:
    return lambda model: (model / name).unlink()


def of_config(config: str) -> Callable[[Path], object]:
    return lambda model: (model / "config.json").write_text(config)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_tokenizer, "tokenizer"),
        (without("tokenizer.json"), "tokenizer.json is missing"),
        (without("config.json"), "config.json"),
        (without("model.safetensors"), "safetensors"),
        (cut_off, "model.safetensors is damaged"),
        (
            second_of_two_files_not_copied,
            "model-00002-of-00002.safetensors, which model.safetensors.index.json names",
        ),
        (
            of_config('{"model_type": "t5", "architectures": ["T5EncoderModel"]}'),
            "t5 is no causal language model",
        ),
        (of_config('{"model_type": "nonesuch"}'), "nonesuch"),
    ],
)
@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_what_is_no_whole_model_is_refused_in_a_line(
    toy: Path, spoil: Callable[[Path], object], said: str, family: str
) -> None:
    config = json.loads((toy / "config.json").read_text())
    (toy / "config.json").write_text(json.dumps({**config, "model_type": family}))
    load_tokenizers({"generator": str(toy)})
    spoil(toy)
    with pytest.raises(SparringError) as caught:
        load_tokenizers({"generator": str(toy)})
    line = str(caught.value)
    assert line.startswith(f"generator.model {toy}: cannot be loaded (") and "\n" not in line
    assert said in line and "give a directory in Hugging Face format" in line


@pytest.mark.parametrize("answers", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch, capsys, answers: bool) -> None:
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    hub = HTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=hub.serve_forever, daemon=True).start()
    if not answers:
        hub.shutdown()
        hub.server_close()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # and not what it is set to
    start._ask_the_hub.cache_clear()
    assert find_model("owner/one", "k") == "owner/one" and find_model("owner/two", "k") == "owner/two"
    told = capsys.readouterr().out
    offline = (os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE)
    if answers:
        assert len(asked) == 1 and offline == ("0", False) and told == ""
        hub.shutdown()
        hub.server_close()
    else:
        assert offline == ("1", True) and told.count("does not answer") == 1


SIZES = [
    f"{file.stem}:{size}" if size else file.stem
    for file in sorted(RECIPES.glob("*.yaml"))
    for size in ("", *yaml.safe_load(file.read_text()).get("sizes", {}))
]


@pytest.mark.parametrize("recipe", SIZES)
def test_where_a_recipe_names_a_directory_of_ours_it_is_there(recipe: str, monkeypatch) -> None:
    monkeypatch.chdir(RECIPES.parent)
    config = load_run(["--config", recipe])[0].to_config()
    for role in config.policies:
        model = config.policy(role).model
        if model.startswith("sparring/"):  # others are the user's, or a hub's
            assert is_example(model) and Path(find_model(model, role)).is_dir()


def test_a_toy_model_that_lacks_a_stage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.games.prompts.MARKER_TOKENS", (*MARKER_TOKENS, "<s9>"))
    with pytest.raises(SparringError, match=r"lacks a stage .*: python -m lab\.examples"):
        load_tokenizer(str(EXAMPLES / "toy/generator"), "generator.model")


def test_what_a_resumed_run_changes_is_named_by_its_keys() -> None:
    saved, now = ({"tracking": {"name": name, "to": []}, "seed": 1} for name in "ab")
    assert _differences(saved, now) == ["tracking.name a -> b"]


def test_a_run_with_past_opponents_is_not_resumed_with_engines_that_cannot_take_them(tmp_path) -> None:
    config = start.fit(load_run(["--config", "debug"])[0].to_config(), detect())
    (tmp_path / "run" / "opponents").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    resumed = ["--resume", "--output-dir", str(tmp_path), "--run-name", "run"]
    other = [*resumed, "--generator.engine.dtype", "bfloat16"]
    resolve(*load_run(other))
    (tmp_path / "run" / "opponents" / "discriminator-000001.npz").touch()
    resolve(*load_run(other))  # the discriminator's engine is as it was
    (tmp_path / "run" / "opponents" / "generator-000001.npz").touch()
    with pytest.raises(SparringError, match=r"^generator\.engine\.dtype .* -> bfloat16: .*--resume-from"):
        resolve(*load_run(other))
    resolve(*load_run([*resumed, "--generator.engine.kind", "transformers"]))


def test_a_run_does_not_start_from_an_adapters_directory(tmp_path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/name"}')
    config = load_run(["--config", "debug", "--generator-model", str(tmp_path)])[0].to_config()
    with pytest.raises(SparringError, match=r"generator\.model .*: holds an adapter for owner/name"):
        starting_models(config)


def test_a_checkpoint_of_one_policy_does_not_begin_a_game_of_two(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(start, "read_checkpoint", lambda checkpoint: {"versions": {"generator": 3}})
    given = ["--config", "debug", "--output-dir", str(tmp_path), "--resume-from", str(tmp_path)]
    with pytest.raises(SparringError, match="multistage needs a discriminator too"):
        resolve(*load_run(given))


def test_a_fresh_run_takes_weights_only_and_is_so_when_it_is_resumed(tmp_path: Path, monkeypatch) -> None:
    checkpoint = tmp_path / "other" / "checkpoints" / "step_000003"
    given = ["--config", "debug", "--output-dir", str(tmp_path), "--run-name", "new"]
    versions = {"generator": 3, "discriminator": 2}
    learner = load_run(given)[0].generator.learner.model_dump(mode="json")
    config = {role: {"learner": learner} for role in versions}
    state = {"step": 3, "versions": versions, "config": config}
    monkeypatch.setattr(start, "read_checkpoint", lambda place: state)
    for fresh, found, version in (([], state, 3), (["--fresh"], None, 0)):
        _, began = resolve(*load_run([*given, "--resume-from", str(checkpoint), *fresh]))
        assert (began.checkpoint, began.state, began.versions["generator"]) == (checkpoint, found, version)
    run = tmp_path / "new"
    run.mkdir()
    (run / "metrics.jsonl").touch()
    (run / "config.yaml").write_text(yaml.safe_dump(load_run(given)[0].to_config().model_dump(mode="json")))
    (run / start.STARTED_FROM).write_text(f"{checkpoint}\n{start.FRESH}")
    _, again = resolve(*load_run(["--resume", *given[2:]]))
    assert (again.checkpoint, again.state) == (checkpoint, None)


@pytest.mark.parametrize(
    ("machine", "size"), [(CPU, "1.5B"), (card(16.0), "1.5B"), (card(80.0), "3B")], ids=["cpu", "16", "80"]
)
def test_the_model_auto_is_the_one_that_the_hardware_takes(
    tmp_path: Path, monkeypatch, machine: Hardware, size: str
) -> None:
    monkeypatch.setattr(start, "detect", lambda: machine)
    given = ["--config", "chat", "--local", "--generator-model", "auto", "--output-dir", str(tmp_path)]
    config, began = resolve(*load_run(given))
    expected = f"Qwen/Qwen2.5-Coder-{size}-Instruct"
    assert config.generator.model == began.models["generator"] == expected
    own = load_run(given)[0].discriminator.model
    assert config.discriminator.model == began.models["discriminator"] == own


def test_an_empty_special_token_is_none(toy: Path) -> None:
    file = toy / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"unk_token": ""}))
    tokenizer = open_tokenizer(str(toy))
    assert tokenizer.unk_token is None
    assert tokenizer.convert_tokens_to_ids("no such token") is None


@pytest.mark.parametrize(("given", "found"), [([7, 8], (7, 8)), (7, (7,)), (None, ())])
def test_the_end_tokens_of_a_model_are_those_of_its_generation_config(tmp_path: Path, given, found) -> None:
    assert end_token_ids(str(tmp_path)) == ()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    assert end_token_ids(str(tmp_path)) == found
