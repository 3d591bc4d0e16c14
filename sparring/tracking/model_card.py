"""Writes README.md of an exported policy: its scores, training data, settings and limits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.core.project_files import is_example, located
from sparring.games.rules import Rules

TOY = "sparring_toy"
"""Metadata key under which a toy model's card says what the model is for: {"recipe", "example", "function", "max_tokens"}, the
recipe that trains it, a problem that it can solve (or ""), the name of the function that its programs define, and the
maximum length of a turn in tokens."""

_LIMITS = """\
* The model was trained by reinforcement learning to write programs that pass tests in a sandbox. Use it for programs
  only, and run its programs in a sandbox, too.
* The figures are from one run with one seed, on the held-out problems named above; other problems may give others.
* Nothing was trained that the reward does not measure: style, safety, speed, other programming languages."""


def model_card(policy: str, state: Mapping[str, Any], *, game: Rules, adapter: bool, run: str) -> str:
    """Returns the text of the card.

    Args:
        state: the state of the checkpoint.
        game: the game of its run.
    """
    from huggingface_hub import (
        EvalResult,
        ModelCardData,
    )  # it reads HF_HUB_CACHE, which a run sets, when imported

    config = state["config"]
    of_policy, before = config[policy], state["parts"]["recorder"]["before"]
    held_out = state["row"].get("held_out") or {}
    toy: Any = read_toy(located(of_policy["model"])) if is_example(of_policy["model"]) else {}
    own = "problems" not in game.uses
    data_set = f"game {config['game']['kind']}" if own else config["problems"]["file"]
    data = ModelCardData(
        model_name=f"{run}-{policy}",
        base_model=of_policy["model"] if _is_hub_id(of_policy["model"]) else None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["reinforcement-learning", "code", "sparring", config["game"]["kind"]],
        eval_results=[
            EvalResult(
                task_type="text-generation",
                dataset_type="problems",
                dataset_name=data_set,
                metric_type=name,
                metric_value=round(value, 4),
            )
            for name, value in held_out.items()
        ],
        **({TOY: toy | {"max_tokens": of_policy["max_tokens"]}} if toy else {}),
    )
    limit = f"\n* {describe_toy(toy)}" if toy else ""
    told = "The game makes its own problems." if own else _data(config["problems"])
    base = "a toy model of the project" if toy else of_policy["model"]
    weights = f"A LoRA adapter of {base}" if adapter else f"The weights of {base}, trained"
    return f"""---
{data.to_yaml()}
---
# {run}: {policy}

{weights} as the **{policy}** of the game `{config["game"]["kind"]}`, {_steps(policy, state)}.

## Figures

{_figures(before, held_out)}

## Data

{told}

## Training

{_training(config, of_policy)}

## Use

{_use(adapter)}

## Limits

{_LIMITS}{limit}

## Made with

{", ".join(f"{name} {version}" for name, version in state["versions_of_packages"].items())}; saved {state["time"]}.
"""


def read_toy(model: Path) -> dict[str, Any]:
    """Returns what a toy model's card says under TOY. Empty if the model has no card, or if it is no toy model."""
    card = model / "README.md"
    if not card.is_file() or TOY not in card.read_text(
        "utf-8", errors="replace"
    ):  # cards of others may be damaged
        return {}
    from huggingface_hub import ModelCard

    return ModelCard.load(card).data.to_dict().get(TOY, {})


def describe_toy(toy: Mapping[str, Any]) -> str:
    """Returns a description of a toy model for its users, with an example of a problem that it can solve after training.

    toy: see `read_toy`.
    """
    such = f', such as "{toy["example"]}"' if toy.get("example") else ""
    return (
        "This is a toy model of 0.4M parameters: it shows that training works, and is of no other use. "
        f"It understands only texts of one kind{such}."
    )


def _is_hub_id(model: str) -> bool:
    return model.count("/") == 1 and not model.startswith((".", "/", "~")) and not Path(model).exists()


def _steps(policy: str, state: Mapping[str, Any]) -> str:
    stage = state["row"].get("stage")
    at = f" of stage {stage}" if stage else ""
    return f"after {state['versions'][policy]} updates (step {state['step']}{at} of the run)"


def _figures(before: Mapping[str, float], held_out: Mapping[str, float]) -> str:
    if not held_out:
        return "No held-out evaluation was made at this step."
    rows = [
        f"| {name.replace('_', ' ')} | {_figure(before.get(name))} | {_figure(value)} |"
        for name, value in held_out.items()
    ]
    return "\n".join(["| held out | before the run | this checkpoint |", "|---|---|---|", *rows])


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _data(problems: Mapping[str, Any]) -> str:
    split = f", split {problems['split']}" if problems.get("split") else ""
    held_out = problems["held_out"]
    aside = (
        held_out["file"] if held_out["kind"] == "file" else f"{held_out['fraction']:.0%} of them, set aside"
    )
    return f"Problems: {problems['file']} (format {problems['format']}{split}). Held out: {aside}."


def _training(config: Mapping[str, Any], of_policy: Mapping[str, Any]) -> str:
    learner = of_policy["learner"]
    lora = learner["lora"]
    rate = config["learning_rate"] * learner["learning_rate_scale"]
    told = {
        "estimator": learner["estimator"]["kind"],
        "objective": learner["objective"],
        "learning rate": f"{rate:g}",
        "tuned": f"LoRA, rank {lora['rank']}, alpha {lora['alpha']}" if lora else "weights",
        "sampling temperature": f"{config['temperature']:g}",
        "seed": config["seed"],
    }
    return "\n".join(f"* {key}: {value}" for key, value in told.items())


def _use(adapter: bool) -> str:
    if adapter:
        return (
            "`peft.AutoPeftModelForCausalLM.from_pretrained(HERE)` puts the adapter on its base model, which "
            "`adapter_config.json` names."
        )
    return (
        "`transformers.AutoModelForCausalLM.from_pretrained(HERE)`, or `vllm serve HERE`. The chat template is the one "
        "with which the model was trained."
    )
