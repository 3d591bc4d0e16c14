"""The warm start of a user's own model on a user's own problems, and of the embedded models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from configs.schema import Config
from embedded.model import build_model, build_tokenizer
from embedded.problems import embedded_problems, embedded_specs
from embedded.traces import clean_trace
from games.prompts import END, MARKER_TOKENS, PAD, TaggedFormat
from runtime.problem_sets import load_splits
from scripts.warm_start import WarmStart, shown_problems, warm_start

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "problems" / "example_problems.json"


@pytest.mark.parametrize("role", ["generator", "discriminator"])
def test_a_users_model_learns_from_a_users_problems(chat_model: Path, tmp_path: Path, role: str) -> None:
    def run(steps: int) -> float:
        settings = WarmStart(
            _cli_parse_args=False,  # type: ignore[call-arg]
            model=str(chat_model),
            problems_file=EXAMPLES,
            role=role,  # type: ignore[arg-type]
            output=tmp_path / f"{role}-{steps}",
            steps=steps,
            batch_size=2,
            learning_rate=3e-3,
        )
        return warm_start(settings)

    assert run(12) < run(1)
    AutoModelForCausalLM.from_pretrained(tmp_path / f"{role}-12")
    assert AutoTokenizer.from_pretrained(tmp_path / f"{role}-12").chat_template


def test_what_the_driver_holds_out_is_not_shown(tmp_path: Path) -> None:
    settings = WarmStart(
        _cli_parse_args=False,  # type: ignore[call-arg]
        model="m", problems_file=EXAMPLES, role="generator", output=tmp_path,
    )  # fmt: skip
    train, held_out = load_splits(Config.model_validate({"problems": {"file": str(EXAMPLES)}}))
    assert shown_problems(settings) == train and held_out


def test_what_is_wrong_with_the_arguments_is_said_in_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "scripts.warm_start",
        "--model",
        str(tmp_path / "none"),
        "--role",
        "generator",
    ]
    command += ["--problems-file", str(tmp_path / "none.json"), "--output", str(tmp_path / "out")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.returncode == 2
    assert "none.json" in done.stderr and "Traceback" not in done.stderr


def test_the_embedded_tokenizer_comes_back_as_it_was_trained(tmp_path: Path) -> None:
    """transformers reloads every Qwen2 model's tokenizer as one class; ours must survive that."""
    specs = embedded_specs("train")[:200]
    texts = [text for spec in specs for text in clean_trace(spec)]
    tokenizer = build_tokenizer(texts, MARKER_TOKENS, PAD, END)
    tokenizer.save_pretrained(tmp_path)
    build_model(tokenizer, seed=0).save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert [again.encode(t) for t in texts] == [tokenizer.encode(t) for t in texts]
    assert all(again.decode(again.encode(t)) == t for t in texts)
    style = TaggedFormat(again)
    prompt = style.generator_prompt(embedded_problems("train")[0])
    assert again.decode(prompt).startswith("<p>") and again.decode(prompt).endswith("<s1>")
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model(torch.tensor([prompt])).logits.shape[-1] >= len(again)
