"""One suite for every policy. Those with weights must moreover compute what the learner computes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel

from actors.episodes import EpisodeRunner, PolicyClient
from actors.loading import LocalPolicy
from actors.settings import TransformersEngineSettings, VllmEngineSettings
from actors.transformers_policy import TransformersPolicy
from lab.model import build_model, build_tokenizer
from learners.models import score_tokens
from learners.packing import row_of
from sandbox_workers.nothing import NoSandbox
from sparring.core.episode import Completion, FinishReason
from sparring.core.interfaces import EngineFailure, Policy, Sampling
from sparring.core.play import PlayRequest
from sparring.core.seeding import derive_seed
from sparring.core.weights import PublishError, WeightUpdate, check_receipt, digest_of
from sparring.games.prompts import END, MARKER_TOKENS, PAD
from sparring.games.rules import match
from tests.learning import export
from tests.playing import Letters, ScriptedPolicy, letters

CONTEXT = 384
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {"cpu": 1e-4, "cuda": 5e-3}[DEVICE]
"""On a GPU vLLM's attention multiplies fp32 as tf32."""
COMMON: dict[str, Any] = {"max_model_len": CONTEXT, "max_num_seqs": 64, "sleep": True}
ENGINE = VllmEngineSettings(**COMMON, kv_cache_mb=64, gpu_memory_utilization=0.1)
ENGINE_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR"}
if DEVICE == "cpu":
    ENGINE_ENVIRONMENT |= {
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TOKENIZERS_PARALLELISM": "false",
    }
PROMPT = (2, 40, 41, 42, 43)


@dataclass
class Subject:
    policy: Policy
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    first: PreTrainedModel
    """The weights that the policy was made with."""
    second: PreTrainedModel
    versions: Iterator[int]

    def generate(self, prompt: Sequence[int] = PROMPT, **sampling: Any) -> Completion:
        return self.run(self.policy.generate(prompt, ask(**sampling)))

    def publish(self, model: PreTrainedModel) -> WeightUpdate:
        update = export(model, next(self.versions))
        check_receipt(update, self.run(self.policy.load_weights(update)), TOLERANCE)
        return update


def ask(**changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": 12, "stop_token_ids": (1,), "temperature": 1.0, "seed": 7} | changes)


async def a_step(policy: Policy) -> None:
    """Until what was begun before has its first token."""
    await asyncio.sleep(0)  # it reaches the engine first
    await policy.generate(PROMPT, ask(max_tokens=1))


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[PreTrainedModel, PreTrainedModel, Path]:
    tokenizer = build_tokenizer(["def f(x):\n    return x * 2\n"] * 20, MARKER_TOKENS, PAD, END)
    first, second = build_model(tokenizer, 0).eval(), build_model(tokenizer, 1).eval()
    directory = tmp_path_factory.mktemp("model")
    first.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return first, second, directory


@pytest.fixture(scope="module")
def scripted(models) -> Iterator[Subject]:
    def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
        rng = Random(derive_seed(*prompt, "greedy" if sampling.temperature == 0 else str(sampling.seed)))
        tokens: list[int] = []
        while len(tokens) < sampling.max_tokens and not set(tokens[-1:]) & set(sampling.stop_token_ids):
            tokens.append(rng.randrange(200))
        return tokens

    with asyncio.Runner() as runner:
        yield Subject(ScriptedPolicy(script), runner.run, models[0], models[1], count(1))


@pytest.fixture(scope="module")
def transformers(models) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        policy = TransformersPolicy(str(models[2]), TransformersEngineSettings(**COMMON))
        yield Subject(policy, runner.run, models[0], models[1], count(1))
        runner.run(policy.close())


@pytest.fixture(scope="module")
def vllm(models) -> Iterator[Subject]:
    pytest.importorskip("vllm")
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        for name, value in ENGINE_ENVIRONMENT.items():
            patch.setenv(name, value)

        async def start() -> Policy:
            from actors.vllm_policy import VllmPolicy

            return VllmPolicy(str(models[2]), ENGINE, DEVICE)

        policy = runner.run(start())
        yield Subject(policy, runner.run, models[0], models[1], count(1))
        runner.run(policy.close())


VLLM = pytest.param("vllm", marks=pytest.mark.vllm)


@pytest.fixture(params=["scripted", "transformers", VLLM])
def subject(request) -> Subject:
    """Any policy."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["transformers", VLLM])
def engine(request) -> Subject:
    """A policy with a model."""
    return request.getfixturevalue(request.param)


def learner_logprobs(
    model: PreTrainedModel, prompt: Sequence[int], completion: Completion, temperature: float
) -> torch.Tensor:
    row = row_of([[*prompt, *completion.tokens]])
    with torch.no_grad():
        return score_tokens(model, row, row.positions_N >= len(prompt), temperature).logprobs_P


def difference(
    model: PreTrainedModel, prompt: Sequence[int], completion: Completion, temperature: float
) -> float:
    expected = learner_logprobs(model, prompt, completion, temperature)
    return (expected - torch.tensor(completion.logprobs)).abs().max().item()


# ---------------------------------------------------------------------- sampling
def test_one_logprob_per_token_and_none_is_positive(subject):
    completion = subject.generate()
    assert len(completion.tokens) == len(completion.logprobs) > 0
    assert all(logprob <= 0 for logprob in completion.logprobs)


def test_max_tokens_bounds_the_completion(subject):
    completion = subject.generate(max_tokens=5, stop_token_ids=())
    assert len(completion.tokens) == 5
    assert completion.finish_reason is FinishReason.LENGTH


def test_an_engine_tells_of_each_token_as_it_comes(engine: Subject) -> None:
    told: list[list[int]] = []
    said = engine.generate(max_tokens=6, on_tokens=lambda tokens: told.append(list(tokens)))
    assert told == [list(said.tokens)[:count] for count in range(1, len(said.tokens) + 1)]


def test_the_stop_token_is_the_last_one_and_is_kept(subject):
    stops = tuple(range(100))
    completion = subject.generate(max_tokens=100, stop_token_ids=stops)
    assert completion.finish_reason is FinishReason.STOP
    assert completion.tokens[-1] in stops
    assert not set(completion.tokens[:-1]) & set(stops)


def test_a_stop_token_as_the_first_token_is_kept(subject):
    greedy = subject.generate(temperature=0.0, seed=None)
    again = subject.generate(temperature=0.0, seed=None, stop_token_ids=(greedy.tokens[0],))
    assert again.tokens == greedy.tokens[:1]
    assert again.finish_reason is FinishReason.STOP


def test_a_stop_text_ends_the_completion_whichever_tokens_spell_it(engine, models):
    tokenizer = AutoTokenizer.from_pretrained(models[2])
    whole = engine.generate(max_tokens=40, stop_token_ids=())
    texts = [tokenizer.decode(whole.tokens[:end], skip_special_tokens=True) for end in range(41)]
    stops = [stop for i in range(len(texts[-1]) - 1) if (stop := texts[-1][i : i + 2]).isascii()]
    assert len(stops) > 5
    for stop in stops:
        told: list[list[int]] = []
        completion = engine.generate(
            max_tokens=40,
            stop_token_ids=(),
            stop_texts=("never said", stop),
            on_tokens=lambda tokens, told=told: told.append(list(tokens)),
        )
        end = next(end for end, text in enumerate(texts) if stop in text)
        assert list(completion.tokens) == list(whole.tokens)[:end] == told[-1], stop
        assert completion.logprobs == whole.logprobs[:end]
        assert completion.finish_reason is FinishReason.STOP


def test_the_same_seed_gives_the_same_tokens_and_another_one_others(subject):
    assert subject.generate(seed=3) == subject.generate(seed=3)
    assert len({tuple(subject.generate(seed=seed).tokens) for seed in range(8)}) > 1


def test_a_seed_of_62_bits_is_accepted(subject):
    seed = derive_seed("run", 1) | (1 << 61)
    assert subject.generate(seed=seed) == subject.generate(seed=seed)


def test_a_request_does_not_depend_on_its_neighbours(subject):
    alone = subject.generate(seed=11, max_tokens=9)

    async def together() -> Completion:
        others = [
            subject.policy.generate((2, *range(40, 60 + i)), ask(seed=i, max_tokens=30)) for i in range(6)
        ]
        mine, *_ = await asyncio.gather(subject.policy.generate(PROMPT, ask(seed=11, max_tokens=9)), *others)
        return mine

    crowded = subject.run(together())
    assert crowded.tokens == alone.tokens
    assert crowded.logprobs == pytest.approx(alone.logprobs, abs=TOLERANCE)


def test_a_play_is_the_same_to_the_bit_whatever_is_played_beside_it(transformers: Subject) -> None:
    """An evaluation and a step, say, reach an engine together or not by chance; and what is decoded together decides the last
    bits."""

    def begin(number: int) -> Coroutine[Any, Any, Any]:
        async def play(problem: Any, players: Mapping[str, Any], *_: Any) -> Any:
            player, prompt = players["one"], [*PROMPT, *range(50, 50 + 9 * number)]
            return [await player.policy.generate(prompt, ask(seed=seed)) for seed in (1, 2)]

        speaker = PolicyClient(
            engines=[LocalPolicy(transformers.policy, 1.0)], format=Letters(), decode=letters, max_tokens=12
        )
        runner = EpisodeRunner(SimpleNamespace(play=play), NoSandbox(), {"one": speaker}, {"one": "one"}, 0)  # type: ignore[arg-type]
        problems = tuple(match("letters", f"{number}.{i}") for i in range(2 + number))
        return runner.play(
            PlayRequest(
                address=("play", number), problems=problems, attempts={"one": 1}, temperatures={"one": 1.0}
            )
        )

    async def together() -> list[Any]:
        return await asyncio.gather(*(begin(number) for number in range(4)))

    alone = [transformers.run(begin(number))[0].episodes for number in range(4)]
    assert [result.episodes for result, _ in transformers.run(together())] == alone


def test_greedy_takes_the_most_likely_token(engine):
    engine.publish(engine.first)
    completion = engine.generate(temperature=0.0, seed=None)
    tokens = list(PROMPT)
    for token in completion.tokens:
        with torch.no_grad():
            logits = engine.first(torch.tensor([tokens])).logits[0, -1]
        assert logits[token] == pytest.approx(logits.max().item(), abs=1e-5)
        tokens.append(token)


def test_many_requests_at_once_are_each_answered_for_their_own_prompt(subject):
    async def flood() -> list[Completion]:
        prompts = [(2, *range(30, 33 + i % 9)) for i in range(96)]
        asked = [
            subject.policy.generate(p, ask(seed=i, max_tokens=1 + i % 12, stop_token_ids=()))
            for i, p in enumerate(prompts)
        ]
        return await asyncio.gather(*asked)

    completions = subject.run(flood())
    assert [len(c.tokens) for c in completions] == [1 + i % 12 for i in range(96)]


def test_a_prompt_that_does_not_fit_is_a_value_error(engine):
    for length in (CONTEXT, CONTEXT + 1):  # with no room left for a completion, or not even for the prompt
        with pytest.raises(
            ValueError, match=f"prompt of {length} tokens does not fit max_model_len {CONTEXT}"
        ):
            engine.generate(prompt=[40] * length)
    assert engine.generate().tokens  # and the next one is served


def test_a_completion_ends_with_the_context(engine):
    completion = engine.generate(prompt=[40] * (CONTEXT - 4), max_tokens=50, stop_token_ids=())
    assert 3 <= len(completion.tokens) <= 4
    assert completion.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("truncation", [{"top_k": 1}, {"top_p": 1e-6}])
def test_sampling_among_one_token_is_greedy(engine, truncation):
    engine.publish(engine.first)
    greedy = engine.generate(temperature=0.0, seed=None)
    completion = engine.generate(**truncation)
    assert completion.tokens == greedy.tokens
    assert completion.logprobs == pytest.approx([0.0] * len(greedy.tokens), abs=1e-5), "it is certain"


@pytest.mark.parametrize(
    "truncation", [{"top_k": 4}, {"top_p": 0.05}, {"top_k": 40, "top_p": 0.5}, {"top_p": 0.999}], ids=str
)
def test_truncated_sampling_is_of_the_likeliest_tokens(engine, truncation):
    """Its log-probabilities are those of the truncated distribution."""
    temperature, tokens = 1.3, list(PROMPT)
    engine.publish(engine.first)
    completion = engine.generate(temperature=temperature, stop_token_ids=(), **truncation)
    for token, logprob in zip(completion.tokens, completion.logprobs, strict=True):
        with torch.no_grad():
            ordered, order = (engine.first(torch.tensor([tokens])).logits[0, -1] / temperature).sort(
                descending=True
            )
        kept = ordered[: truncation.get("top_k")].softmax(-1)
        enough = int((kept.cumsum(-1) < truncation.get("top_p", 1.0)).sum()) + 1
        place = order.tolist().index(token)
        assert place < enough
        assert logprob == pytest.approx((kept[place] / kept[:enough].sum()).log().item(), abs=TOLERANCE)
        tokens.append(token)
    assert len({tuple(engine.generate(seed=seed, **truncation).tokens) for seed in range(8)}) > 1


def test_only_the_request_that_asks_for_it_is_truncated(engine):
    engine.publish(engine.first)
    plain, narrow = engine.generate(seed=5), engine.generate(seed=5, top_k=2)

    async def together() -> list[Completion]:
        asked = (ask(seed=5), ask(seed=5, top_k=2), ask(temperature=0.0, seed=None, top_k=2))
        return await asyncio.gather(*(engine.policy.generate(PROMPT, sampling) for sampling in asked))

    first, second, greedy = engine.run(together())
    assert (first.tokens, second.tokens) == (plain.tokens, narrow.tokens) and plain.tokens != narrow.tokens
    assert greedy.tokens == engine.generate(temperature=0.0, seed=None).tokens
    assert difference(engine.first, PROMPT, greedy, 1.0) <= TOLERANCE


# ---------------------------------------------------------------------- agreement with the learner
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_the_learners(engine, temperature):
    engine.publish(engine.first)
    completion = engine.generate(temperature=temperature, max_tokens=40)
    assert difference(engine.first, PROMPT, completion, temperature) <= TOLERANCE


def test_logprobs_are_the_learners_in_a_crowd(engine):
    engine.publish(engine.first)
    prompts = [tuple(range(30, 33 + 5 * i)) for i in range(24)]

    async def crowd() -> list[Completion]:
        asked = (engine.policy.generate(p, ask(seed=i, temperature=0.8)) for i, p in enumerate(prompts))
        return await asyncio.gather(*asked)

    completions = engine.run(crowd())
    worst = max(difference(engine.first, p, c, 0.8) for p, c in zip(prompts, completions, strict=True))
    assert worst <= TOLERANCE


# ---------------------------------------------------------------------- publishing
def test_completions_carry_the_version_of_the_weights(subject):
    update = export(subject.second, next(subject.versions))
    receipt = subject.run(subject.policy.load_weights(update))
    assert receipt.version == update.version == subject.policy.version
    assert subject.generate().version == update.version


def test_publishing_unchanged_weights_changes_nothing(engine):
    engine.publish(engine.first)
    before = engine.generate(max_tokens=30)
    engine.publish(engine.first)
    after = engine.generate(max_tokens=30)
    assert after.tokens == before.tokens
    assert after.logprobs == pytest.approx(before.logprobs, abs=1e-6)


def test_published_weights_replace_every_layer_and_every_cache(engine):
    """A long prompt, so that a stale prefix cache would show, and the tied head, so that a stale copy would."""
    prompt = [30 + i % 90 for i in range(300)]
    engine.publish(engine.first)
    engine.generate(prompt=prompt)
    engine.publish(engine.second)
    completion = engine.generate(prompt=prompt)
    assert difference(engine.second, prompt, completion, 1.0) <= TOLERANCE
    assert difference(engine.first, prompt, completion, 1.0) > 0.1
    engine.publish(engine.first)
    assert difference(engine.first, prompt, engine.generate(prompt=prompt), 1.0) <= TOLERANCE


def test_a_change_of_the_tied_embedding_alone_arrives(engine):
    engine.publish(engine.first)
    changed = type(engine.first)(engine.first.config).eval()
    changed.load_state_dict(engine.first.state_dict())
    with torch.no_grad():
        changed.get_input_embeddings().weight.mul_(-1.5)
    engine.publish(changed)  # checks the probe
    assert difference(changed, PROMPT, engine.generate(), 1.0) <= TOLERANCE


def test_a_change_of_one_linear_map_alone_arrives(engine):
    """As an adapter changes it: on a CPU vLLM keeps no parameter of it that could be looked at."""
    changed = type(engine.first)(engine.first.config).eval()
    changed.load_state_dict(engine.first.state_dict())
    for factor in (1.0, 1.5, 1.5):
        with torch.no_grad():
            changed.base_model.layers[0].mlp.down_proj.weight.mul_(factor)
        engine.publish(changed)
        assert difference(changed, PROMPT, engine.generate(), 1.0) <= TOLERANCE


def test_weights_that_change_places_arrive(engine):
    """Whose bits are together what they were."""
    changed = type(engine.first)(engine.first.config).eval()
    changed.load_state_dict(engine.first.state_dict())
    norms = [layer.input_layernorm.weight for layer in changed.base_model.layers[:2]]
    for factors in ((1.5, 2.0), (2.0, 1.5)):
        with torch.no_grad():
            for norm, factor in zip(norms, factors, strict=True):
                norm.fill_(factor)
        engine.publish(changed)
        assert difference(changed, PROMPT, engine.generate(), 1.0) <= TOLERANCE


def test_tensors_that_are_not_what_the_digest_says_are_refused(engine):
    update = export(engine.first, next(engine.versions))
    name = next(iter(update.tensors))
    tampered = replace(update, tensors={**update.tensors, name: update.tensors[name] + 1e-3})
    receipt = engine.run(engine.policy.load_weights(tampered))
    with pytest.raises(PublishError, match="published version"):
        check_receipt(tampered, receipt, tolerance=100.0)


def test_a_probe_that_the_engine_does_not_reproduce_is_refused(engine):
    update = export(engine.first, next(engine.versions))
    other = export(engine.second, update.version)
    doctored = replace(update, tensors=other.tensors, digest=digest_of(other.tensors))
    receipt = engine.run(engine.policy.load_weights(doctored))
    assert receipt.digest == doctored.digest
    with pytest.raises(PublishError, match="does not run on the published weights"):
        check_receipt(doctored, receipt, tolerance=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformers", VLLM])
def test_weights_in_the_engines_precision_are_to_it_what_they_are_in_fp32(kind, models):
    first, second, directory = models
    half = {"dtype": "bfloat16", "sleep": False}

    async def answers(policy: Policy) -> AsyncIterator[Completion]:
        versions = count(1)
        for model, dtype in ((second, None), (first, torch.bfloat16), (second, torch.bfloat16)):
            await policy.load_weights(export(model, next(versions), dtype))
            yield replace(await policy.generate(PROMPT, ask()), version=0)

    async def play() -> list[Completion]:
        if kind == "transformers":
            policy: Policy = TransformersPolicy(str(directory), TransformersEngineSettings(**COMMON | half))
        else:
            from actors.vllm_policy import VllmPolicy

            policy = VllmPolicy(str(directory), ENGINE.model_copy(update=half), DEVICE)
        found = [answer async for answer in answers(policy)]
        await policy.close()
        return found

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENGINE_ENVIRONMENT.items():
            patch.setenv(name, value)
        whole, other, halved = asyncio.run(play())
    assert whole == halved != other


@pytest.mark.vllm
def test_a_reload_that_does_nothing_is_refused(vllm: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the engine's own parameters, before any probe: in bfloat16 that hardly shows a step's change."""
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner as V2
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as V1

    vllm.publish(vllm.first)
    update = export(vllm.second, next(vllm.versions))
    with monkeypatch.context() as broken:
        for runner in (V1, V2):  # of CPUs, of GPUs
            broken.setattr(runner, "reload_weights", lambda self, **_: None)
        with pytest.raises(PublishError, match="the engine has the old ones"):
            vllm.run(vllm.policy.load_weights(update))
    vllm.publish(vllm.second)


# ---------------------------------------------------------------------- while learners have the GPU
def test_who_slept_goes_on_as_before(subject):
    before = subject.generate()
    for _ in range(2):
        subject.run(subject.policy.sleep())
    assert subject.generate() == before


def test_new_weights_reach_who_sleeps(engine):
    engine.publish(engine.first)
    engine.run(engine.policy.sleep())
    engine.publish(engine.second)
    assert difference(engine.second, PROMPT, engine.generate(), 1.0) <= TOLERANCE


@pytest.mark.vllm
def test_who_waits_for_a_completion_waits_no_more(vllm: Subject) -> None:
    async def sleep_meanwhile() -> None:
        long = asyncio.create_task(vllm.policy.generate(PROMPT, ask(max_tokens=300, stop_token_ids=())))
        await a_step(vllm.policy)
        await vllm.policy.sleep()
        with pytest.raises(asyncio.CancelledError):
            await long

    vllm.run(sleep_meanwhile())
    assert vllm.generate().tokens


# ---------------------------------------------------------------------- what goes wrong in an engine
@pytest.mark.vllm
def test_who_stops_waiting_ends_the_request(vllm: Subject) -> None:
    async def give_up() -> Completion:
        long = asyncio.create_task(vllm.policy.generate(PROMPT, ask(max_tokens=300, stop_token_ids=())))
        await a_step(vllm.policy)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return await vllm.policy.generate(PROMPT, ask(seed=3))

    assert vllm.run(give_up()).tokens == vllm.generate(seed=3).tokens


@pytest.mark.vllm
def test_what_is_in_flight_goes_on_with_new_weights(vllm: Subject) -> None:
    """Each token is by the weights that its completion says, from the keys and values of the same."""
    before = vllm.publish(vllm.first).version
    update = export(vllm.second, next(vllm.versions))

    async def publish_meanwhile() -> list[Completion]:
        long = [
            asyncio.create_task(
                vllm.policy.generate(PROMPT, ask(seed=seed, max_tokens=300, stop_token_ids=()))
            )
            for seed in range(3)
        ]
        await a_step(vllm.policy)
        check_receipt(update, await vllm.policy.load_weights(update), TOLERANCE)
        return await asyncio.gather(*long)

    for completion in vllm.run(publish_meanwhile()):
        ((version, first),) = completion.later
        assert (completion.version, version) == (before, update.version)
        assert list(completion.versions()) == [(before, first), (version, 300 - first)]
        found = torch.tensor(completion.logprobs)
        for model, tokens in ((vllm.first, slice(first)), (vllm.second, slice(first, None))):
            expected = learner_logprobs(model, PROMPT, completion, 1.0)
            assert (expected - found)[tokens].abs().max() <= TOLERANCE
    assert vllm.generate().later == ()


@pytest.mark.vllm
def test_what_vllm_gives_up_is_no_completion(vllm: Subject) -> None:
    """It would be learned from as if it had ended."""
    from actors.vllm_policy import completion_of

    given_up = SimpleNamespace(finish_reason="abort", token_ids=[1], logprobs=None, weight_versions=None)
    with pytest.raises(EngineFailure, match="gave up a completion: abort"):
        completion_of(SimpleNamespace(outputs=[given_up]), 1)


def model_with(models, directory: Path, **shape: int) -> str:
    config = type(models[0].config)(**(models[0].config.to_dict() | shape))
    type(models[0])(config).save_pretrained(directory)
    return str(directory)


@pytest.mark.vllm
def test_an_engine_that_cannot_start_says_why(vllm: Subject, models, tmp_path: Path) -> None:
    from actors.vllm_policy import VllmPolicy

    model = model_with(models, tmp_path, num_attention_heads=7, num_key_value_heads=2, head_dim=20)
    with pytest.raises(EngineFailure, match=r"cannot run .*num_heads \(7\) is not divisible") as failed:
        VllmPolicy(model, ENGINE, DEVICE)
    assert "\n" not in str(failed.value)


@pytest.mark.vllm
@pytest.mark.skipif(DEVICE != "cpu", reason="on a GPU there is attention for these heads")
def test_an_engine_that_ends_tells_who_waits_and_who_comes_later(
    vllm: Subject, models, tmp_path: Path
) -> None:
    """vLLM's CPU build has no attention for heads of 16, and finds out at the first step."""
    from actors.vllm_policy import VllmPolicy

    async def ask_three_times() -> None:
        policy = VllmPolicy(model_with(models, tmp_path, num_attention_heads=6, head_dim=16), ENGINE)
        together = [policy.generate(PROMPT, ask()), policy.generate(PROMPT, ask())]
        failed = await asyncio.gather(*together, return_exceptions=True)
        with pytest.raises(EngineFailure, match="head_dim=16"):
            await policy.generate(PROMPT, ask())
        assert ["head_dim=16" in str(error) for error in failed] == [True, True]
        await policy.close()

    vllm.run(ask_three_times())
