"""What a GPU has to hold, by arithmetic: against autograd's own count, and by model and card."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen2Config

from configs.load import load_run
from configs.schema import Config
from learners.attention import PACKED
from learners.learner import Learner
from learners.models import score_tokens
from learners.packing import row_of
from learners.settings import LearnerSettings
from learners.tuning import Backbone, LoraTuning
from sparring.core.weights import PART_BYTES
from sparring.runtime import host_plan, memory_plan, placement
from sparring.runtime.hardware import Hardware, choices, fits, settled, ways_out
from sparring.runtime.memory_plan import (
    GB,
    Demand,
    activations,
    demands,
    learner_of,
    learner_parts,
    over,
    shape_of,
)
from tests.learning import save_tiny_model
from tests.unit.runtime.makers import A100, CPU, H100, L4, QWEN, T4, both, card

PAGE = (Path(__file__).parents[3] / "docs" / "hardware.md").read_text()
LORA: dict[str, Any] = {"learner": {"lora": {"rank": 16}}}
FSDP: dict[str, Any] = {
    "learner": {"estimator": {"kind": "grpo"}, "workers": 7, "sharding": "fsdp", "kl": {"kind": "none"}},
    "engine": {"kind": "vllm"},
}  # fmt: skip


def fitted(config: Config, hardware: Hardware, size: str) -> Config:
    return settled(config, choices(config, hardware, lambda model: QWEN[size]))


def held(config: Config, size: str) -> list[Demand]:
    return demands(config, dict.fromkeys(config.policies, QWEN[size]))


def of_one(policy: dict[str, Any]) -> Config:
    """A config whose only policy is the generator."""
    return Config.model_validate({"game": {"kind": "unit_tests"}, "generator": policy, "device": "cuda"})


# ---------------------------------------------------------------------- against autograd
SMALL: list[tuple[type[PretrainedConfig], dict[str, int]]] = [
    (Qwen2Config, {"hidden_size": 128, "intermediate_size": 448, "num_attention_heads": 4, "num_key_value_heads": 2}),
    (LlamaConfig, {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4}),
]  # fmt: skip


def left_for_the_gradient(model: PreTrainedModel, tokens: int, half: bool) -> int:
    """Bytes that autograd keeps of a forward pass, parameters apart."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    row = row_of([[1 + n, *range(2, 33)] for n in range(tokens // 32)])  # without a common beginning
    pick = torch.zeros(tokens, dtype=torch.bool)
    pick[1] = True
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=half),
    ):
        score_tokens(model, row, pick, 1.0)
    return sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in own)


@pytest.mark.parametrize("half", [True, False], ids=["bf16", "fp32"])
@pytest.mark.parametrize(("kind", "sizes"), SMALL, ids=["Qwen2", "Llama"])
def test_activations_are_those_that_autograd_counts(
    kind: type[PretrainedConfig], sizes: dict[str, int], half: bool, tmp_path
) -> None:
    configs = [kind(**sizes, num_hidden_layers=layers, vocab_size=64) for layers in (2, 3)]
    configs[0].save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    assert shape is not None

    def counted(again: bool) -> float:
        models = []
        for config in configs:
            model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED, dtype=torch.float32)
            if again:
                model.gradient_checkpointing_enable()
            models.append(model.train())
        return of_a_token_in_a_layer(*models, half=half)

    assert activations(shape, half) == pytest.approx(counted(again=False), rel=0.05)
    assert counted(again=True) == 4 * shape.hidden, "with checkpointing, a layer's input"


def of_a_token_in_a_layer(two: PreTrainedModel, three: PreTrainedModel, half: bool) -> float:
    """What a layer and 64 tokens more leave."""
    of = {n: [left_for_the_gradient(model, n, half) for model in (two, three)] for n in (64, 128)}
    return ((of[128][1] - of[128][0]) - (of[64][1] - of[64][0])) / 64


@pytest.mark.parametrize(("kind", "sizes"), SMALL, ids=["Qwen2", "Llama"])
def test_a_backbone_in_bf16_leaves_less(
    kind: type[PretrainedConfig], sizes: dict[str, int], tmp_path
) -> None:
    def counted(again: bool) -> float:
        lora = {"lora": {"rank": 4}, "precision": "bf16", "gradient_checkpointing": again}
        settings, models = LearnerSettings.model_validate(lora), []
        for place in (tmp_path / "2", tmp_path / "3"):
            backbone = Backbone(settings, place, torch.device("cpu"))
            LoraTuning(settings, backbone, "policy", 0)
            models.append(backbone.model)
        return of_a_token_in_a_layer(*models, half=True)

    for layers in (2, 3):
        config = kind(**sizes, num_hidden_layers=layers, vocab_size=64)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / str(layers))
    shape = shape_of(str(tmp_path / "2"))
    assert shape is not None
    assert activations(shape, True, backbone_in_half=True) == pytest.approx(counted(again=False), rel=0.05)
    assert counted(again=True) == 2 * shape.hidden


def test_shapes_are_read_from_a_config_alone(tmp_path) -> None:
    Qwen2Config(
        hidden_size=896, num_hidden_layers=24, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=151_936, tie_word_embeddings=True,
    ).save_pretrained(tmp_path)  # fmt: skip
    assert shape_of(str(tmp_path)) == QWEN["0.5B"]
    assert shape_of(str(tmp_path / "nothing")) is None


# ---------------------------------------------------------------------- against a learner
@pytest.mark.parametrize(
    "tuned", [{}, {"lora": {"rank": 4}}, {"trainable_layers": 1}], ids=["full", "lora", "layers"]
)
def test_what_is_held_and_trained_is_what_a_learner_with_a_critic_holds_and_trains(
    tuned: dict[str, Any], tmp_path: Path
) -> None:
    """The critic trains a whole copy of the model, whatever is trained of the policy."""
    place = save_tiny_model(tmp_path)
    settings = LearnerSettings.model_validate({"estimator": {"kind": "gae", "critic": "model"}, **tuned})
    learner, shape = Learner(settings, 1e-3, place, place), shape_of(str(place))
    assert shape and learner.critic and learner.critic.trunk and learner.critic_optimizer

    def count(parameters: Iterable[torch.Tensor]) -> int:
        return sum(p.numel() for p in parameters)

    weights = [p for name, p in learner.policy.model.named_parameters() if ".lora_" not in name]
    trained, of_critic = count(learner.policy.trainable().values()), count(learner.critic.trunk.parameters())
    _, trunk = learner.critic_optimizer.param_groups
    expected = {
        "weights": 4 * count(weights),
        "adapter": 4 * trained * ("lora" in tuned),
        "optimizer": 8 * trained,
        "gradients": 4 * trained,
        "critic's weights": 4 * of_critic,
        "critic's optimizer": 8 * count(trunk["params"]),
        "critic's gradients": 4 * of_critic,
    }
    found = learner_parts(shape, settings, 0)
    # of trained layers, biases and norms are not counted
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=0.05)


def test_the_sum_of_all_workers_gradients_has_those_of_the_critic() -> None:
    shape, lora = QWEN["7B"], {"workers": 2, "logits_mb": 1, "microbatch_tokens": 64, "lora": {"rank": 4}}

    def gradients(critic: str) -> int:
        settings = LearnerSettings.model_validate(lora | {"estimator": {"kind": "gae", "critic": critic}})
        return learner_parts(shape, settings, 0)["gradients' sum"]

    assert gradients("head") < shape.parameters < gradients("model")


# ---------------------------------------------------------------------- what fits where
@pytest.mark.parametrize("size, hardware", [("7B", L4), ("32B", H100)])
def test_what_does_not_fit_one_gpu(size: str, hardware: Hardware) -> None:
    """What does: the first command and the recipes, below."""
    assert over(held(fitted(both(LORA), hardware, size), size), hardware.gpu_bytes)


NO_ROOM = {"gradient_checkpointing": False, "microbatch_tokens": 32768}


@pytest.mark.parametrize(
    ("learner", "size", "hardware", "first"),
    [
        ({}, "1.5B", L4, "lora.rank 16"),
        (NO_ROOM, "1.5B", H100, "gradient-checkpointing"),
        ({"kl": {"kind": "loss", "coefficient": 0.1}}, "1.5B", L4, "lora.rank 16"),
        (NO_ROOM | {"kl": {"kind": "loss", "coefficient": 0.1}}, "7B", H100, None),
        ({"trainable_layers": 20}, "7B", H100, None),
        ({"lora": {"quantize": "8bit"}}, "32B", L4, None),
    ],
)
def test_ways_out_are_ways_out(learner: dict, size: str, hardware: Hardware, first: str | None) -> None:
    """Each option is one that the command line knows, and with it the plan fits."""
    asked = both({"learner": learner})
    assert over(held(fitted(asked, hardware, size), size), hardware.gpu_bytes)
    ways = [*ways_out(asked, hardware, lambda model: QWEN[size])]
    assert (ways[0].split(".", 2)[2].split(" --")[0] if ways else None) == first
    for way in ways:
        words = [*way.split(), "--generator-model", "a/b", "--discriminator-model", "a/b"]
        taken = load_run(words)[0].to_config().generator.learner.model_dump(exclude_unset=True)
        again = fitted(both({"learner": learner | taken}), hardware, size)
        assert not over(held(again, size), hardware.gpu_bytes)


def test_as_few_workers_as_a_run_may_go_on_with_are_planned() -> None:
    eight, fewer, two = (
        learner_parts(QWEN["7B"], LearnerSettings.model_validate({"sharding": "fsdp"} | workers), 1024)
        for workers in ({"workers": 8}, {"workers": 8, "min_workers": 2}, {"workers": 2})
    )
    assert fewer == two and sum(eight.values()) < sum(two.values())


def test_a_policy_that_never_learns_needs_no_optimizer() -> None:
    frozen = Config.model_validate({"curriculum": {"frozen_players": ["generator"]}})
    of_frozen, of_learning = (learner_of(frozen, role, QWEN["1.5B"]) for role in frozen.policies)
    assert "optimizer" in of_learning and not {"optimizer", "gradients", "activations"} & set(of_frozen)


def test_what_is_spread_over_eight_gpus() -> None:
    """32B in full does not fit 7 of 80 GB; 7B does, and each GPU holds a seventh of what one would."""
    config = fitted(of_one(FSDP), card(79.1, 8), "7B")
    of_learner, of_actor = held(config, "7B")
    assert of_learner.of == "a GPU of the generator's learner" and of_actor.of == "a rollout actor's GPU"
    assert of_learner.parts["optimizer"] == 8 * QWEN["7B"].parameters // 7
    assert not over([of_learner, of_actor], H100.gpu_bytes) and over(held(config, "32B"), H100.gpu_bytes)


def test_a_backbone_is_spread_and_its_adapter_is_not() -> None:
    spread = FSDP["learner"] | {"lora": {"rank": 16}, "workers": 6}
    of_learner, _ = held(fitted(of_one(FSDP | {"learner": spread}), card(79.1, 8), "32B"), "32B")
    assert of_learner.parts["weights"] == 2 * QWEN["32B"].parameters // 6
    assert of_learner.parts["optimizer"] == 8 * 16 * QWEN["32B"].adapter
    assert not over([of_learner], H100.gpu_bytes)


def test_without_its_kl_a_policy_needs_no_reference() -> None:
    watched, none = (
        fitted(both({"learner": {"kl": {"kind": kind}}}), H100, "1.5B") for kind in ("watched", "none")
    )
    references = [
        sum(d.parts.get("generator's reference", 0) for d in held(c, "1.5B")) for c in (watched, none)
    ]
    assert references == [4 * QWEN["1.5B"].parameters, 0]
    rows = [config.generator.learner.microbatch_tokens or 0 for config in (watched, none)]
    assert rows == sorted(rows)


def test_where_not_all_fits_one_engine_sleeps() -> None:
    hardware = card(67.0)
    config = fitted(both(LORA), hardware, "14B")
    assert [config.policy(role).engine.sleep for role in config.policies] == [True, True]
    update, play = held(config, "14B")
    assert not over([update, play], hardware.gpu_bytes)
    assert over(
        held(fitted(both({"engine": {"sleep": False}} | LORA), hardware, "14B"), "14B"), hardware.gpu_bytes
    )
    assert (update.of, play.of) == ("the GPU in an update", "the GPU in play")
    assert not any("engine's weights" in name or "engine's cache" in name for name in update.parts)
    assert "an update" not in play.parts
    assert play.parts["generator's engine's weights"] > 2 * QWEN["14B"].parameters
    share = (config.generator.engine.gpu_memory_utilization or 0) * hardware.gpu_memory_gib * 2**30  # pyright: ignore
    besides = sum(part for name, part in play.parts.items() if "engine" not in name)
    assert share + besides <= hardware.gpu_bytes


def test_of_two_engines_in_a_process_none_sleeps() -> None:
    """vLLM could put one to sleep."""
    config = fitted(both({}), H100, "7B")
    assert not any(config.policy(role).engine.sleep for role in config.policies)
    assert over(held(config, "7B"), H100.gpu_bytes)


def test_where_all_fits_nobody_sleeps_unless_told() -> None:
    assert fitted(both(LORA), H100, "7B").generator.engine.sleep is False
    told = fitted(both(LORA | {"engine": {"sleep": True}}), H100, "7B")
    assert told.generator.engine.sleep is True and len(held(told, "7B")) == 2


@pytest.mark.parametrize("lora", [True, False])
def test_who_is_offloaded_holds_less_between_updates(lora: bool) -> None:
    """The other's weights, reference and moments; of a backbone that two share, nothing in an update."""
    shape, learner = QWEN["1.5B"], LORA["learner"] if lora else {}
    engine = {"sleep": True} | ({"adapter": True} if lora else {"kind": "transformers"})

    def bytes_of(offload: str) -> int:
        config = both({"learner": {**learner, "offload": offload, **NO_ROOM}, "engine": engine})
        update, play = held(fitted(config, H100, "1.5B"), "1.5B")
        assert ("generator's weights" in play.parts) == (offload != "all")
        return update.bytes

    kept, moments, everything = map(bytes_of, ("none", "optimizer", "all"))
    trained = 16 * shape.adapter if lora else shape.parameters
    assert kept - moments == 8 * trained
    assert moments - everything == (0 if lora else 8 * shape.parameters)


def test_larger_parts_of_logits_where_there_is_room() -> None:
    """They are what the plan counts, and what a learner takes (learners/models.py)."""
    roomy, narrow = (fitted(both(LORA), hardware, "1.5B").generator.learner for hardware in (H100, T4))
    assert (roomy.logits_mb or 0) > (narrow.logits_mb or 0) >= 128
    for mb in (128, 1024):
        settings = LearnerSettings(logits_mb=mb)
        assert learner_parts(QWEN["1.5B"], settings, 0)["logits"] == 20 * mb * 2**20 // 4


# ---------------------------------------------------------------------- without a GPU
def host(gib: float, **more: Any) -> Hardware:
    """With so much memory, of which all but 1.5 GiB are free."""
    return replace(CPU, memory_gib=gib, free_gib=gib - 1.5, **more)


HUB: dict[str, Any] = {"model": "a/b"}


def held_by(policy: dict[str, Any], **run: Any) -> dict[str, int]:
    config = fitted(both(HUB | policy, **run), host(1000), "1.5B")
    return host_plan.parts_of(config, dict.fromkeys(config.policies, QWEN["1.5B"]))


def test_on_a_cpu_what_learners_hold_is_counted() -> None:
    """4 bytes each: weights, reference, two moments; an adapter has no reference, and two share a backbone."""
    count, full = QWEN["1.5B"].parameters, held_by({})
    assert (full["weights"], full["reference"], full["optimizer"]) == (8 * count, 8 * count, 16 * count)
    assert held_by({"learner": {"kl": {"kind": "none"}}})["reference"] == 0
    adapters = held_by(LORA)
    assert (adapters["weights"], adapters["reference"]) == (4 * count, 0)
    of_three = held_by({"learner": {"workers": 3}})
    assert of_three["weights"] == 3 * full["weights"] and of_three["processes"] > full["processes"]
    sharded = held_by({"learner": {"workers": 3, "sharding": "fsdp"}})
    assert sharded["weights"] == pytest.approx(full["weights"], rel=0.001)


def test_on_a_cpu_an_update_is_counted() -> None:
    """Its activations made the first command with a pretrained model end at its first update."""
    small = {"microbatch_tokens": 4096, "gradient_checkpointing": True}
    large = {"microbatch_tokens": 16384, "gradient_checkpointing": False}
    of_large, of_small = (
        held_by({"learner": LORA["learner"] | rows})["an update"] for rows in (large, small)
    )
    assert of_large > 10 * of_small
    apart = held_by({"learner": small})[
        "an update"
    ]  # each policy has a worker of its own: both update at once
    assert apart > 2 * 4 * QWEN["1.5B"].parameters
    assert held_by({}, local=True)["an update"] < held_by({})["an update"]


@pytest.mark.parametrize("size", ["0.5B", "1.5B", "7B"])
@pytest.mark.parametrize("gib", [8, 16, 24, 64, 200, 800])
def test_on_a_cpu_less_memory_never_chooses_a_larger_form(size: str, gib: int) -> None:
    """What is chosen fits if any form does, and with more memory it is never a slower one."""
    config = both(HUB | {"learner": {"lora_if_needed": True}})

    def chosen(memory: int) -> tuple[bool, int]:
        found = fitted(config, host(memory), size)
        engine = found.generator.engine
        assert engine.kind == "vllm" and engine.kv_cache_mb
        in_full = found.generator.learner.lora is None
        if in_full:
            parts = host_plan.parts_of(found, dict.fromkeys(config.policies, QWEN[size]))
            assert sum(parts.values()) <= host(memory).host_bytes
        return in_full, engine.kv_cache_mb if in_full else 0

    assert chosen(gib) <= chosen(2 * gib)


def test_on_a_cpu_a_quantised_adapter_stays_out_of_the_engine() -> None:
    quantised = both(HUB | {"learner": {"lora": {"rank": 16, "quantize": "4bit"}}})
    assert not any(fitted(quantised, host(gib), "0.5B").generator.engine.adapter for gib in (4, 16, 64))


@pytest.mark.parametrize(
    ("lora", "processor", "precision"),
    [
        ({"rank": 16}, True, "bf16"),
        ({"rank": 16}, False, "fp32"),
        ({"rank": 16, "quantize": "4bit"}, True, "fp32"),
        (None, True, "fp32"),
    ],
)
def test_a_backbone_is_in_bf16_on_a_processor_that_computes_in_it(
    lora: dict[str, Any] | None, processor: bool, precision: str
) -> None:
    def chosen(gib: int, cpu_bf16: bool = True, dtype: str | None = None, **learner: Any) -> str | None:
        config = both(HUB | {"learner": {"lora": lora, **learner}, "engine": {"dtype": dtype}})
        return fitted(config, host(gib, cpu_bf16=cpu_bf16), "0.5B").generator.learner.precision

    assert {chosen(gib, processor) for gib in (4, 64, 1000)} == {precision}
    assert chosen(64, dtype="float32") == "fp32", "compared to 1e-3, by the probe"
    assert chosen(64, precision="fp32") == "fp32", "as is given"


def test_a_cache_is_no_larger_than_its_sequences() -> None:
    def cache(**engine: Any) -> int:
        found = fitted(
            both(HUB | {"engine": {"kind": "vllm", **engine}}), host(1000), "0.5B"
        ).generator.engine
        return found.kv_cache_mb or 0  # pyright: ignore[reportAttributeAccessIssue]

    assert 8 * cache(max_num_seqs=4) == cache() > 0


def test_layers_that_are_given_are_what_is_trained() -> None:
    layers = both(HUB | {"learner": {"lora_if_needed": True, "trainable_layers": 4}})
    found = fitted(layers, host(16), "7B").generator.learner
    assert found.lora is None and found.trainable_layers == 4


@pytest.mark.parametrize(
    ("device", "learner", "offload"),
    [
        ("cuda", {}, "all"),
        ("cuda", {"sharding": "fsdp", "workers": 2, "estimator": {"kind": "grpo"}}, "none"),
        ("cpu", {}, "none"),
    ],
)
def test_a_policy_is_not_offloaded_if_that_contradicts_what_is_given(
    device: str, learner: dict[str, Any], offload: str
) -> None:
    """32B does not fit in any way: the last of those that are possible is taken, and the plan refuses it later."""
    config = both(HUB | {"learner": {"lora_if_needed": True, **learner}}).model_copy(
        update={"device": device}
    )
    found = fitted(config, replace(card(22.2, 4), free_gib=14.0), "32B").generator.learner
    assert found.lora and found.offload == offload


@pytest.mark.parametrize(
    ("kl", "offered"),
    [
        ({"kind": "watched"}, True),
        ({"kind": "loss", "coefficient": 0.1}, False),
        ({"kind": "reward", "coefficient": 0.1}, False),
    ],
)
def test_a_penalty_that_was_set_is_not_offered_to_go(kl: dict[str, Any], offered: bool) -> None:
    ways = " ".join(ways_out(both(HUB | {"learner": {"kl": kl}}), card(39.4), lambda model: QWEN["1.5B"]))
    assert ("kl.kind none" in ways) == offered and "lora" in ways


CARDS: dict[str, Hardware] = {
    "16 GB CPU": host(15.6),
    "T4": T4,
    "24 GB": card(23.6),
    "40 GB": card(39.4),
    "80 GB": H100,
}
FORMS = {  # what the recipe chat takes: in full, by LoRA, or nothing fits
    "0.5B": {"16 GB CPU": "lora", "T4": "lora", "24 GB": "lora", "40 GB": "full", "80 GB": "full"},
    "1.5B": {"16 GB CPU": None, "T4": "lora", "24 GB": "lora", "40 GB": "lora", "80 GB": "full"},
    "7B": {"16 GB CPU": None, "T4": None, "24 GB": "lora", "40 GB": "lora", "80 GB": "lora"},
}


@pytest.mark.parametrize("where", CARDS)
@pytest.mark.parametrize("size", FORMS)
def test_the_first_command_is_accepted_where_any_form_of_it_fits(size: str, where: str) -> None:
    command = ["--generator-model", "a/b", "--discriminator-model", "a/b", "--problems-file", "p.json"]
    config = load_run(command)[0].to_config()
    found = fitted(config, CARDS[where], size)
    form = "lora" if found.generator.learner.lora else "full"
    fit = fits(found, CARDS[where], lambda model: QWEN[size])
    assert (form if fit else None) == FORMS[size][where]
    ways = [*ways_out(config, CARDS[where], lambda model: QWEN[size])]
    assert fit or bool(ways) == (size == "1.5B"), "in one process, in bfloat16"


def test_a_backbone_that_is_not_shared_is_counted_twice() -> None:
    """As the learners have it: policies whose workers differ in anything share none."""

    def weights(cpus: float) -> int:
        other = {"learner": LORA["learner"] | {"cpus": cpus}}
        parts = [
            part
            for demand in held(fitted(both(LORA, discriminator=other), H100, "7B"), "7B")
            for part in demand.parts.items()
        ]
        return sum(size for name, size in parts if name.endswith("'s weights") and "engine" not in name)

    assert weights(0.25) == 2 * weights(Config().generator.learner.cpus)


def of_the_object_store(policy: dict[str, Any]) -> int:
    """What the weights take, beyond what is there for everything else."""
    config = fitted(both(policy), H100, "1.5B")
    return memory_plan.object_store_bytes(config, dict.fromkeys(config.policies, QWEN["1.5B"])) - (512 << 20)


def test_weights_in_half_precision_take_half_of_the_object_store() -> None:
    half, whole = (of_the_object_store({"engine": {"dtype": dtype}}) for dtype in ("bfloat16", "float32"))
    shape = QWEN["1.5B"]
    assert whole == 2 * half == 2 * 4 * (2 * shape.parameters + shape.vocabulary * shape.hidden)


def test_an_adapter_takes_little_of_the_object_store() -> None:
    taken = of_the_object_store(LORA | {"engine": {"adapter": True}})
    assert taken == 2 * (PART_BYTES + 2 * 4 * 16 * QWEN["1.5B"].adapter)


ROWS = re.findall(
    r"^\| `(\S+)` \| (?:(\d+) x )?([\d.]+) GiB \| ([\d.]+) of ([\d.]+) \|.*?([\d.]+B)", PAGE, re.M
)
"""(recipe, GPUs, GiB of each, GB taken, GB there, size of the models), as the page says."""


def test_the_page_has_all_recipes() -> None:
    assert len(ROWS) >= 28


@pytest.mark.parametrize(
    ("recipe", "gpus", "gib", "taken", "there", "size"), ROWS, ids=[row[0] for row in ROWS]
)
def test_every_recipe_fits_what_it_is_for_as_the_page_says(
    recipe: str, gpus: str, gib: str, taken: str, there: str, size: str
) -> None:
    hardware = T4 if gib == "14.6" else card(float(gib), int(gpus or 1))
    config = fitted(load_run(["--config", recipe])[0].to_config(), hardware, size)
    found, have = held(config, size), hardware.gpu_bytes
    assert not over(found, have)
    most = max(demand.bytes for demand in found)
    assert (f"{most / GB:.1f}", f"{have / GB:.1f}") == (taken, there)
    if not config.local:
        node = placement.Node(name="", address="", gpus=min(hardware.gpus, 8), cpus=64)
        nodes = [replace(node, name=str(i)) for i in range(-(-hardware.gpus // 8))]
        parts = placement.parts_of(config)
        assert placement.idle_gpus(placement.place(parts, nodes), nodes) == 0
        ranks = [part for part in parts if part.least and part.count > 1]
        assert all(part.gpus == placement.UNIT for part in ranks), "NCCL refuses two ranks on a GPU"


OF_EIGHT = [(row[0], row[2], row[5]) for row in ROWS if row[0].startswith("q") and row[1] == "8"]


@pytest.mark.parametrize(("recipe", "gib", "size"), OF_EIGHT, ids=[recipe for recipe, *_ in OF_EIGHT])
def test_a_recipe_of_eight_gpus_fits_the_seven_that_r4_makes_visible(
    recipe: str, gib: str, size: str
) -> None:
    hardware = card(float(gib), 7)
    config = fitted(load_run(["--config", recipe])[0].to_config(), hardware, size)
    assert not over(held(config, size), hardware.gpu_bytes)
    assert placement.place(placement.parts_of(config), hardware.nodes)


@pytest.mark.parametrize("recipe", ["qwen_1_5b_cpu", "qwen_1_5b_cpu:16gb"])
def test_the_page_says_what_a_recipe_takes_without_a_gpu(recipe: str) -> None:
    asked = load_run(["--config", recipe])[0].to_config()
    config = settled(asked, choices(asked, replace(CPU, cpu_cores=16, memory_gib=200.0), lambda model: None))
    taken = sum(host_plan.parts_of(config, dict.fromkeys(config.policies, QWEN["1.5B"])).values())
    assert f"| `{recipe}` | none | {taken / GB:.1f} |" in PAGE


# ---------------------------------------------------------------------- engines over several GPUs
def test_a_tensor_parallel_engine_has_its_part_of_weights_and_key_heads_on_each_gpu() -> None:
    def of(width: int, **engine: Any) -> dict[str, int]:
        """By the last word of each part's name."""
        own = {"kind": "vllm", "tensor_parallel": width, "kv_cache_mb": None, **engine}
        found = held(fitted(of_one({"engine": own}), card(79.1, 16), "32B"), "32B")
        engines = next(d for d in found if "rollout actor" in d.of or "'s engine" in d.of)
        return {name.rsplit(maxsplit=1)[-1]: size for name, size in engines.parts.items()}

    one, four, forty = of(1), of(4), of(10)
    assert one["weights"] == 2 * QWEN["32B"].parameters == 4 * four["weights"]
    assert one["cache"] == 4 * four["cache"] == 8 * forty["cache"], "a key head is not divided"
    assert one["space"] == four["space"]
    assert of(4, kv_cache_mb=1000)["cache"] == 1000 << 20, "of each GPU"
    assert of(4, count=2)["weights"] == four["weights"]


@pytest.mark.parametrize(("width", "fits_two"), [(1, False), (2, True), (4, True)])
def test_engines_too_large_for_a_gpu_fit_two(width: int, fits_two: bool) -> None:
    """32B in bf16: 66 GB of weights, of which two GPUs of 40 GB have half each."""
    policy = LORA | {"engine": {"kind": "vllm", "tensor_parallel": width}}
    found = held(fitted(of_one(policy), card(79.1, 8), "32B"), "32B")
    engines = [demand for demand in found if demand.of == "a rollout actor's GPU"]
    assert engines and fits_two == (not over(engines, A100.gpu_bytes))


def test_engines_of_their_own_have_what_their_gpu_leaves() -> None:
    config = fitted(both({"engine": {"kind": "vllm", "count": 2}}), card(79.1, 8), "7B")
    names = {demand.of for demand in held(config, "7B")}
    assert names >= {"a GPU of the generator's engine", "a GPU of the discriminator's engine"}
    assert "a rollout actor's GPU" not in names
    assert config.generator.engine.gpu_memory_utilization == 0.9 and config.rollout.gpus == 0


def test_what_shares_workers_is_counted_together_on_their_gpu() -> None:
    found = held(fitted(both(LORA), card(79.1, 2), "7B"), "7B")
    assert [demand.of for demand in found] == ["the learners' GPU", "a rollout actor's GPU"]
    assert "discriminator's optimizer" in found[0].parts
