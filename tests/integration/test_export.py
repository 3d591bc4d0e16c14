"""What an exported policy is to transformers, peft and vLLM: the checkpoint itself."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from configs.load import load_run
from learners.checkpoints import CheckpointStore
from learners.learner import Learner
from learners.state import save_learner
from sparring.cli.export import main
from sparring.core.interfaces import Message
from sparring.core.project_files import EXAMPLES
from sparring.games.prompts import PROBLEM, STAGE_MARKERS, format_for
from sparring.runtime.model import open_model

ROOT = Path(__file__).resolve().parents[2]
LORA = ("--generator.learner.lora.rank", "4", "--generator.learner.lora.alpha", "8")
MESSAGE = Message(brief="Return x plus 3.", full="", marks=(PROBLEM, STAGE_MARKERS[0]))
GREEDY = """
import json, sys
from vllm import LLM, SamplingParams

model = LLM(sys.argv[1], dtype="float32", max_model_len=256, enforce_eager=True, kv_cache_memory_bytes=64 << 20)
(answer,) = model.chat([{"role": "user", "content": sys.argv[2]}], SamplingParams(temperature=0, max_tokens=48), use_tqdm=False)
print(json.dumps({"prompt": answer.prompt_token_ids, "answer": list(answer.outputs[0].token_ids)}))
"""


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """run_of(*arguments): a run with one checkpoint of a generator that has moved away from its initial model."""
    made: dict[tuple[str, ...], Path] = {}

    def make(*arguments: str) -> Path:
        if arguments in made:
            return made[arguments]
        run = made[arguments] = tmp_path_factory.mktemp("runs") / "mine"
        config = load_run(["--config", "debug", *arguments])[0].to_config()
        base = EXAMPLES / "toy/generator"
        learner = Learner(config.generator.learner, 1e-3, base, base, seed=3)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for parameter in learner.policy.trainable().values():
                parameter += 0.02 * torch.randn_like(parameter)
        save_learner(learner, run / "now")
        state = {
            "step": 1,
            "time": "2026-01-01",
            "row": {"stage": 1, "held_out": {"generator_pass_rate": 0.5}},
            "versions": {"generator": 1},
            "parts": {"recorder": {"before": {"generator_pass_rate": 0.25}}},
            "config": config.model_dump(mode="json"),
            "versions_of_packages": {"git": "abc123"},
        }
        store = CheckpointStore(run / "checkpoints", 2)
        store.mark_best(
            store.save(
                1, {"generator": run / "now"}, {"generator": AutoTokenizer.from_pretrained(base)}, state
            )
        )
        (run / "metrics.jsonl").write_text("")
        return run

    return make


def export(run: Path, to: Path, *options: str) -> Path:
    main([str(run), "--policy", "generator", "--to", str(to), *options])
    return to


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[7, 40, 41, 42, 9, 60]])).logits.float()


def whole(checkpoint: Path) -> Any:
    """By peft's own merging, where it holds an adapter."""
    if not (checkpoint / "adapter_config.json").is_file():
        return AutoModelForCausalLM.from_pretrained(checkpoint)
    adapted: Any = AutoPeftModelForCausalLM.from_pretrained(checkpoint)
    return adapted.merge_and_unload()


@pytest.mark.parametrize("tuning", [(), LORA], ids=["full", "lora"])
def test_whole_weights_are_those_of_the_checkpoint(
    tuning: tuple[str, ...], run_of: Any, tmp_path: Path
) -> None:
    run = run_of(*tuning)
    folder = export(run, tmp_path / "out")
    checkpoint = whole(run / "checkpoints" / "best" / "generator")
    exported = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(logits(exported), logits(checkpoint))
    assert not torch.equal(
        logits(exported), logits(AutoModelForCausalLM.from_pretrained(EXAMPLES / "toy/generator"))
    )
    assert not (folder / "learner_state").exists()


def test_an_adapter_on_its_base_is_the_checkpoint(run_of: Any, tmp_path: Path) -> None:
    folder = export(run_of(*LORA), tmp_path / "out", "--adapter")
    checkpoint = whole(run_of(*LORA) / "checkpoints" / "best" / "generator")
    adapted: Any = AutoPeftModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(logits(adapted), logits(checkpoint), atol=1e-4)
    assert not torch.allclose(logits(adapted.unload()), logits(checkpoint), atol=1e-2)
    assert not (folder / "model.safetensors").exists()


def test_a_chat_reaches_the_model_as_the_game_spoke_to_it(run_of: Any, tmp_path: Path) -> None:
    folder = export(run_of(), tmp_path / "out", "--dtype", "bf16")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    said = [{"role": "user", "content": MESSAGE.brief}]
    tokens = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert tokens == format_for(tokenizer).say((), MESSAGE)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.generation_config.eos_token_id == [tokenizer.convert_tokens_to_ids("<end>")]


def test_the_card_has_figures_data_limits_and_metadata(run_of: Any, tmp_path: Path) -> None:
    _, metadata, text = (export(run_of(), tmp_path / "out") / "README.md").read_text().split("---\n", 2)
    data = yaml.safe_load(metadata)
    assert data["library_name"] == "transformers" and "base_model" not in data
    (result,) = data["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "generator_pass_rate", "value": 0.5}]
    assert "| generator pass rate | 0.250 | 0.500 |" in text and "git abc123" in text
    assert "Problems: sparring/examples/toy/train.json (format problems). Held out: " in text
    exported = open_model(str(tmp_path / "out"), "--model")
    assert "the above 6 numbers" in exported.note() and exported.note() in text
    assert exported.max_tokens == 64
    assert all(f"## {part}" in text for part in ("Data", "Training", "Use", "Limits"))


def test_a_link_to_an_empty_directory_is_filled(run_of: Any, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    export(run_of(), tmp_path / "out")
    assert (tmp_path / "out").is_symlink() and (tmp_path / "disk" / "README.md").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--checkpoint", "step_9"], r"step_9: no such checkpoint; there are: best, step_000001"),
        (["--policy", "discriminator"], r"--policy discriminator: .* has generator"),
        (["--adapter"], r"--adapter: .* was tuned without one"),
        (["--push", "nobody"], r"--push nobody: expected OWNER/NAME"),
        (["--push", "me/mine"], r"--push: nobody is logged in: set HF_TOKEN"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_nothing(
    options: list[str],
    words: str,
    run_of: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.hf_api.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    with pytest.raises(SystemExit) as ended:
        export(run_of(), tmp_path / "out", *options)
    assert ended.value.code == 2
    assert re.search(words, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_does_not_answer_is_said(run_of: Any, tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        done = subprocess.run(
            [sys.executable, "-m", "sparring", "export", str(run_of()), "--policy", "generator", "--to", str(tmp_path / "out"),
             "--push", "me/mine"],
            cwd=ROOT,
            env={**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}", "HF_TOKEN": "hf_x",
                 "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "--push: the hub says: " in done.stderr


def test_a_directory_with_something_in_it_is_refused(
    run_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("dear to me")
    with pytest.raises(SystemExit):
        export(run_of(), tmp_path)
    assert "is not an empty directory" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["game"].update(of_old=1), "game.of_old: unknown here"),
        (lambda c: c["game"].update(kind="of_old"), "game: Input tag 'of_old'"),
        (lambda c: c.pop("problems"), "its checkpoints have no key problems"),
    ],
)
def test_a_run_of_another_version_is_said_with_what_to_do(
    change: Callable[[Any], Any], said: str, run_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(run_of(*LORA), tmp_path / "run", symlinks=True)
    checkpoint = (run / "checkpoints" / "best").resolve()
    state = json.loads((checkpoint / "state.json").read_text())
    change(state["config"])
    (checkpoint / "state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    if "state.json" in manifest:
        del manifest["state.json"]
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SystemExit) as ended:
        export(run, tmp_path / "out", "--adapter")
    assert ended.value.code == 2
    assert re.search(
        f"run: {said}.*: this run is of another version .*use that version", capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_an_export_that_fails_half_way_leaves_nothing(
    run_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "tokenizer.json")

    monkeypatch.setattr("sparring.cli.export.write_tokenizer", full)
    with pytest.raises(SystemExit):
        export(run_of(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_it_is_pushed_as_it_lies_there(run_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Hub:
        def whoami(self) -> None:
            asked.append("whoami")

        def create_repo(self, name: str, exist_ok: bool) -> None:
            asked.append((name, exist_ok))

        def upload_folder(self, repo_id: str, folder_path: str) -> None:
            asked.append((repo_id, sorted(p.name for p in Path(folder_path).iterdir())))

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    folder = export(run_of(), tmp_path / "out", "--push", "me/mine")
    there = sorted(p.name for p in folder.iterdir())
    assert asked == ["whoami", ("me/mine", True), ("me/mine", there)] and "model.safetensors" in there


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_gives_the_checkpoints_own_greedy_answer(run_of: Any, tmp_path: Path) -> None:
    run = run_of(*LORA)
    folder = export(run, tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-c", GREEDY, str(folder), MESSAGE.brief],
        cwd=tmp_path,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
             "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    source = run / "checkpoints" / "best" / "generator"
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    prompt = format_for(tokenizer).say((), MESSAGE)
    assert said["prompt"] == prompt
    model: Any = AutoModelForCausalLM.from_pretrained(source)
    greedy = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=48, eos_token_id=1)
    assert said["answer"] == greedy[0, len(prompt) :].tolist()
