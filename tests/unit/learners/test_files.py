"""What a model's files hold, beside the weights that are trained."""

import json
from pathlib import Path

import pytest
from transformers import GenerationConfig

from learners.files import write_model
from learners.models import load_model
from tests.learning import save_tiny_model


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
