"""What makes no sense is refused. Keys of another kind than the one that is said: tests/unit/configs/test_layers.py."""

import pytest

from learners.settings import LearnerSettings

LORA = {"lora": {"rank": 4, "alpha": 8}}
GRPO = {"estimator": {"kind": "grpo"}}
FSDP = {"sharding": "fsdp", "workers": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (GRPO | {"kl": {"kind": "reward", "coefficient": 0.1}}, r"kl\.kind reward needs"),
        ({"kl": {"estimator": "k2"}}, r"kl\.watched\.estimator"),
        ({"kl": {"kind": "loss"}}, r"kl\.loss\.coefficient"),
        ({"kl": {"kind": "loss", "estimator": "k1", "coefficient": 0.1}}, r"kl\.loss\.estimator"),
        ({"objective": "cispo", "dual_clip": 3.0}, "dual_clip has no effect with objective cispo"),
        ({"objective": "gspo"} | GRPO, "gspo is defined on sequences"),
        ({"objective": "gspo", "loss_normaliser": "sequence"}, "gspo is defined on sequences"),
        ({"importance_cap": 0.5}, "importance_cap is 1 or more, or 0 for no correction, not 0.5"),
        ({"loss_normaliser": "constant"}, "max_loss_tokens belongs to"),
        ({"max_loss_tokens": 100}, "max_loss_tokens belongs to"),
        ({"schedule": {"kind": "cosine"}}, r"schedule\.cosine\.decay_updates"),
        ({"schedule": {"decay_updates": 100}}, r"schedule\.constant\.decay_updates"),
        ({"schedule": {"kind": "linear", "decay_updates": 5, "warmup_updates": 5}}, "beyond warmup_updates"),
        (LORA | {"trainable_layers": 1}, "trainable_layers has no effect with lora"),
        ({"lora": {"quantize": "4bit"}} | FSDP, "quantize does not go with sharding fsdp"),
        ({"sharding": "fsdp"}, "sharding fsdp has no effect with workers 1"),
        (FSDP | {"estimator": {"critic": "model"}}, "sharding fsdp goes with"),
        (FSDP | {"precision": "fp16"}, "sharding fsdp goes with"),
        (FSDP | {"offload": "all"}, "offload all goes with sharding none"),
        ({"lora": {"quantize": "4bit"}, "offload": "all"}, "offload all does not go with lora.quantize 4bit"),
        ({"workers": 2, "min_workers": 3}, "min_workers .3. is above workers .2."),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LearnerSettings(**settings)
