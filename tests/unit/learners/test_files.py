"""What a model's files hold, beside the weights that are trained."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from actors.settings import TransformersEngineSettings
from actors.transformers_policy import TransformersPolicy
from learners.adapters import merged_folder
from learners.files import fill, open_empty, write_model
from learners.models import buffers_of, load_model
from learners.parallel import WorkerGroup, shard
from learners.recovery import go_back
from learners.state import save_learner
from learners.tuning import Scorer, decoder_layers
from tests.learning import Tokenizer, batch, random_samples, save_tiny_model
from tests.unit.learners.test_models import tiny

SCALARS = {"model.layers.0.layer_scalar", "model.layers.1.layer_scalar"}


@pytest.mark.parametrize(
    "flags", [{"temperature": 0.9}, {"top_p": 0.9, "do_sample": False}, {"pad_token_id": -1}]
)
def test_a_generation_config_is_written_as_it_came(tmp_path: Path, flags: dict[str, float]) -> None:
    """transformers loads them with a warning, and refuses to save them."""
    source = save_tiny_model(tmp_path / "model")
    (source / "generation_config.json").write_text(json.dumps(flags))
    model = load_model(source)
    write_model(model, model.named_parameters(), tmp_path)
    again = GenerationConfig.from_pretrained(tmp_path)
    assert {name: getattr(again, name) for name in flags} == flags


# ---------------------------------------------------------------------- persistent buffers
@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """A Gemma 4, whose layers are scaled by buffers."""
    sizes = {"global_head_dim": 8, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    model = tiny("gemma4_text", **sizes, sliding_window=4)
    for n, buffer in enumerate(buffers_of(model).values()):
        buffer.fill_(0.3 + n)
    model.save_pretrained(tmp_path / "scaled")
    Tokenizer().save_pretrained(tmp_path / "scaled")
    return tmp_path / "scaled"


def same_buffers(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    ours, theirs = buffers_of(one), buffers_of(other)
    assert ours.keys() == theirs.keys() == SCALARS
    return all(torch.equal(ours[name], theirs[name]) for name in SCALARS)


@pytest.mark.asyncio
@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["full", "lora"])
async def test_buffers_are_saved_and_published(
    make_learner, scaled: Path, tmp_path: Path, lora: dict[str, int] | None
) -> None:
    learner = make_learner(path=scaled, lora=lora)
    learner.step(batch(*random_samples(1, 4)))
    save_learner(learner, tmp_path / "saved")
    Tokenizer().save_pretrained(tmp_path / "saved")
    place = nullcontext(tmp_path / "saved") if lora is None else merged_folder(tmp_path / "saved", "bfloat16")
    with place as folder:
        assert same_buffers(load_model(folder), load_model(scaled))
    update = learner.export()
    assert update.tensors.keys() >= SCALARS
    engine = TransformersPolicy(str(scaled), TransformersEngineSettings(max_model_len=64))
    assert (await engine.load_weights(update)).probe_difference < 1e-4


def test_going_back_takes_the_buffers_along(make_learner, scaled: Path, tmp_path: Path) -> None:
    learner = make_learner(path=scaled)
    save_learner(learner, tmp_path / "saved")
    for buffer in buffers_of(learner.policy.model).values():
        buffer.fill_(torch.nan)
    go_back(learner, tmp_path / "saved")
    assert same_buffers(learner.policy.model, load_model(scaled))


def test_a_model_that_is_read_in_parts_has_its_buffers(scaled: Path, alone: None) -> None:
    model = open_empty(scaled)
    assert all(p.is_meta for p in model.parameters())
    scorer = Scorer(model)
    shard(scorer, list(decoder_layers(model)))
    fill(scorer, model, WorkerGroup())
    assert same_buffers(model, load_model(scaled))
