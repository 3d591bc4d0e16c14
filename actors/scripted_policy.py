"""A policy that says what it is told: for tests of games and loops. No model."""

from collections.abc import Callable, Sequence

from core.episode import Completion, FinishReason
from core.interfaces import Sampling
from core.weights import PublishReceipt, WeightUpdate


class ScriptedPolicy:
    """`script` maps (prompt tokens, sampling) to the tokens of the completion, its stop token included."""

    def __init__(self, script: Callable[[Sequence[int], Sampling], Sequence[int]]) -> None:
        self._script = script
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        tokens = tuple(self._script(prompt_tokens, sampling))[: sampling.max_tokens]
        stopped = bool(tokens) and tokens[-1] in sampling.stop_token_ids
        return Completion(
            tokens=tokens,
            logprobs=(0.0,) * len(tokens),  # it is certain
            version=self._version,
            finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        )

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """It has no weights; it takes the version and says that nothing differs."""
        self._version = update.version
        return PublishReceipt(version=update.version, digest=update.digest, probe_difference=0.0)

    async def close(self) -> None:
        pass
