"""What a GPU has to hold, by arithmetic: against autograd's own count, and by model and card."""

from collections.abc import Callable, Iterable, Mapping
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
from sparring.runtime.memory_plan import GB, Shape, activations, demands, learner_of, learner_parts, shape_of
from tests.learning import save_tiny_model

PAGE = Path(__file__).parents[3] / "docs" / "hardware.md"
QWEN = {  # Qwen2.5-Coder, by their config.json
    "0.5B": Shape(
        parameters=494_032_768, linear=357_826_560, adapter=549_888,
        layers=24, hidden=896, intermediate=4864, keys=128, vocabulary=151_936, heads=14, key_heads=2,
    ),
    "1.5B": Shape(
        parameters=1_543_714_304, linear=1_310_195_712, adapter=1_154_048,
        layers=28, hidden=1536, intermediate=8960, keys=256, vocabulary=151_936, heads=12, key_heads=2,
    ),
    "3B": Shape(
        parameters=3_085_938_688, linear=2_774_532_096, adapter=1_870_848,
        layers=36, hidden=2048, intermediate=11_008, keys=256, vocabulary=151_936, heads=16, key_heads=2,
    ),
    "7B": Shape(
        parameters=7_615_616_512, linear=6_525_288_448, adapter=2_523_136,
        layers=28, hidden=3584, intermediate=18_944, keys=512, vocabulary=152_064, heads=28, key_heads=4,
    ),
    "14B": Shape(
        parameters=14_770_033_664, linear=13_212_057_600, adapter=4_300_800,
        layers=48, hidden=5120, intermediate=13_824, keys=1024, vocabulary=152_064, heads=40, key_heads=8,
    ),
    "32B": Shape(
        parameters=32_763_876_352, linear=31_205_621_760, adapter=8_388_608,
        layers=64, hidden=5120, intermediate=27_648, keys=1024, vocabulary=152_064, heads=40, key_heads=8,
    ),
}  # fmt: skip


def card(gib: float, gpus: int = 1) -> Hardware:
    return Hardware(
        gpus=gpus, gpu="a GPU", gpu_memory_gib=gib, capability=(9, 0), cpu_cores=16, memory_gib=200.0, offline=False
    )  # fmt: skip


T4 = replace(card(14.6), capability=(7, 5))
L4, H100 = card(22.2), card(79.1)
LORA: dict[str, Any] = {"learner": {"lora": {"rank": 16}}}
FSDP: dict[str, Any] = {
    "learner": {"estimator": {"kind": "grpo"}, "workers": 7, "sharding": "fsdp", "kl": {"kind": "none"}},
    "engine": {"kind": "vllm"},
}  # fmt: skip


def both(policy: Mapping[str, Any]) -> Config:
    return Config.model_validate({"generator": policy, "discriminator": policy})


def fitted(config: Config, hardware: Hardware, shape_of: Callable[[str], Shape | None]) -> Config:
    return settled(config, choices(config, hardware, shape_of))


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
    two, three = (kind(**sizes, num_hidden_layers=layers, vocab_size=64) for layers in (2, 3))
    two.save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    assert shape is not None

    def counted(again: bool) -> float:
        def trained(config: PretrainedConfig) -> PreTrainedModel:
            model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED, dtype=torch.float32)
            if again:
                model.gradient_checkpointing_enable()
            return model.train()

        return of_a_token_in_a_layer(trained(two), trained(three), half)

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
    found = memory_plan.learner_parts(shape, settings, 0)
    # of trained layers, biases and norms are not counted
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=0.05)


def test_the_sum_of_all_workers_gradients_has_those_of_the_critic() -> None:
    lora = {"workers": 2, "logits_mb": 1, "microbatch_tokens": 64, "lora": {"rank": 4}}
    head, model = (
        LearnerSettings.model_validate(lora | {"estimator": {"kind": "gae", "critic": critic}})
        for critic in ("head", "model")
    )
    of_head, of_model = (memory_plan.learner_parts(QWEN["7B"], settings, 0) for settings in (head, model))
    assert of_head["gradients' sum"] < QWEN["7B"].parameters < of_model["gradients' sum"]


# ---------------------------------------------------------------------- what fits where
@pytest.mark.parametrize(
    ("size", "policy", "hardware", "gb"),
    [
        ("1.5B", {}, H100, 74),  # two in full on a card of 80 GB
        ("7B", {}, H100, None),
        ("7B", LORA, H100, 55),
        ("14B", LORA, H100, 79),
        ("1.5B", {}, L4, None),
        ("1.5B", LORA, L4, 19),
        ("7B", LORA, L4, None),
        ("32B", LORA, H100, None),
        ("0.5B", {}, L4, None),
        ("0.5B", LORA, L4, 20),
    ],
)
def test_what_fits_one_gpu(size: str, policy: dict[str, Any], hardware: Hardware, gb: int | None) -> None:
    config = fitted(both(policy), hardware, lambda model: QWEN[size])
    shapes = dict.fromkeys(config.policies, QWEN[size])
    found = demands(config, shapes)
    refused = memory_plan.over(found, hardware.gpu_bytes)
    assert bool(refused) == (gb is None), [demand.describe(hardware.gpu_bytes) for demand in found]
    if gb is not None:
        assert [round(demand.bytes / GB) for demand in found] == [gb]


AWAKE: dict[str, Any] = {"engine": {"sleep": False}}
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
    config = fitted(asked, hardware, lambda model: QWEN[size])
    shapes = dict.fromkeys(config.policies, QWEN[size])
    assert memory_plan.over(demands(config, shapes), hardware.gpu_bytes)
    ways = [*ways_out(asked, hardware, lambda model: QWEN[size])]
    assert (ways[0].split(".", 2)[2].split(" --")[0] if ways else None) == first
    for way in ways:
        options = [
            word for option in way.split(" --") for word in ("--" + option.removeprefix("--")).split(" ")
        ]
        taken = load_run([*options, "--generator-model", "a/b", "--discriminator-model", "a/b"])[
            0
        ].to_config()
        again = {"learner": learner | taken.generator.learner.model_dump(exclude_unset=True)}
        again = fitted(both(again), hardware, lambda model: QWEN[size])
        assert not memory_plan.over(demands(again, shapes), hardware.gpu_bytes)


def test_as_few_workers_as_a_run_may_go_on_with_are_planned() -> None:
    shape, eight = QWEN["7B"], LearnerSettings(workers=8, sharding="fsdp")
    two = eight.model_copy(update={"workers": 2})
    assert learner_parts(shape, eight.model_copy(update={"min_workers": 2}), 1024) == learner_parts(
        shape, two, 1024
    )
    assert sum(learner_parts(shape, eight, 1024).values()) < sum(learner_parts(shape, two, 1024).values())


def test_a_policy_that_never_learns_needs_no_optimizer() -> None:
    frozen = Config.model_validate({"curriculum": {"frozen_players": ["generator"]}})
    of_frozen, of_learning = (learner_of(frozen, role, QWEN["1.5B"]) for role in frozen.policies)
    assert "optimizer" in of_learning and not {"optimizer", "gradients", "activations"} & set(of_frozen)


def test_what_is_spread_over_eight_gpus() -> None:
    """32B in full does not fit 7 of 80 GB; 7B does, and each GPU holds a seventh of what one would."""
    config = fitted(
        Config.model_validate({"game": {"kind": "unit_tests"}, "generator": FSDP}),
        card(79.1, 8),
        lambda model: QWEN["7B"],
    )
    of_learner, of_actor = demands(config, {"generator": QWEN["7B"]})
    assert of_learner.of == "a GPU of the generator's learner" and of_actor.of == "a rollout actor's GPU"
    assert of_learner.parts["optimizer"] == 8 * QWEN["7B"].parameters // 7
    assert not memory_plan.over([of_learner, of_actor], card(79.1).gpu_bytes)
    assert memory_plan.over(demands(config, {"generator": QWEN["32B"]}), card(79.1).gpu_bytes)


def test_a_backbone_is_spread_and_its_adapter_is_not() -> None:
    spread = FSDP["learner"] | {"lora": {"rank": 16}, "workers": 6}
    policy = FSDP | {"learner": spread}
    config = fitted(
        Config.model_validate({"game": {"kind": "unit_tests"}, "generator": policy}),
        card(79.1, 8),
        lambda model: QWEN["32B"],
    )
    of_learner, _ = demands(config, {"generator": QWEN["32B"]})
    assert of_learner.parts["weights"] == 2 * QWEN["32B"].parameters // 6
    assert of_learner.parts["optimizer"] == 8 * 16 * QWEN["32B"].adapter
    assert not memory_plan.over([of_learner], card(79.1).gpu_bytes)


def test_without_its_kl_a_policy_needs_no_reference() -> None:
    watched, none = (
        fitted(both({"learner": {"kl": {"kind": kind}}}), H100, lambda model: QWEN["1.5B"])
        for kind in ("watched", "none")
    )
    shapes = dict.fromkeys(watched.policies, QWEN["1.5B"])
    references = [
        sum(d.parts.get("generator's reference", 0) for d in demands(c, shapes)) for c in (watched, none)
    ]
    assert references == [4 * QWEN["1.5B"].parameters, 0]
    assert (none.generator.learner.microbatch_tokens or 0) >= (
        watched.generator.learner.microbatch_tokens or 0
    )


@pytest.mark.parametrize(("policy", "sleeps"), [(LORA, True), ({}, False)], ids=["lora", "full"])
def test_where_not_all_fits_one_engine_sleeps(policy: dict[str, Any], sleeps: bool) -> None:
    """Of two engines in a process vLLM could put one to sleep."""
    size, hardware = ("14B", card(67.0)) if sleeps else ("7B", H100)
    config = fitted(both(policy), hardware, lambda model: QWEN[size])
    assert [config.policy(role).engine.sleep for role in config.policies] == [sleeps] * 2
    shapes = dict.fromkeys(config.policies, QWEN[size])
    found = demands(config, shapes)
    assert bool(memory_plan.over(found, hardware.gpu_bytes)) != sleeps
    if sleeps:
        awake = fitted(both(AWAKE | policy), hardware, lambda model: QWEN[size])
        assert memory_plan.over(demands(awake, shapes), hardware.gpu_bytes)
        update, play = found
        assert (update.of, play.of) == ("the GPU in an update", "the GPU in play")
        assert not any("engine's weights" in name or "engine's cache" in name for name in update.parts)
        assert (
            "an update" not in play.parts
            and play.parts["generator's engine's weights"] > 2 * QWEN[size].parameters
        )
        share = (config.generator.engine.gpu_memory_utilization or 0) * hardware.gpu_memory_gib * 2**30  # pyright: ignore
        held = sum(part for name, part in play.parts.items() if "engine" not in name)
        assert share + held <= hardware.gpu_bytes


def test_where_all_fits_nobody_sleeps_unless_told() -> None:
    assert fitted(both(LORA), H100, lambda model: QWEN["7B"]).generator.engine.sleep is False
    told = fitted(both(LORA | {"engine": {"sleep": True}}), H100, lambda model: QWEN["7B"])
    assert (
        told.generator.engine.sleep is True
        and len(demands(told, dict.fromkeys(told.policies, QWEN["7B"]))) == 2
    )


@pytest.mark.parametrize("lora", [True, False])
def test_who_is_offloaded_holds_less_between_updates(lora: bool) -> None:
    """The other's weights, reference and moments; of a backbone that two share, nothing in an update."""
    shape, learner = QWEN["1.5B"], LORA["learner"] if lora else {}
    shapes = {"generator": shape, "discriminator": shape}

    def bytes_of(offload: str) -> int:
        given = {
            "learner": {**learner, "offload": offload, **NO_ROOM},
            "engine": {"sleep": True, "adapter": lora},
        }
        config = fitted(
            both(given if lora else {**given, "engine": {"kind": "transformers", "sleep": True}}),
            H100,
            lambda model: shape,
        )
        update, play = demands(config, shapes)
        assert ("generator's weights" in play.parts) == (offload != "all")
        return update.bytes

    kept, moments, everything = map(bytes_of, ("none", "optimizer", "all"))
    trained = 16 * shape.adapter if lora else shape.parameters
    assert kept - moments == 8 * trained
    assert moments - everything == (0 if lora else 8 * shape.parameters)


def test_larger_parts_of_logits_where_there_is_room() -> None:
    """They are what the plan counts, and what a learner takes (learners/models.py)."""
    roomy = fitted(both(LORA), H100, lambda model: QWEN["1.5B"]).generator.learner
    narrow = fitted(both(LORA), T4, lambda model: QWEN["1.5B"]).generator.learner
    assert (roomy.logits_mb or 0) > (narrow.logits_mb or 0) >= 128
    for mb in (128, 1024):
        settings = LearnerSettings(logits_mb=mb)
        assert memory_plan.learner_parts(QWEN["1.5B"], settings, 0)["logits"] == 20 * mb * 2**20 // 4


# ---------------------------------------------------------------------- without a GPU
def host(gib: float, **more: Any) -> Hardware:
    """With so much memory, of which all but 1.5 GiB are free."""
    return Hardware(
        gpus=0, gpu=None, gpu_memory_gib=0.0, capability=(0, 0), cpu_cores=4, memory_gib=gib, free_gib=gib - 1.5,
        offline=False, **more,
    )  # fmt: skip


def held_by(policy: dict[str, Any], size: str = "1.5B", **run: Any) -> dict[str, int]:
    shape = QWEN[size]
    config = Config.model_validate({"generator": policy, "discriminator": policy, **run})
    settled_config = fitted(config, host(1000), lambda model: shape)
    return host_plan.parts_of(settled_config, dict.fromkeys(config.policies, shape))


def test_on_a_cpu_what_learners_hold_is_counted() -> None:
    """4 bytes each: weights, reference, two moments; an adapter has no reference, and two share a backbone."""
    count = QWEN["1.5B"].parameters
    policy: dict[str, Any] = {"model": "a/b"}
    full = held_by(policy)
    assert (full["weights"], full["reference"], full["optimizer"]) == (8 * count, 8 * count, 16 * count)
    assert held_by(policy | {"learner": {"kl": {"kind": "none"}}})["reference"] == 0
    adapters = held_by(policy | LORA)
    assert (adapters["weights"], adapters["reference"]) == (4 * count, 0)
    of_three = held_by(policy | {"learner": {"workers": 3}})
    assert of_three["weights"] == 3 * full["weights"] and of_three["processes"] > full["processes"]
    sharded = held_by(policy | {"learner": {"workers": 3, "sharding": "fsdp"}})
    assert sharded["weights"] == pytest.approx(full["weights"], rel=0.001)


def test_on_a_cpu_an_update_is_counted() -> None:
    """Its activations made the first command with a pretrained model end at its first update."""

    def update(policy: dict[str, Any], **learner: Any) -> int:
        return held_by(policy | {"learner": {**policy.get("learner", {}), **learner}})["an update"]

    policy: dict[str, Any] = {"model": "a/b"} | LORA
    small = {"microbatch_tokens": 4096, "gradient_checkpointing": True}
    large = {"microbatch_tokens": 16384, "gradient_checkpointing": False}
    assert update(policy, **large) > 10 * update(policy, **small)
    apart = update({"model": "a/b"}, **small)  # each policy has a worker of its own: both update at once
    assert apart > 2 * 4 * QWEN["1.5B"].parameters
    assert held_by({"model": "a/b"}, local=True)["an update"] < held_by({"model": "a/b"})["an update"]


@pytest.mark.parametrize("size", ["0.5B", "1.5B", "7B"])
@pytest.mark.parametrize("gib", [8, 16, 24, 64, 200, 800])
def test_on_a_cpu_less_memory_never_chooses_a_larger_form(size: str, gib: int) -> None:
    """What is chosen fits if any form does, and with more memory it is never a slower one."""
    config = both({"model": "a/b", "learner": {"lora_if_needed": True}})
    shapes = dict.fromkeys(config.policies, QWEN[size])

    def chosen(memory: int) -> tuple[bool, int]:
        found = fitted(config, host(memory), lambda model: QWEN[size])
        engine = found.generator.engine
        assert engine.kind == "vllm" and engine.kv_cache_mb
        in_full = found.generator.learner.lora is None
        if in_full:
            assert sum(host_plan.parts_of(found, shapes).values()) <= host(memory).host_bytes
        return in_full, engine.kv_cache_mb if in_full else 0

    assert chosen(gib) <= chosen(2 * gib)


def test_on_a_cpu_a_quantised_adapter_stays_out_of_the_engine() -> None:
    quantised = {"model": "a/b", "learner": {"lora": {"rank": 16, "quantize": "4bit"}}}
    for gib in (4, 16, 64):
        found = fitted(both(quantised), host(gib), lambda model: QWEN["0.5B"])
        assert not found.generator.engine.adapter


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
    config = both({"model": "a/b", "learner": {"lora": lora}})
    for gib in (4, 64, 1000):
        found = fitted(config, host(gib, cpu_bf16=processor), lambda model: QWEN["0.5B"]).generator.learner
        assert found.precision == precision
    exact = both({"model": "a/b", "learner": {"lora": lora}, "engine": {"dtype": "float32"}})
    compared = fitted(exact, host(64, cpu_bf16=True), lambda model: QWEN["0.5B"])  # to 1e-3, by the probe
    assert compared.generator.learner.precision == "fp32"
    given = both({"model": "a/b", "learner": {"lora": lora, "precision": "fp32"}})
    kept = fitted(given, host(64, cpu_bf16=True), lambda model: QWEN["0.5B"])
    assert kept.generator.learner.precision == "fp32"


def test_a_cache_is_no_larger_than_its_sequences() -> None:
    def cache(**engine: Any) -> int:
        found = fitted(both({"model": "a/b", "engine": engine}), host(1000), lambda model: QWEN["0.5B"])
        assert found.generator.engine.kind == "vllm"
        return found.generator.engine.kv_cache_mb or 0

    assert 8 * cache(kind="vllm", max_num_seqs=4) == cache(kind="vllm")


def test_layers_that_are_given_are_what_is_trained() -> None:
    layers = both({"model": "a/b", "learner": {"lora_if_needed": True, "trainable_layers": 4}})
    found = fitted(layers, host(16), lambda model: QWEN["7B"])
    assert found.generator.learner.lora is None and found.generator.learner.trainable_layers == 4


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
    policy = {"model": "a/b", "learner": {"lora_if_needed": True, **learner}}
    config = both(policy).model_copy(update={"device": device})
    found = fitted(config, replace(card(22.2, 4), free_gib=14.0), lambda model: QWEN["32B"])
    assert found.generator.learner.lora and found.generator.learner.offload == offload


@pytest.mark.parametrize(("kind", "offered"), [("watched", True), ("loss", False), ("reward", False)])
def test_a_penalty_that_was_set_is_not_offered_to_go(kind: str, offered: bool) -> None:
    kl: dict[str, Any] = {"kind": kind} | ({} if offered else {"coefficient": 0.1})
    config = both({"model": "a/b", "learner": {"kl": kl}})
    ways = " ".join(ways_out(config, card(39.4), lambda model: QWEN["1.5B"]))
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
    found = fitted(config, CARDS[where], lambda model: QWEN[size])
    form = "lora" if found.generator.learner.lora else "full"
    fit = fits(found, CARDS[where], lambda model: QWEN[size])
    assert (form if fit else None) == FORMS[size][where]
    ways = [*ways_out(config, CARDS[where], lambda model: QWEN[size])]
    assert fit or bool(ways) == (size == "1.5B"), "in one process, in bfloat16"


def test_a_backbone_that_is_not_shared_is_counted_twice() -> None:
    """As the learners have it: policies whose workers differ in anything share none."""
    shapes = dict.fromkeys(("generator", "discriminator"), QWEN["7B"])

    def weights(cpus: float) -> int:
        other = {"learner": {"lora": {"rank": 16}, "cpus": cpus}}
        config = both(LORA).model_dump() | {"discriminator": other}
        found = demands(fitted(Config.model_validate(config), H100, lambda model: QWEN["7B"]), shapes)
        return sum(
            size
            for demand in found
            for name, size in demand.parts.items()
            if name.endswith("'s weights") and "engine" not in name
        )

    assert weights(0.25) == 2 * weights(Config().generator.learner.cpus)


def test_weights_in_half_precision_take_half_of_the_object_store() -> None:
    in_half = fitted(both({"engine": {"dtype": "bfloat16"}}), H100, lambda model: QWEN["1.5B"])
    whole = fitted(both({"engine": {"dtype": "float32"}}), H100, lambda model: QWEN["1.5B"])
    shape = QWEN["1.5B"]
    shapes = dict.fromkeys(in_half.policies, shape)
    half, all_of_it = (
        memory_plan.object_store_bytes(config, shapes) - (512 << 20) for config in (in_half, whole)
    )
    assert all_of_it == 2 * half == 2 * 4 * (2 * shape.parameters + shape.vocabulary * shape.hidden)


def test_an_adapter_takes_little_of_the_object_store() -> None:
    adapter = LORA | {"engine": {"adapter": True}}
    config = fitted(both(adapter), H100, lambda model: QWEN["1.5B"])
    of_adapters = memory_plan.object_store_bytes(config, dict.fromkeys(config.policies, QWEN["1.5B"]))
    assert of_adapters == (512 << 20) + 2 * (PART_BYTES + 2 * 4 * 16 * QWEN["1.5B"].adapter)


RECIPES = [
    ("notebook", "0.5B", T4),
    ("single_gpu:16gb", "0.5B", T4),
    ("single_gpu", "1.5B", L4),
    ("single_gpu:80gb", "1.5B", H100),
    ("single_gpu:7b", "7B", card(39.4)),
    ("single_gpu:14b", "14B", H100),
    ("eight_gpus", "7B", card(79.1, 8)),
    ("eight_gpus:32b", "32B", card(79.1, 8)),
    ("grpo_code_execution:1.5b", "1.5B", T4),
    ("grpo_mbpp:16gb", "1.5B", T4),
    ("grpo_mbpp", "1.5B", card(39.4)),
    ("output_prediction:1.5b", "1.5B", T4),
    ("spiral_tictactoe:1.5b", "1.5B", T4),
    ("spiral_kuhn:1.5b", "1.5B", T4),
    ("code_golf:7b", "7B", card(39.4)),
    ("q", "1.5B", card(22.2, 8)),
    ("q:3b", "3B", card(22.2, 8)),
    ("q:7b", "7B", card(39.4, 8)),
    ("q:14b", "14B", card(79.1, 8)),
    ("q:32b", "32B", card(79.1, 16)),
    ("q:32b_lora", "32B", card(79.1, 8)),
    ("sparring_mbpp", "0.5B", T4),
    ("sparring_mbpp:1.5b", "1.5B", L4),
    ("sparring_mbpp:7b", "7B", card(39.4)),
    ("code_a1", "0.5B", T4),
    ("code_a1:24gb", "1.5B", L4),
    ("code_a1:80gb", "1.5B", H100),
    ("code_a1:8gpus", "1.5B", card(79.1, 8)),
]


@pytest.mark.parametrize(("recipe", "size", "hardware"), RECIPES, ids=[recipe for recipe, *_ in RECIPES])
def test_every_recipe_fits_what_it_is_for_as_the_page_says(
    recipe: str, size: str, hardware: Hardware
) -> None:
    config = fitted(load_run(["--config", recipe])[0].to_config(), hardware, lambda model: QWEN[size])
    found = demands(config, dict.fromkeys(config.policies, QWEN[size]))
    have = hardware.gpu_bytes
    assert not memory_plan.over(found, have)
    gpus = f"{hardware.gpus} x " if hardware.gpus > 1 else ""
    most = max(demand.bytes for demand in found)
    row = f"| `{recipe}` | {gpus}{hardware.gpu_memory_gib} GiB | {most / GB:.1f} of {have / GB:.1f} |"
    assert row in PAGE.read_text()
    if not config.local:
        node = placement.Node(name="", address="", gpus=min(hardware.gpus, 8), cpus=64)
        nodes = [replace(node, name=str(i)) for i in range(-(-hardware.gpus // 8))]
        parts = placement.parts_of(config)
        assert placement.idle_gpus(placement.place(parts, nodes), nodes) == 0
        ranks = [part for part in parts if part.least and part.count > 1]
        assert all(part.gpus == placement.UNIT for part in ranks), "NCCL refuses two ranks on a GPU"


@pytest.mark.parametrize(
    ("recipe", "size", "gib"),
    [
        ("q", "1.5B", 22.2),
        ("q:3b", "3B", 22.2),
        ("q:7b", "7B", 39.4),
        ("q:14b", "14B", 79.1),
        ("q:32b_lora", "32B", 79.1),
    ],
)
def test_a_recipe_of_eight_gpus_fits_the_seven_that_r4_makes_visible(
    recipe: str, size: str, gib: float
) -> None:
    hardware = card(gib, 7)
    config = fitted(load_run(["--config", recipe])[0].to_config(), hardware, lambda model: QWEN[size])
    assert not memory_plan.over(demands(config, {"generator": QWEN[size]}), hardware.gpu_bytes)
    assert placement.place(placement.parts_of(config), hardware.nodes)


@pytest.mark.parametrize("recipe", ["qwen_1_5b_cpu", "qwen_1_5b_cpu:16gb"])
def test_the_page_says_what_a_recipe_takes_without_a_gpu(recipe: str) -> None:
    config = fitted(
        load_run(["--config", recipe])[0].to_config(), replace(card(0), gpus=0), lambda model: None
    )
    taken = sum(host_plan.parts_of(config, dict.fromkeys(config.policies, QWEN["1.5B"])).values())
    assert f"| `{recipe}` | none | {taken / GB:.1f} |" in PAGE.read_text()


# ---------------------------------------------------------------------- engines over several GPUs
def engine_of(config: Config, size: str) -> Mapping[str, int]:
    found = demands(config, dict.fromkeys(config.policies, QWEN[size]))
    return next(demand for demand in found if "rollout actor" in demand.of or "'s engine" in demand.of).parts


def test_a_tensor_parallel_engine_has_its_part_of_weights_and_key_heads_on_each_gpu() -> None:
    def of(width: int, **engine: Any) -> Mapping[str, int]:
        own = {"engine": {"kind": "vllm", "tensor_parallel": width, "kv_cache_mb": None, **engine}}
        config = Config.model_validate({"game": {"kind": "unit_tests"}, "generator": own, "device": "cuda"})
        return engine_of(fitted(config, card(79.1, 16), lambda model: QWEN["32B"]), "32B")

    def part(parts: Mapping[str, int], name: str) -> int:
        return next(size for key, size in parts.items() if key.endswith(name))

    one, four, forty = of(1), of(4), of(10)
    assert part(one, "weights") == 2 * QWEN["32B"].parameters == 4 * part(four, "weights")
    assert part(one, "cache") == 4 * part(four, "cache") == 8 * part(forty, "cache"), (
        "a key head is not divided"
    )
    assert part(one, "work space") == part(four, "work space")
    assert part(of(4, kv_cache_mb=1000), "cache") == 1000 << 20, "of each GPU"
    apart = of(4, count=2)
    assert part(apart, "weights") == part(four, "weights")


def test_engines_too_large_for_a_gpu_fit_two() -> None:
    """32B in bf16: 66 GB of weights, of which two GPUs of 40 GB have half each."""

    def refused(width: int) -> bool:
        policy = LORA | {"engine": {"kind": "vllm", "tensor_parallel": width}}
        own = Config.model_validate({"game": {"kind": "unit_tests"}, "generator": policy, "device": "cuda"})
        hardware = card(79.1, 8)
        config = fitted(own, hardware, lambda model: QWEN["32B"])
        found = demands(config, {"generator": QWEN["32B"]})
        engines = [demand for demand in found if demand.of == "a rollout actor's GPU"]
        return bool(memory_plan.over(engines, card(39.4).gpu_bytes))

    assert [refused(width) for width in (1, 2, 4)] == [True, False, False]


def test_engines_of_their_own_have_what_their_gpu_leaves() -> None:
    policy = {"engine": {"kind": "vllm", "count": 2}}
    config = fitted(both(policy), card(79.1, 8), lambda model: QWEN["7B"])
    shapes = dict.fromkeys(config.policies, QWEN["7B"])
    names = {demand.of for demand in demands(config, shapes)}
    assert names >= {"a GPU of the generator's engine", "a GPU of the discriminator's engine"}
    assert "a rollout actor's GPU" not in names
    assert config.generator.engine.gpu_memory_utilization == 0.9 and config.rollout.gpus == 0


def test_what_shares_workers_is_counted_together_on_their_gpu() -> None:
    config = fitted(both(LORA), card(79.1, 2), lambda model: QWEN["7B"])
    found = demands(config, dict.fromkeys(config.policies, QWEN["7B"]))
    assert [demand.of for demand in found] == ["the learners' GPU", "a rollout actor's GPU"]
    assert "discriminator's optimizer" in found[0].parts
