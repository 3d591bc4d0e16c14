"""Policies on vLLM's engine: token ids in, token ids and sampled log-probabilities out.

If sampling is truncated (top-p, top-k), the log-probabilities are those of the truncated distribution, which differs from
the learner's; training therefore never truncates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind

from actors.settings import ADAPTERS, VllmEngineSettings
from actors.vllm_engine import VllmEngine
from actors.weights import make_receipt, tensors_of
from sparring.core.episode import Completion, FinishReason
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.weights import PublishError, PublishReceipt, WeightUpdate


def sampling_params(sampling: Sampling) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        seed=sampling.seed,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop_token_ids=list(sampling.stop_token_ids),
        stop=list(sampling.stop_texts),
        include_stop_str_in_output=True,
        ignore_eos=True,  # stop_token_ids has all stop tokens, the model's eos included if it is one
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(sampling.stop_texts),
        output_kind=RequestOutputKind.FINAL_ONLY
        if sampling.on_tokens is None
        else RequestOutputKind.CUMULATIVE,
    )


def completion_of(output: Any, version: int | None = None) -> Completion:
    """Converts vLLM's finished RequestOutput. version: the policy version; None takes it from vLLM's output. Raises
    EngineFailure if vLLM aborted the request: such a completion must not be trained on."""
    sampled = output.outputs[0]
    if sampled.finish_reason not in set(FinishReason):
        raise EngineFailure(f"vLLM gave up a completion: {sampled.finish_reason}")
    later: list[tuple[int, int]] = []
    if version is None:
        (version, _), *later = [(int(span.version), span.start) for span in sampled.weight_versions]
    return Completion(
        tokens=sampled.token_ids,
        logprobs=sampled.logprobs.logprobs if sampled.logprobs else (),
        version=version,
        finish_reason=FinishReason(sampled.finish_reason),
        cached=output.num_cached_tokens or 0,
        later=tuple(later),
    )


async def complete(
    engine: VllmEngine,
    prompt: Sequence[int],
    sampling: Sampling,
    version: int | None = None,
    adapter: LoRARequest | None = None,
) -> Completion:
    """Generates one completion. Raises ValueError if the prompt leaves no room in max_model_len."""
    if len(prompt) >= engine.max_model_len:
        raise ValueError(f"prompt of {len(prompt)} tokens does not fit max_model_len {engine.max_model_len}")
    output = await engine.complete(prompt, sampling_params(sampling), adapter, sampling.on_tokens)
    return completion_of(output, version)


async def score(engine: VllmEngine, tokens: Sequence[int], adapter: LoRARequest | None = None) -> list[float]:
    """Returns the log-probabilities of tokens[1:], each given the tokens before it."""
    params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, temperature=0.0)
    output = await engine.complete(tokens, params, adapter)
    rows = (output.prompt_logprobs or [])[1:]
    return [row[token].logprob for row, token in zip(rows, tokens[1:], strict=True)]


class VllmPolicy:
    """A policy that has a separate engine, whose weights are replaced in place."""

    def __init__(self, model: str, settings: VllmEngineSettings, device: str = "cpu") -> None:
        """Raises EngineFailure if the engine does not start."""
        self._engine = VllmEngine(model, settings, device)
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Generates one completion. Raises ValueError if the prompt leaves no room in max_model_len."""
        return await complete(self._engine, prompt_tokens, sampling)

    async def score(self, tokens: Sequence[int]) -> list[float]:
        return await score(self._engine, tokens)

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Replaces the weights in place; requests in flight continue with the new weights. Raises PublishError if the engine
        still has the old weights."""
        tensors = tensors_of(update)

        def reload(_: str) -> bool:
            self._engine.wake("weights")  # the cache, which takes more memory, is woken with the next request
            loaded = self._engine.reload(tensors, update.digest)
            self._engine.renew(update.version)
            return loaded

        if not await self._engine.ask(reload):
            raise PublishError(
                f"version {update.version}: other weights were published, and the engine has the old ones"
            )
        self._version = update.version
        return await make_receipt(update, self.score)

    async def sleep(self) -> None:
        await self._engine.sleep()

    async def close(self) -> None:
        await self._engine.close()


class AdapterPolicy:
    """A policy that is a LoRA adapter on an engine's backbone, possibly beside adapters of other policies. Each policy
    version is a separate adapter, so that requests in flight are completed by the version that they began with."""

    def __init__(self, engine: VllmEngine, adapter: LoRARequest, most: int) -> None:
        """adapter: one of engine.first_adapters; most: number of versions of the adapter that the engine can hold."""
        self._engine, self._version, self._most = engine, 0, most
        self._loaded = [adapter]
        """The loaded versions, oldest first; new requests use the last one."""

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Generates one completion. Raises ValueError if the prompt leaves no room in max_model_len."""
        adapter = self._loaded[-1]
        try:
            return await complete(self._engine, prompt_tokens, sampling, self._version, adapter)
        finally:
            self._unload_drained()

    async def score(self, tokens: Sequence[int]) -> list[float]:
        return await score(self._engine, tokens, self._loaded[-1])

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Loads the new version as a further adapter. If the engine can hold no more versions, the oldest one is unloaded
        and its requests are cancelled. Raises PublishError if the engine's adapter differs from the learner's."""
        if update.adapter is None:
            raise PublishError(f"version {update.version}: all weights were published to an adapter's engine")
        while len(self._loaded) >= self._most:
            self._unload(self._loaded[0])
        adapter, tensors = self._engine.next_adapter(update.version), tensors_of(update)

        def put(_: str) -> bool:
            rank, alpha = update.adapter or (1, 1)
            self._engine.wake("weights")
            return self._engine.call("put_adapter", adapter.lora_int_id, tensors, rank, alpha)

        if not await self._engine.ask(put):
            raise PublishError(f"version {update.version}: the engine's adapter is not the published one")
        self._loaded.append(adapter)
        self._version = update.version
        self._unload_drained()
        return await make_receipt(update, self.score)

    async def sleep(self) -> None:
        """Puts the engine, and so all of its policies, to sleep."""
        await self._engine.sleep()

    async def close(self) -> None:
        await self._engine.close()

    def _unload_drained(self) -> None:
        for adapter in self._loaded[:-1]:
            if not self._engine.serves(adapter):
                self._unload(adapter)

    def _unload(self, adapter: LoRARequest) -> None:
        self._loaded.remove(adapter)
        abort = self._engine.cancel(adapter)

        def drop() -> None:
            abort()
            self._engine.call("drop_adapter", adapter.lora_int_id)

        self._engine.tell(drop)


def adapter_policies(
    model: str, settings: VllmEngineSettings, device: str, ranks: Mapping[str, int], versions: int = ADAPTERS
) -> dict[str, AdapterPolicy]:
    """Starts one engine and returns its policies. ranks: by policy, the rank of its adapter; versions: number of versions of
    each adapter that the engine can hold. Raises EngineFailure if the engine does not start."""
    engine = VllmEngine(model, settings, device, list(ranks.values()), versions)
    firsts = zip(ranks, engine.first_adapters, strict=True)
    return {name: AdapterPolicy(engine, first, versions) for name, first in firsts}
