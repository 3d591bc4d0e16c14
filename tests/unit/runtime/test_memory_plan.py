"""What a GPU has to hold, by arithmetic: against autograd's own count, and by model and card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from configs.load import load_run
from configs.schema import Config
from learners.attention import PACKED
from learners.models import score_tokens
from learners.packing import row_of
from runtime import memory_plan
from runtime.hardware import Hardware, fitted
from runtime.memory_plan import GB, Shape, activations, demands, refusal, shape_of, ways_out

PAGE = Path(__file__).parents[3] / "docs" / "hardware.md"
QWEN = {  # Qwen2.5-Coder, by their config.json
    "0.5B": Shape(
        parameters=494_032_768, linear=357_826_560, adapter=549_888,
        layers=24, hidden=896, intermediate=4864, keys=128, vocabulary=151_936,
    ),
    "1.5B": Shape(
        parameters=1_543_714_304, linear=1_310_195_712, adapter=1_154_048,
        layers=28, hidden=1536, intermediate=8960, keys=256, vocabulary=151_936,
    ),
    "3B": Shape(
        parameters=3_085_938_688, linear=2_774_532_096, adapter=1_870_848,
        layers=36, hidden=2048, intermediate=11_008, keys=256, vocabulary=151_936,
    ),
    "7B": Shape(
        parameters=7_615_616_512, linear=6_525_288_448, adapter=2_523_136,
        layers=28, hidden=3584, intermediate=18_944, keys=512, vocabulary=152_064,
    ),
    "14B": Shape(
        parameters=14_770_033_664, linear=13_212_057_600, adapter=4_300_800,
        layers=48, hidden=5120, intermediate=13_824, keys=1024, vocabulary=152_064,
    ),
    "32B": Shape(
        parameters=32_763_876_352, linear=31_205_621_760, adapter=8_388_608,
        layers=64, hidden=5120, intermediate=27_648, keys=1024, vocabulary=152_064,
    ),
}  # fmt: skip


def card(gib: float, gpus: int = 1) -> Hardware:
    return Hardware(
        gpus=gpus, gpu="a GPU", gpu_memory_gib=gib, capability=(9, 0), cpu_cores=16, memory_gib=200.0, offline=False
    )  # fmt: skip


L4, H100 = card(22.2), card(79.1)
LORA: dict[str, Any] = {"learner": {"lora": {"rank": 16}}}
FSDP: dict[str, Any] = {
    "learner": {"estimator": {"kind": "grpo"}, "workers": 7, "sharding": "fsdp", "kl": {"kind": "none"}},
    "engine": {"kind": "vllm"},
}  # fmt: skip


def both(policy: Mapping[str, Any]) -> Config:
    return Config.model_validate({"generator": policy, "discriminator": policy})


# ---------------------------------------------------------------------- against autograd
SMALL: list[tuple[type[PretrainedConfig], dict[str, int]]] = [
    (Qwen2Config, {"hidden_size": 128, "intermediate_size": 448, "num_attention_heads": 4, "num_key_value_heads": 2}),
    (LlamaConfig, {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4}),
]  # fmt: skip


def left_for_the_gradient(config: PretrainedConfig, tokens: int, half: bool, again: bool) -> int:
    """Bytes that autograd keeps of a forward pass, parameters apart."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED, dtype=torch.float32).train()
    if again:
        model.gradient_checkpointing_enable()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    row = row_of([list(range(1, 33))] * (tokens // 32))
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
        """Of a token in a layer: what a layer and 64 tokens more leave."""
        of = {
            n: [left_for_the_gradient(config, n, half, again) for config in (two, three)] for n in (64, 128)
        }
        return ((of[128][1] - of[128][0]) - (of[64][1] - of[64][0])) / 64

    assert activations(shape, half) == pytest.approx(counted(again=False), rel=0.05)
    assert counted(again=True) == 4 * shape.hidden, "with checkpointing, a layer's input"


def test_shapes_are_read_from_a_config_alone(tmp_path) -> None:
    Qwen2Config(
        hidden_size=896, num_hidden_layers=24, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=151_936, tie_word_embeddings=True,
    ).save_pretrained(tmp_path)  # fmt: skip
    assert shape_of(str(tmp_path)) == QWEN["0.5B"]
    assert shape_of(str(tmp_path / "nothing")) is None


# ---------------------------------------------------------------------- what fits where
@pytest.mark.parametrize(
    ("size", "policy", "hardware", "gb"),
    [
        ("1.5B", {}, H100, 73),  # two in full on a card of 80 GB
        ("7B", {}, H100, None),
        ("7B", LORA, H100, 81),
        ("1.5B", {}, L4, None),
        ("1.5B", LORA, L4, 22),
        ("7B", LORA, L4, None),
        ("32B", LORA, H100, None),
        ("0.5B", {}, L4, None),
        ("0.5B", LORA, L4, 15),
    ],
)
def test_what_fits_one_gpu(size: str, policy: dict[str, Any], hardware: Hardware, gb: int | None) -> None:
    config = fitted(both(policy), hardware, lambda model: QWEN[size])
    shapes = dict.fromkeys(config.policies, QWEN[size])
    (found,) = demands(config, shapes)
    refused = refusal([found], hardware.gpu_bytes, ways_out(config, shapes, hardware.gpu_bytes))
    assert (refused is None) == (gb is not None), found.describe(hardware.gpu_bytes)
    if gb is not None:
        assert round(found.bytes / GB) == gb


NO_ROOM = {"gradient_checkpointing": False, "microbatch_tokens": 32768}


@pytest.mark.parametrize(
    ("learner", "size", "hardware", "first"),
    [
        ({}, "1.5B", L4, "lora.rank 16"),
        (NO_ROOM, "1.5B", H100, "gradient-checkpointing"),
        ({"kl": {"kind": "loss", "coefficient": 0.1}}, "1.5B", L4, "lora.rank 16"),
        (NO_ROOM | {"kl": {"kind": "loss", "coefficient": 0.1}}, "7B", H100, None),
    ],
)
def test_ways_out_are_ways_out(learner: dict, size: str, hardware: Hardware, first: str | None) -> None:
    """Each option is one that the command line knows, and with it the plan fits."""
    config = fitted(both({"learner": learner}), hardware, lambda model: QWEN[size])
    shapes = dict.fromkeys(config.policies, QWEN[size])
    assert memory_plan.over(demands(config, shapes), hardware.gpu_bytes)
    ways = ways_out(config, shapes, hardware.gpu_bytes)
    assert (ways[0].split(".", 2)[2].split(" --")[0] if ways else None) == first
    for way in ways:
        options = [
            word for option in way.split(" --") for word in ("--" + option.removeprefix("--")).split(" ")
        ]
        taken = load_run([*options, "--generator-model", "a/b", "--discriminator-model", "a/b"])[
            0
        ].to_config()
        asked = {"learner": taken.generator.learner.model_dump(exclude_unset=True)}
        again = fitted(both(asked), hardware, lambda model: QWEN[size])
        assert not memory_plan.over(demands(again, shapes), hardware.gpu_bytes)


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


RECIPES = [
    ("notebook", "0.5B", card(14.6)),
    ("single_gpu:16gb", "0.5B", card(14.6)),
    ("single_gpu", "1.5B", L4),
    ("single_gpu:80gb", "1.5B", H100),
    ("single_gpu:80gb_7b", "7B", H100),
    ("q", "1.5B", card(22.2, 8)),
    ("q:3b", "3B", card(22.2, 8)),
    ("q:7b", "7B", card(39.4, 8)),
    ("q:14b", "14B", card(79.1, 8)),
    ("q:32b", "32B", card(79.1, 16)),
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
