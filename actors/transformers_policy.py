"""A policy on plain transformers: the portable engine, and the reference that vLLM is compared with.

Requests of one play (sparring.core.play.PLAY) that wait at the same moment are decoded as one left-padded batch. The batch is formed
when the event loop has nothing else to run, so that the same play always gives the same batches, and bit-identical
results, whatever else is played at the same time.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from actors.settings import MAX_NUM_SEQS, CommonEngineSettings
from actors.weights import make_receipt, tensors_of
from sparring.core.episode import Completion, FinishReason
from sparring.core.interfaces import Sampling
from sparring.core.play import PLAY
from sparring.core.weights import PublishReceipt, WeightUpdate

transformers_logging.disable_progress_bar()  # a bar per load would drown the run's own display


@dataclass(slots=True)
class _Request:
    prompt: list[int]
    sampling: Sampling
    answer: asyncio.Future[Completion]


class TransformersPolicy:
    def __init__(self, model: str, settings: CommonEngineSettings, device: str = "cpu") -> None:
        dtype = getattr(torch, settings.dtype or "float32")
        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        self._model.to(device).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self._settings, self._device = settings, torch.device(device)
        self._waiting: dict[object, list[_Request]] = {}
        """Waiting requests, by play."""
        self._draining: dict[object, asyncio.Task[None]] = {}
        self._asleep = False
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Generates one completion. Raises ValueError if the prompt leaves no room in max_model_len."""
        room = self._settings.max_model_len - len(prompt_tokens)
        if room < 1:
            raise ValueError(
                f"prompt of {len(prompt_tokens)} tokens does not fit max_model_len {self._settings.max_model_len}"
            )
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        play = PLAY.get()
        self._waiting.setdefault(play, []).append(_Request(list(prompt_tokens), sampling, answer))
        if play not in self._draining:
            self._draining[play] = asyncio.create_task(self._drain(play))
        return await answer

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Returns the log-probabilities of tokens[1:], each given the tokens before it."""
        self._wake()
        ids = torch.tensor([list(tokens)], device=self._device)
        with torch.no_grad():
            logprobs = self._model(ids).logits[0, :-1].float().log_softmax(-1)
        return logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist()

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        self._wake()
        missing, unexpected = self._model.load_state_dict(dict(tensors_of(update)), strict=False)
        tied = {"lm_head.weight"}
        assert not unexpected and set(missing) <= tied, (
            f"weights do not fit the model: {missing} {unexpected}"
        )
        self._version = update.version
        return await make_receipt(update, self.score)

    async def sleep(self) -> None:
        if self._settings.sleep and not self._asleep:
            self._model.to("cpu")
            self._asleep = True
            if self._device.type == "cuda":
                torch.cuda.empty_cache()

    def _wake(self) -> None:
        if self._asleep:
            self._model.to(self._device)
            self._asleep = False

    async def close(self) -> None:
        for draining in self._draining.values():
            draining.cancel()

    async def _drain(self, play: object) -> None:
        """Waits until no further requests of the play arrive, then answers all waiting requests."""
        seen = -1
        while seen != len(self._waiting[play]):
            seen = len(self._waiting[play])
            for _ in range(3):  # a coroutine may need a few turns of the loop to reach its next request
                await asyncio.sleep(0)
        requests = self._waiting.pop(play)
        del self._draining[play]
        at_once = self._settings.max_num_seqs or MAX_NUM_SEQS
        for start in range(0, len(requests), at_once):
            chunk = requests[start : start + at_once]
            try:
                completions = self._decode(chunk)
            except Exception as error:
                for request in chunk:
                    if not request.answer.cancelled():
                        request.answer.set_exception(error)
                continue
            for request, completion in zip(chunk, completions, strict=True):
                if not request.answer.cancelled():
                    request.answer.set_result(completion)

    @torch.no_grad()
    def _decode(self, requests: Sequence[_Request]) -> list[Completion]:
        """Samples B completions token by token. Each row draws from its own seeded stream of uniform numbers.

        Nothing else runs in the event loop meanwhile, except its Ctrl-C handler, which cancels the main task and with it
        these answers: decoding then stops after the current token."""
        self._wake()
        prompts = [r.prompt for r in requests]
        samplings = [r.sampling for r in requests]
        budgets = [
            min(s.max_tokens, self._settings.max_model_len - len(p))
            for p, s in zip(prompts, samplings, strict=True)
        ]
        width, count = max(map(len, prompts)), len(prompts)
        ids = torch.zeros(count, width, dtype=torch.long)
        mask = torch.zeros(count, width + max(budgets), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        uniforms = torch.stack([_uniforms(s, max(budgets)) for s in samplings]).to(self._device)
        temperatures = torch.tensor([s.temperature for s in samplings], device=self._device)
        top_ps = torch.tensor([s.top_p for s in samplings], device=self._device)
        top_ks = torch.tensor([s.top_k for s in samplings], device=self._device)
        truncated = any(s.temperature and (s.top_k or s.top_p < 1) for s in samplings)
        stops = [frozenset(s.stop_token_ids) for s in samplings]
        ids, mask = ids.to(self._device), mask.to(self._device)
        positions = (mask[:, :width].cumsum(1) - 1).clamp(min=0)
        tokens: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        reasons: list[FinishReason | None] = [None] * count
        cache = None
        for t in range(max(budgets)):
            if all(r.answer.cancelled() for r in requests):
                break
            output = self._model(
                input_ids=ids,
                attention_mask=mask[:, : width + t],
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            logits = output.logits[:, -1].float()
            if truncated:
                logits = _truncate(logits, temperatures, top_ks, top_ps)
            chosen, chosen_logprobs = _sample(logits, temperatures, uniforms[:, t])
            for row, (token, logprob) in enumerate(
                zip(chosen.tolist(), chosen_logprobs.tolist(), strict=True)
            ):
                if reasons[row] is not None:
                    continue
                tokens[row].append(token)
                logprobs[row].append(logprob)
                if (on_tokens := requests[row].sampling.on_tokens) is not None:
                    on_tokens(tokens[row])
                if token in stops[row] or self._ends_by_text(tokens[row], samplings[row].stop_texts):
                    reasons[row] = FinishReason.STOP
                elif len(tokens[row]) == budgets[row]:
                    reasons[row] = FinishReason.LENGTH
            if all(reasons):
                break
            ids, positions = chosen[:, None], positions[:, -1:] + 1
        return [
            Completion(
                tokens=tokens[row],
                logprobs=logprobs[row],
                version=self._version,
                finish_reason=reasons[row] or FinishReason.LENGTH,
            )
            for row in range(count)
        ]

    def _ends_by_text(self, tokens: Sequence[int], stop_texts: Sequence[str]) -> bool:
        """Returns whether the last token completes one of the texts, each of which has at least one character per token."""
        if not stop_texts:
            return False
        text = self._tokenizer.decode(tokens[-max(map(len, stop_texts)) :], skip_special_tokens=True)
        return any(stop in text for stop in stop_texts)


def _uniforms(sampling: Sampling, count: int) -> torch.Tensor:
    generator = torch.Generator()
    if sampling.seed is None:
        generator.seed()
    else:
        generator.manual_seed(sampling.seed)
    return torch.rand(count, generator=generator)


def _truncate(
    logits_BV: torch.Tensor, temperatures_B: torch.Tensor, top_ks_B: torch.Tensor, top_ps_B: torch.Tensor
) -> torch.Tensor:
    """Sets the logits of tokens that must not be sampled to -inf: first by top-k, then by top-p among the rest. Greedy rows
    are unchanged."""
    count = logits_BV.shape[1]
    greedy = temperatures_B == 0
    top_ks = torch.where(greedy | (top_ks_B == 0), count, top_ks_B)
    top_ps = torch.where(greedy, 1.0, top_ps_B)
    ordered, order = logits_BV.sort(-1, descending=True)
    beyond = torch.arange(count, device=logits_BV.device) >= top_ks[:, None]
    ordered = ordered.masked_fill(beyond, -torch.inf)
    probabilities = (ordered / torch.where(greedy, 1.0, temperatures_B)[:, None]).softmax(-1)
    likelier = (
        probabilities.cumsum(-1) - probabilities
    )  # 0 for the likeliest token, which stays whatever top-p is
    ordered = ordered.masked_fill((likelier >= top_ps[:, None]) & (top_ps < 1)[:, None], -torch.inf)
    return torch.empty_like(ordered).scatter_(-1, order, ordered)


def _sample(
    logits_BV: torch.Tensor, temperatures_B: torch.Tensor, uniforms_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples from softmax(logits / T) by the inverse CDF. T = 0 takes the most likely token (scored at T = 1).

    Returns:
        The tokens and their log-probabilities, each of shape (B,).
    """
    greedy = temperatures_B == 0
    divisor = torch.where(greedy, torch.ones_like(temperatures_B), temperatures_B)
    logprobs = (logits_BV / divisor[:, None]).log_softmax(-1)
    cumulative = logprobs.exp().cumsum(-1)
    uniforms = uniforms_B.clamp(min=2**-25)  # 0 would choose the first token even if its probability is 0
    drawn = torch.searchsorted(cumulative, (uniforms * cumulative[:, -1])[:, None].contiguous())[:, 0]
    chosen = torch.where(greedy, logprobs.argmax(-1), drawn.clamp(max=logits_BV.shape[1] - 1))
    return chosen, logprobs.gather(1, chosen[:, None])[:, 0]
