"""Arguments that engine.extra passes to vLLM."""

import pytest
from pydantic import ValidationError

from actors.settings import OWN_ARGUMENTS, VllmEngineSettings
from configs.load import load_run
from sparring.core.project_files import EXAMPLES


@pytest.mark.parametrize("name", OWN_ARGUMENTS)
def test_an_argument_that_has_a_key_or_must_not_change_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} is "):
        VllmEngineSettings(extra={name: 1})


@pytest.mark.vllm
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_other_arguments_reach_vllm_and_replace_ours(device: str) -> None:
    from actors.vllm_engine import engine_args

    model = str(EXAMPLES / "toy/generator")
    words = ["--generator.engine.extra", '{"max_num_batched_tokens": 7000, "enable_prefix_caching": false}']
    settings = load_run(["--config", "chat", *words])[0].to_config().generator.engine
    assert isinstance(settings, VllmEngineSettings)
    made = engine_args(model, settings, device)
    assert (made.max_num_batched_tokens, made.enable_prefix_caching, made.model) == (7000, False, model)
    assert engine_args(model, VllmEngineSettings(), device).enable_prefix_caching is not False


@pytest.mark.vllm
def test_every_argument_that_is_ours_is_one_of_vllm() -> None:
    from vllm.engine.arg_utils import EngineArgs

    assert set(OWN_ARGUMENTS) <= set(EngineArgs.__dataclass_fields__)
