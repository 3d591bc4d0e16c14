import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.core.errors import SparringError
from sparring.core.project_files import EXAMPLES
from sparring.games.prompts import served_template
from sparring.runtime.model import open_model
from sparring.serving.models import at_once, open_models, with_context

GIB = 1 << 30


def test_as_many_are_loaded_as_memory_has_room_for() -> None:
    needs = {"a": 2 * GIB, "b": 3 * GIB, "c": 1 * GIB}
    assert at_once(needs, 2, 10 * GIB) == 2
    assert at_once(needs, 2, 4 * GIB) == 1  # the two largest may be asked for
    assert at_once(needs, 9, 10 * GIB) == 3


def test_a_model_that_does_not_fit_is_refused_with_what_helps() -> None:
    words = r"--model big: takes about 3.0 GiB .* 2.0 GiB are free: .*--dtype bfloat16"
    with pytest.raises(SparringError, match=words):
        at_once({"small": GIB, "big": 3 * GIB}, 2, 2 * GIB)


def test_a_model_is_served_in_the_context_that_it_and_the_cache_can_have() -> None:
    """vLLM refuses a cache that cannot hold one sequence, at each request anew."""
    models = {"g": replace(open_model(str(EXAMPLES / "toy/generator"), "--model"), context=100_000)}

    def context(wanted: int | None, kv_cache_mb: int | None) -> int | None:
        return with_context(models, wanted, "float32", kv_cache_mb)["g"].context

    token = context(None, 16) or 0
    assert token % 128 == 0 and 0 < token < 100_000
    assert context(None, 16 * 64) == context(None, None) == 100_000
    assert context(4000, 16) == 4000
    with pytest.raises(SparringError, match=f"99999: g can have {token} tokens by --kv-cache-mb 16"):
        context(99_999, 16)
    with pytest.raises(SparringError, match="g can have 100000 tokens by its context"):
        context(100_001, None)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["generator"], "as NAME=RUN or NAME=DIRECTORY"),
        (["=there"], "as NAME=RUN or NAME=DIRECTORY"),
        ([f"a={EXAMPLES}/toy/generator", f"a={EXAMPLES}/toy/generator"], "the name of two models"),
    ],
)
def test_what_names_no_model_is_refused(named: list[str], said: str) -> None:
    with pytest.raises(SparringError, match=said):
        open_models(named, "--model")


def test_a_model_that_vllm_does_not_load_is_refused(tmp_path: Path) -> None:
    model = Path(shutil.copytree(EXAMPLES / "toy/generator", tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "architectures": ["OpenAIGPTLMHeadModel"]}))
    with pytest.raises(SparringError, match=r"--model a=.*OpenAIGPTLMHeadModel"):
        open_models([f"a={model}"], "--model")


def checkpoint(run: Path, kind: str) -> Path:
    """With the shipped models in it."""
    best = run / "checkpoints" / "step_000001"
    best.mkdir(parents=True)
    for role in ("generator", "discriminator"):
        shutil.copytree(EXAMPLES / "toy" / role, best / role)
    (run / "checkpoints" / "best").symlink_to("step_000001")
    (run / "metrics.jsonl").touch()
    (run / "config.yaml").write_text(f"game:\n  kind: {kind}\ngenerator:\n  max_tokens: 77\n")
    return best


def test_a_run_is_its_best_generator_and_a_checkpoint_its_generator(tmp_path: Path) -> None:
    run = tmp_path / "run"
    best = checkpoint(run, "multistage")
    found = open_models([f"run={run}", f"here={best}", f"dis={best / 'discriminator'}"], "--model")
    assert [Path(model.path).name for model in found.values()] == ["generator", "generator", "discriminator"]


def test_a_checkpoint_of_a_game_without_programs_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "run", "kuhn")
    with pytest.raises(SparringError, match=r"--model a=.*run: a checkpoint of game kuhn"):
        open_models([f"a={tmp_path / 'run'}"], "--model")


def test_a_message_stands_between_the_marks_that_the_model_was_trained_on() -> None:
    said = "{{ messages[-1]['content'] }}"
    for role, expected in (("generator", f"<p>{said}<s1>"), ("discriminator", f"<t>{said}<w>")):
        model = open_model(str(EXAMPLES / "toy" / role), "--model")
        assert served_template(model.tokenizer, role, model.knows_stages) == expected
        assert served_template(model.tokenizer, role, staged=False) == f"<p>{said}<w>"
