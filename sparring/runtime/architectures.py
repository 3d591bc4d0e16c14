"""Checks whether transformers and vLLM support a model's architecture, before the model is loaded."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from learners.checkpoints import base_of


def check_generates_text(config: Any) -> None:
    """Raises ValueError if transformers has no causal language model for this config."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError(f"its architecture {config.model_type} is no causal language model of transformers")


def unknown_to_vllm(model: str) -> str | None:
    """Returns a model's architecture if the installed vLLM cannot load it, by itself or by transformers'
    implementation; else None.

    Args:
        model: directory or hub id. If its config cannot be read, None is returned: loading its tokenizer reports that.
    """
    from transformers import AutoConfig

    package = find_spec("vllm")
    try:
        named = (
            AutoConfig.from_pretrained(base_of(model) or model, trust_remote_code=False).architectures or []
        )
    except (OSError, ValueError):
        return None
    if package is None or not package.submodule_search_locations:
        return None
    # importing vLLM takes seconds: it is imported only if its list of models, read as text, lacks the architectures
    listed = Path(package.submodule_search_locations[0], "model_executor", "models", "registry.py").read_text(
        "utf-8"
    )
    if not named or any(f'"{name}": (' in listed for name in named) or any(map(_vllm_loads, named)):
        return None
    return named[0]


def _vllm_loads(architecture: str) -> bool:
    import transformers
    from vllm import ModelRegistry
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    theirs: Any = getattr(transformers, architecture, None)
    by_transformers = theirs and (theirs.is_backend_compatible() or theirs._can_set_attn_implementation())
    return architecture in ModelRegistry.get_supported_archs() or bool(by_transformers)
