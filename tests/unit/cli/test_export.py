import json
import shutil
from pathlib import Path

from transformers import GenerationConfig

from sparring.cli.export import write_model, write_tokenizer
from sparring.core.project_files import EXAMPLES


def test_flags_that_transformers_would_not_save_are_exported(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLES / "toy/generator", tmp_path / "generator")
    target = tmp_path / "out"
    target.mkdir()
    (source / "generation_config.json").write_text(json.dumps({"temperature": 0.9}))
    write_model(source, target, "fp32")
    write_tokenizer(source, target, staged=True)
    assert GenerationConfig.from_pretrained(target).temperature == 0.9
