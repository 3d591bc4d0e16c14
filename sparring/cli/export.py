"""Exports a policy of a run as a Hugging Face folder: weights, tokenizer, chat template, model card.

    python -m sparring export RUN --policy generator --to DIR                 whole weights of the best checkpoint
    python -m sparring export RUN --policy generator --to DIR --dtype bf16
    python -m sparring export RUN --policy generator --to DIR --adapter       the LoRA adapter alone
    python -m sparring export RUN --policy generator --to DIR --push OWNER/NAME

DIR can be loaded by transformers, by vLLM and, with --adapter, by peft. It is written completely or not at all.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from learners.checkpoints import ADAPTER, base_of, read_checkpoint
from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.tracking.runs import find_run, of_another_version, read_section

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        export(options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring export", __doc__, of_runs=True)
    parser.add_argument("run", help="a run's directory or name")
    parser.add_argument("--policy", required=True, help="generator or discriminator")
    parser.add_argument(
        "--to", required=True, type=home_path, help="a directory that does not exist or is empty"
    )
    parser.add_argument(
        "--checkpoint", help="step_000012, best or latest. Default: best, if there is one, else latest"
    )
    parser.add_argument(
        "--adapter",
        action="store_true",
        help="write the LoRA adapter alone, in PEFT's format. Default: whole weights, into which an adapter is merged",
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, default="fp32", help="data type of the weights. Default: %(default)s"
    )
    parser.add_argument("--push", metavar="OWNER/NAME", help="also upload it to this repository of the hub")
    return parser.parse_args(arguments)


def export(options: argparse.Namespace) -> None:
    """Exports a policy. Raises SparringError or OSError."""
    run = find_run(options.run, options.output_dir)
    checkpoint = find_checkpoint(run, options.checkpoint)
    check_free(options.to)
    hub = _hub(options.push) if options.push else None

    from sparring.games import GameRules
    from sparring.tracking.model_card import model_card

    state, source = read_checkpoint(checkpoint), checkpoint / options.policy
    if options.policy not in state["versions"]:
        raise SparringError(f"--policy {options.policy}: {run} has {' and '.join(state['versions'])}")
    try:
        game = read_section(GameRules, state["config"], "game", run)
        card = model_card(options.policy, state, game=game, adapter=options.adapter, run=run.name)
    except KeyError as error:
        raise of_another_version(run, f"its checkpoints have no key {error.args[0]}") from None
    with whole_or_not_at_all(options.to) as draft:
        if options.adapter:
            write_adapter(source, draft, options.dtype)
        else:
            write_model(source, draft, options.dtype)
        write_tokenizer(source, draft, "stages" in game.uses)
        (draft / "README.md").write_text(card, "utf-8")
    what = "adapter" if options.adapter else "weights"
    print(f"{options.to}: {what} of {source} ({options.dtype})")
    if hub is not None:
        with _hub_speaks():
            hub.create_repo(options.push, exist_ok=True)
            hub.upload_folder(repo_id=options.push, folder_path=str(options.to))
        print(f"pushed to {options.push}")


def find_checkpoint(run: Path, name: str | None) -> Path:
    """Returns the directory of a checkpoint. Raises SparringError if it does not exist."""
    root = run / "checkpoints"
    there = sorted(p.name for p in root.glob("step_*") if p.is_dir())
    known = [*(["best"] if (root / "best").exists() else []), *there]
    wanted = name or (known[0] if "best" in known else "latest")
    if wanted == "latest" and there:
        wanted = there[-1]
    if wanted not in known:
        raise SparringError(f"{root / wanted}: no such checkpoint; there are: {', '.join(known) or 'none'}")
    return (root / wanted).resolve()


def check_free(target: Path) -> None:
    """Raises SparringError if the target cannot be used; to be called before anything is loaded."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists():
        raise SparringError(f"--to {target}: is not an empty directory; give another")
    if not target.resolve().parent.is_dir():
        raise SparringError(f"--to {target}: its parent directory does not exist; make it first")


@contextmanager
def whole_or_not_at_all(target: Path) -> Iterator[Path]:
    """Yields a directory beside the target, which becomes the target if no error occurs."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.resolve().parent))
    try:
        yield draft
        draft.chmod(0o755)  # only their owner can read the files of mkdtemp and safetensors
        for file in filter(Path.is_file, draft.rglob("*")):
            file.chmod(0o644)
        draft.replace(target.resolve())  # the target may be a link to an empty directory
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# ---------------------------------------------------------------------- what is in it
def write_model(source: Path, target: Path, dtype: str) -> None:
    """Writes whole weights; a LoRA adapter is merged into its base. Raises CheckpointError if the base does not
    exist."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    from learners.adapters import write_merged

    disable_progress_bar()
    if base_of(source) is not None:
        write_merged(source, target, DTYPES[dtype])
        return
    model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, DTYPES[dtype]))
    model.generation_config = GenerationConfig()  # write_tokenizer writes the model's own
    model.save_pretrained(target)


def write_adapter(source: Path, target: Path, dtype: str) -> None:
    """Writes the checkpoint's adapter in peft's format. Raises SparringError if the policy was not tuned by an
    adapter."""
    import torch
    from safetensors.torch import load_file, save_file

    from learners.adapters import WEIGHTS

    if base_of(source) is None:
        raise SparringError(f"--adapter: {source} was tuned without one (learner.lora); leave it out")
    shutil.copy(source / ADAPTER, target)
    tensors = {name: t.to(getattr(torch, DTYPES[dtype])) for name, t in load_file(source / WEIGHTS).items()}
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})


def write_tokenizer(source: Path, target: Path, staged: bool) -> None:
    """Writes the tokenizer with the chat template that the policy was trained with, and a generation config with the
    tokens that end its answers. staged: whether its game has the reasoning stages."""
    from transformers import AutoTokenizer, GenerationConfig

    from learners.files import write_generation
    from sparring.games.prompts import END, TaggedFormat, format_for, served_template

    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    style = format_for(tokenizer)
    tokenizer.chat_template = served_template(tokenizer, source.name, staged) or tokenizer.chat_template
    tokenizer.save_pretrained(target)
    ends = list(style.stop_token_ids())
    if isinstance(style, TaggedFormat):  # an answer goes on through all stages
        ends = [tokenizer.convert_tokens_to_ids(END)]
    try:
        generation = GenerationConfig.from_pretrained(base_of(source) or source)
    except OSError:  # the model has none
        generation = GenerationConfig()
    own = generation.eos_token_id
    known = [own] if isinstance(own, int) else own or []
    generation.eos_token_id = list(dict.fromkeys([*ends, *known]))
    generation.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    write_generation(generation, target)


# ---------------------------------------------------------------------- the hub
def _hub(repository: str) -> Any:
    """Returns the hub's client. Raises SparringError if no user is logged in there; to be called before the work."""
    from huggingface_hub import HfApi

    if repository.count("/") != 1:
        raise SparringError(f"--push {repository}: expected OWNER/NAME")
    hub = HfApi()
    with _hub_speaks():
        hub.whoami()
    return hub


@contextmanager
def _hub_speaks() -> Iterator[None]:
    """Raises SparringError if the hub refuses a request or does not answer."""
    # HTTPError comes from the client that the hub's library uses, httpx or its successor
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
