"""A policy of a run as a Hugging Face folder: weights, tokenizer, chat template, model card.

    python -m scripts.export RUN --policy generator --to DIR                 whole weights of the best checkpoint
    python -m scripts.export RUN --policy generator --to DIR --dtype bf16
    python -m scripts.export RUN --policy generator --to DIR --adapter       the LoRA adapter alone
    python -m scripts.export RUN --policy generator --to DIR --push OWNER/NAME

transformers, peft and vLLM load what is in DIR. It is there completely or not at all.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the rooms are found from the root
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.commands import parser_of, plain_endings
from core.errors import SparringError
from tracking.runs import find_run

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        export(options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("scripts.export", __doc__)
    parser.add_argument("run", help="a run's directory or name")
    parser.add_argument("--policy", required=True, help="generator or discriminator")
    parser.add_argument("--to", required=True, type=Path, help="a directory that is not there, or empty")
    parser.add_argument("--checkpoint", help="step_000012, best or latest; default: best, where there is one")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--merge", action="store_true", help="whole weights, a LoRA adapter merged (the default)"
    )
    kind.add_argument("--adapter", action="store_true", help="the LoRA adapter alone, in peft's format")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="of the weights (%(default)s)")
    parser.add_argument("--push", metavar="OWNER/NAME", help="upload it, too: to this repository of the hub")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("output"), help="where runs are (%(default)s)"
    )
    return parser.parse_args(arguments)


def export(options: argparse.Namespace) -> None:
    """Raises SparringError, OSError."""
    run = find_run(options.run, options.output_dir)
    checkpoint = find_checkpoint(run, options.checkpoint)
    _check_free(options.to)
    hub = _hub(options.push) if options.push else None

    from learners.checkpoints import read_checkpoint  # with all of torch
    from tracking.model_card import model_card

    state, source = read_checkpoint(checkpoint), checkpoint / options.policy
    if options.policy not in state["versions"]:
        raise SparringError(f"--policy {options.policy}: {run} has {' and '.join(state['versions'])}")
    with _whole_or_not_at_all(options.to) as draft:
        if options.adapter:
            write_adapter(source, draft, state["config"], options.dtype)
        else:
            write_model(source, draft, options.dtype)
        write_tokenizer(source, draft, state["config"], options.policy)
        card = model_card(options.policy, state, adapter=options.adapter, run=run.name)
        (draft / "README.md").write_text(card)
    what = "adapter" if options.adapter else "weights"
    print(f"{options.to}: {what} of {source} ({options.dtype})")
    if hub is not None:
        with _hub_speaks():
            hub.create_repo(options.push, exist_ok=True)
            hub.upload_folder(repo_id=options.push, folder_path=str(options.to))
        print(f"pushed to {options.push}")


def find_checkpoint(run: Path, name: str | None) -> Path:
    """Raises SparringError."""
    root = run / "checkpoints"
    there = sorted(p.name for p in root.glob("step_*") if p.is_dir())
    known = [*(["best"] if (root / "best").exists() else []), *there]
    wanted = name or (known[0] if "best" in known else "latest")
    if wanted == "latest" and there:
        wanted = there[-1]
    if wanted not in known:
        raise SparringError(f"{root / wanted}: no such checkpoint; there are: {', '.join(known) or 'none'}")
    return (root / wanted).resolve()


def _check_free(target: Path) -> None:
    """Raises SparringError, before anything is loaded."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists():
        raise SparringError(f"--to {target}: is not an empty directory; give another")
    if not target.resolve().parent.is_dir():
        raise SparringError(f"--to {target}: its parent directory does not exist; make it first")


@contextmanager
def _whole_or_not_at_all(target: Path) -> Iterator[Path]:
    """A directory beside the target, which becomes the target."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.resolve().parent))
    try:
        yield draft
        draft.chmod(0o755)  # mkdtemp's are for their owner alone, as are safetensors' files
        for file in draft.iterdir():
            file.chmod(0o644)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# ---------------------------------------------------------------------- what is in it
def write_model(source: Path, target: Path, dtype: str) -> None:
    """Whole weights: a checkpoint has a LoRA adapter merged into them."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, DTYPES[dtype]))
    model.save_pretrained(target)


def write_adapter(source: Path, target: Path, config: Mapping[str, Any], dtype: str) -> None:
    """In peft's format. Raises SparringError where the policy was not tuned by one."""
    import torch
    from peft import LoraConfig
    from safetensors.torch import save_file

    from learners.checkpoints import STATE_FILE

    of_policy = config[source.name]
    lora = of_policy["learner"]["lora"]
    if lora is None:
        raise SparringError(f"--adapter: {source} was tuned without one (learner.lora); leave it out")
    saved = torch.load(source / STATE_FILE, map_location="cpu", weights_only=True)["adapter"]
    tensors = {
        _peft_name(name): t.to(getattr(torch, DTYPES[dtype])).contiguous() for name, t in saved.items()
    }
    modules = {name.split(".lora_")[0].rsplit(".", 1)[-1] for name in tensors}
    adapter = LoraConfig(
        base_model_name_or_path=_base(config, source.name),
        r=lora["rank"],
        lora_alpha=lora["alpha"],
        lora_dropout=0.0,
        target_modules=sorted(modules),
        task_type="CAUSAL_LM",
        inference_mode=True,
    )
    adapter.save_pretrained(str(target))
    save_file(tensors, target / "adapter_model.safetensors", metadata={"format": "pt"})


def _peft_name(name: str) -> str:
    """Example: layers.0.q_proj.lora_A.generator.weight -> base_model.model.layers.0.q_proj.lora_A.weight"""
    return "base_model.model." + re.sub(r"\.(lora_[AB])\.[^.]+\.weight$", r".\1.weight", name)


def _base(config: Mapping[str, Any], policy: str) -> str:
    """Hub id or directory of the model that the adapter is for."""
    from configs.schema import Config
    from configs.sections import EMBEDDED
    from embedded.teaching import find_embedded

    model = config[policy]["model"]
    if model != EMBEDDED:
        return model
    of_run = Config.model_validate(config)
    return str(find_embedded(policy, of_run.game, of_run.warm_start))


def write_tokenizer(source: Path, target: Path, config: Mapping[str, Any], policy: str) -> None:
    """With the chat template that the policy was trained with, and the tokens that end its answers as the generation
    config's."""
    from pydantic import TypeAdapter
    from transformers import AutoTokenizer, GenerationConfig

    from games import GameRules
    from games.prompts import END, TaggedFormat, format_for, served_template

    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    staged = "stages" in TypeAdapter(GameRules).validate_python(config["game"]).uses
    style = format_for(tokenizer)
    tokenizer.chat_template = served_template(tokenizer, policy, staged) or tokenizer.chat_template
    tokenizer.save_pretrained(target)
    ends = list(style.stop_token_ids())
    if isinstance(style, TaggedFormat):  # it goes on through its stages
        ends = [tokenizer.convert_tokens_to_ids(END)]
    generation = (
        GenerationConfig.from_pretrained(source)
        if (source / "generation_config.json").is_file()
        else GenerationConfig()
    )
    generation.eos_token_id = ends
    generation.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    generation.save_pretrained(target)


# ---------------------------------------------------------------------- the hub
def _hub(repository: str) -> Any:
    """Raises SparringError where nobody is logged in there: before the work, not after."""
    from huggingface_hub import HfApi

    if repository.count("/") != 1:
        raise SparringError(f"--push {repository}: expected OWNER/NAME")
    hub = HfApi()
    with _hub_speaks():
        hub.whoami()
    return hub


@contextmanager
def _hub_speaks() -> Iterator[None]:
    """Raises SparringError for what the hub refuses, and where it does not answer."""
    # HTTPError: of the client that the hub's library uses, httpx or its successor
    from huggingface_hub.errors import HTTPError, LocalTokenNotFoundError

    try:
        yield
    except LocalTokenNotFoundError:
        raise SparringError("--push: nobody is logged in: set HF_TOKEN, or run `hf auth login`") from None
    except (HTTPError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SparringError(
            f"--push: the hub says: {reason}; what is in --to can be uploaded by `hf upload`"
        ) from error


if __name__ == "__main__":
    main(sys.argv[1:])
