"""LoRA, frozen layers, autocast."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import LoraLayer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from learners import tuning
from learners.adapters import merged_folder
from learners.attention import PACKED
from learners.health import Health
from learners.learner import Learner, NotFinite
from learners.models import load_model
from learners.settings import LoraSettings
from learners.state import load_learner, save_learner
from learners.train_spec import build_learners
from learners.tuning import decoder_layers, freeze_all_but_last
from tests.learning import (
    batch,
    largest_difference,
    logprobs,
    plain_logprobs,
    random_samples,
    spec_of,
    tiny_model,
    weights,
)
from tests.unit.learners.test_models import SHAPE, tiny

LORA = {"lora": {"rank": 4, "alpha": 8}}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
TOKENS = [3, 9, 4, 7]


def saved_and_merged(learner: Learner, folder: Path) -> PreTrainedModel:
    save_learner(learner, folder / "saved")
    with merged_folder(folder / "saved", "float32") as merged:
        return AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)


# ---------------------------------------------------------------------- LoRA
def test_an_adapter_starts_as_nothing_and_leaves_the_backbone_alone(
    make_learner, random_batch, model_path, tmp_path
):
    learner, plain = make_learner(1e-2, **LORA), load_model(model_path)
    start = dict(plain.named_parameters())
    assert largest_difference(weights(learner), {n: p.detach() for n, p in start.items()}) == 0
    base = {n: p.clone() for n, p in learner.policy.model.named_parameters() if ".lora_" not in n}
    metrics = learner.step(random_batch(learner))
    assert metrics["kl_to_initial"] == pytest.approx(0, abs=1e-6), "measured before it learned"
    after = dict(learner.policy.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in base.items())
    changed = weights(learner)
    moved = [n for n, p in start.items() if not torch.equal(changed[n], p)]
    assert moved and all("proj" in name for name in moved)
    assert learner.step(random_batch(learner, 2))["kl_to_initial"] > 1e-6


@pytest.mark.parametrize("layers", [(None, None), (["q_proj"], ["v_proj"])], ids=["the same", "others"])
def test_two_adapters_on_one_backbone_learn_as_two_models_would(model_path, random_batch, layers):
    """What a policy has no adapter on is published as it is."""
    specs = {
        name: spec_of(model_path, lora={"rank": 4, "alpha": 8, "target_modules": own})
        for name, own in zip(("generator", "discriminator"), layers, strict=True)
    }
    together = build_learners(specs)
    assert together["generator"].policy.model is together["discriminator"].policy.model
    apart = {name: one.build(name) for name, one in specs.items()}
    for step in (1, 2):
        for offset, (name, learner) in enumerate(together.items()):
            played = random_batch(apart[name], step, count=8 + offset)
            assert learner.step(played) == apart[name].step(played)
    for name, learner in together.items():
        assert largest_difference(weights(learner), weights(apart[name])) == 0
        assert learner.export().digest == apart[name].export().digest
    assert largest_difference(*map(weights, together.values())) > 1e-3


@pytest.mark.parametrize(("lora", "networks"), [(None, 2), ({"rank": 4}, 1)])
def test_the_limit_of_logits_is_all_networks(make_learner, lora, networks):
    found = make_learner(lora=lora, logits_mb=3).policy.networks()
    assert [network.logits_at_once for network in found] == [3 << 18] * networks


def test_a_resumed_adapter_continues_to_the_bit(model_path, random_batch, tmp_path):
    specs = {name: spec_of(model_path, **LORA) for name in ("generator", "discriminator")}
    whole, half = build_learners(specs), build_learners(specs)
    played = [random_batch(whole["generator"], step) for step in (1, 2)]
    for learners in (whole, half):
        learners["discriminator"].step(played[0])
    save_learner(half["discriminator"], tmp_path)
    resumed = build_learners(specs)["discriminator"]
    load_learner(resumed, tmp_path)
    assert resumed.step(played[1]) == whole["discriminator"].step(played[1])
    assert largest_difference(weights(resumed), weights(whole["discriminator"])) == 0


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_read_what_the_backbone_reads_without_a_cast_that_autocast_undoes(
    make_learner, random_batch, checkpointing
):
    """In the forward pass, and in the one that is made again for the gradient."""
    lora = {**LORA, "precision": "bf16", "gradient_checkpointing": checkpointing}
    learner, casting = make_learner(1e-3, **lora), make_learner(1e-3, **lora)
    read: set[torch.dtype] = set()

    def note(module, inputs):
        read.add(inputs[0].dtype)

    def cast(layer, inputs):
        layer.cast_input_dtype_enabled = True

    for layer in (m for m in learner.policy.model.modules() if isinstance(m, LoraLayer)):
        layer.lora_A["policy"].register_forward_pre_hook(note)
    for layer in (m for m in casting.policy.model.modules() if isinstance(m, LoraLayer)):
        layer.register_forward_pre_hook(cast)
    played = [random_batch(learner, step) for step in (1, 2)]
    read.clear()
    assert [learner.step(b) for b in played] == [casting.step(b) for b in played]
    assert read == {torch.bfloat16}
    assert largest_difference(weights(learner), weights(casting)) == 0
    learner.export()
    assert read == {torch.bfloat16, torch.float32}, "without autocast they are cast: nobody else does it"


# ---------------------------------------------------------------------- frozen layers
def test_only_the_last_layers_learn(make_learner, random_batch):
    """R3, property 8."""
    learner = make_learner(1e-2, trainable_layers=1)
    before = weights(learner)
    learner.step(random_batch(learner))
    after = weights(learner)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if name.startswith(("model.layers.1.", "model.norm"))} != set()


def test_more_layers_than_there_are_is_an_error(make_learner):
    with pytest.raises(ValueError, match="trainable_layers is 3, but the model has 2"):
        make_learner(trainable_layers=3)


def test_the_last_layers_of_a_model_that_sees_images_are_its_texts():
    text = SHAPE | {"model_type": "gemma3_text"}
    vision = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=vision)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED)
    assert decoder_layers(model) is model.model.language_model.layers
    freeze_all_but_last(model, 1)
    own = tuple(f"model.language_model.{part}." for part in ("layers.1", "norm"))
    assert all(p.requires_grad == name.startswith(own) for name, p in model.named_parameters())


# ---------------------------------------------------------------------- precision
@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("fp16", 0.01)])
def test_autocast_changes_rounding_and_nothing_else(make_learner, random_batch, precision, tolerance):
    exact, rounded = make_learner(1e-3), make_learner(1e-3, precision=precision)
    played = random_batch(exact)
    expected, found = exact.step(played), rounded.step(played)
    assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=tolerance)
    assert found["gradient_norm"] != expected["gradient_norm"]
    assert found["skipped_updates"] == 0
    assert all(p.dtype == torch.float32 for p in rounded.policy.model.parameters())
    assert 0 < largest_difference(weights(exact), weights(rounded)) < 2.1e-3  # Adam's steps are 1e-3


def test_the_critic_is_unscaled_too(make_learner, random_batch):
    norms = []
    for precision in ("fp32", "fp16"):
        learner = make_learner(1e-3, estimator={"kind": "gae", "critic": "model"}, precision=precision)
        learner.step(random_batch(learner))
        gradients = [p.grad for p in learner.critic.parameters() if p.grad is not None]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())
    assert norms[1] == pytest.approx(norms[0], rel=0.02)


def test_fp16_goes_on_after_a_broken_batch_and_gives_up_on_many(make_learner, sample_of):
    learner = make_learner(1e-3, precision="fp16")
    good = sample_of(learner, [3, 4], [5, 6])
    bad = replace(good, logprobs=(0.0, 0.0, math.nan, math.nan))
    learner.scaler.update(1024.0)  # as if it had settled: at its first one, 65536, a good batch may overflow
    assert learner.step(batch(bad))["skipped_updates"] == 1
    assert learner.step(batch(good, step=2))["skipped_updates"] == 0
    with pytest.raises(NotFinite):
        for step in range(3, 100):
            learner.step(batch(bad, step=step))


def test_an_overflow_of_fp16_is_no_fault(make_learner, sample_of):
    learner = make_learner(1e-3, precision="fp16")
    good = sample_of(learner, [3, 4], [5, 6])
    for step, scale, overflows in ((1, 2.0**40, 1), (2, 1024.0, 0)):
        learner.scaler.update(scale)
        metrics = learner.step(batch(good, step=step))
        assert (metrics["overflows"], metrics["skipped_updates"]) == (overflows, 0)
        assert learner.scaler.get_scale() == scale / 2**overflows
        assert learner.health == Health(proven_version=step - 1)


# ---------------------------------------------------------------------- few bits
def test_a_missing_bitsandbytes_is_named(make_learner, monkeypatch):
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install bitsandbytes"):
        make_learner(lora={"rank": 4, "quantize": "4bit"})


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_four_bits_are_multiplied_in_the_precision_of_the_learner(precision, dtype):
    """A T4 emulates bfloat16."""
    options = tuning.quantisation(LoraSettings(quantize="4bit"), precision)
    assert options["quantization_config"].bnb_4bit_compute_dtype == dtype


@pytest.mark.parametrize("modules", [None, ["q_proj", "v_proj"]])
@pytest.mark.parametrize(("bits", "share"), [("8bit", 0.6), ("4bit", 0.4)])
def test_a_quantised_backbone_learns_and_is_published_whole(make_learner, tmp_path, bits, share, modules):
    """R3, property 7: it takes less memory. bitsandbytes (requirements/dev.lock) does it on a CPU, too."""
    path = tmp_path / "model"
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(path)
    learner = make_learner(path=path, lora={"rank": 4, "quantize": bits, "target_modules": modules})
    adapter = 4 * sum(p.numel() for p in learner.policy.trainable().values())
    whole_footprint = load_model(path).get_memory_footprint()
    assert learner.policy.model.get_memory_footprint() < share * whole_footprint + adapter
    before = weights(learner)
    assert {tensor.dtype for tensor in before.values()} == {torch.float32}
    learner.step(batch(*random_samples(1, 8)))
    assert largest_difference(before, weights(learner)) > 1e-3
    whole = saved_and_merged(learner, tmp_path)
    assert largest_difference(dict(whole.named_parameters()), weights(learner)) < 1e-3, "on its few bits"
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    ours, theirs = logprobs(learner, TOKENS), plain_logprobs(whole, TOKENS)
    assert torch.allclose(ours, theirs, atol=0.1), "but for the rounding of activations"


@pytest.mark.parametrize("modules", [["lm_head"], ["no_such_layer"]])
def test_layers_that_cannot_have_an_adapter_are_named(make_learner, modules):
    with pytest.raises(ValueError, match=r"lora\.target_modules"):
        make_learner(lora={"rank": 4, "target_modules": modules})


@pytest.mark.parametrize(
    ("kind", "modules", "said"),
    [
        ("qwen2", ["q_proj", "embed_tokens"], r"model\.embed_tokens \(Embedding\)"),
        ("qwen3_moe", None, r"model\.layers\.0\.mlp\.experts \(Qwen3MoeExperts\)"),
    ],
)
def test_layers_whose_adapter_would_get_lost_are_refused(make_learner, tmp_path, kind, modules, said):
    """peft adapts them, but otherwise than it is merged and saved here."""
    tiny(kind, **MIXTURE).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"lora\.target_modules: {said} cannot have an adapter"):
        make_learner(path=tmp_path, lora={"rank": 4, "target_modules": modules})


@pytest.mark.parametrize("modules", [["q_proj"], ["gate"]])
def test_what_is_no_expert_of_a_mixture_may_have_an_adapter(make_learner, tmp_path, modules):
    """gate: peft adapts it as a parameter; it is merged like a layer."""
    tiny("qwen3_moe", **MIXTURE).save_pretrained(tmp_path / "model")
    learner = make_learner(path=tmp_path / "model", lora={"rank": 4, "target_modules": modules})
    before = weights(learner)
    learner.step(batch(*random_samples(1, 8)))
    after = weights(learner)
    assert all(modules[0] in name for name in before if not torch.equal(before[name], after[name]))
    whole = saved_and_merged(learner, tmp_path)
    assert torch.allclose(logprobs(learner, TOKENS), plain_logprobs(whole, TOKENS), atol=1e-5)
