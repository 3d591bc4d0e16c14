"""Measures rollouts: attempts of the game on two engines compared with bare vLLM, and the difference between the
engines' log-probabilities and the learner's.

An episode here is one attempt of the generator (five requests, one after another) and one of the discriminator; nothing
is judged. Both policies have an engine in this process, as in a rollout actor. The baselines play no game: they use the
same prompts and sample the same number of tokens, each with engines of its own:

    bare_vllm              vllm.LLMEngine, stepped in a loop: the same requests, without seeds and log-probabilities
    bare_vllm_seeded       the same with both, as training needs them: shows their cost
    bare_vllm_one_request  without both, and an attempt is one request for all its tokens: shows the cost of five requests
    async_vllm             vllm.AsyncLLM in separate processes, as in `vllm serve`: the same requests as bare_vllm
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import Any

from actors.settings import ENGINE_ENVIRONMENT
from benchmarks.report import arguments, publish

os.environ |= ENGINE_ENVIRONMENT

Chain = tuple[str, list[tuple[list[int], int]]]
"""(policy, its requests, one after another: prompt and number of tokens to sample)."""


def main() -> None:
    options = arguments(__doc__).parse_args()
    publish(options.json, *asyncio.run(measure(options.quick)))


async def measure(quick: bool) -> tuple[dict[str, float], dict[str, float]]:
    from transformers import AutoTokenizer
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine

    from actors.settings import VllmEngineSettings
    from actors.transformers_policy import TransformersPolicy
    from actors.vllm_engine import engine_args
    from actors.vllm_policy import VllmPolicy
    from configs.load import load_run
    from lab.problems import toy_problems
    from learners.learner import Learner
    from sparring.core.project_files import located
    from sparring.games.multistage.game import MultistageGame
    from sparring.games.multistage.rules import MultistageRules
    from sparring.games.prompts import format_for

    config = load_run([])[0].to_config()
    roles = config.policies
    models = {role: str(located(config.policy(role).model)) for role in roles}
    engines = {role: e for role in roles if isinstance(e := config.policy(role).engine, VllmEngineSettings)}
    args = {role: engine_args(models[role], engines[role], "cpu") for role in roles}
    style = format_for(AutoTokenizer.from_pretrained(models["generator"]))
    game, problems = MultistageGame(MultistageRules.model_validate(config.game)), toy_problems("train")
    lengths = {role: config.policy(role).max_tokens for role in roles}
    policies: dict[str, Any] = {role: VllmPolicy(models[role], engines[role]) for role in roles}
    bare = {
        name: {role: LLMEngine.from_engine_args(args[role]) for role in roles}
        for name in ("bare_vllm", "bare_vllm_seeded", "bare_vllm_one_request")
    }
    in_processes = {r: AsyncLLM.from_engine_args(AsyncEngineArgs(**vars(args[r]))) for r in roles}

    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for size, episodes in (("few", 8 if quick else 64), ("many", 16 if quick else 256)):
        speeds: dict[str, list[float]] = {}
        for seed in range(2 if quick else 8):
            start = time.perf_counter()
            played = await play(game, policies, style, problems[:episodes], lengths, seed)
            seconds = {"ours": time.perf_counter() - start}
            chains = [chain_of(trajectory) for trajectory in played]
            for name, engines_of in bare.items():
                requests = [in_one_request(c) for c in chains] if name == "bare_vllm_one_request" else chains
                wanted = {"seed": seed, "logprobs": 0} if name == "bare_vllm_seeded" else {}
                start = time.perf_counter()
                step_through(engines_of, requests, wanted)
                seconds[name] = time.perf_counter() - start
            start = time.perf_counter()
            await asyncio.gather(*(go_through(in_processes, chain, seed) for chain in chains))
            seconds["async_vllm"] = time.perf_counter() - start
            tokens = sum(length for _, requests in chains for _, length in requests)
            for name, taken in seconds.items() if seed else ():  # the first round warms up
                speeds.setdefault(name, []).append(tokens / taken)
        medians = {name: median_high(found) for name, found in speeds.items()}
        figures[f"{size}_episodes"] = float(episodes)
        figures |= {f"{name}_{size}_tokens_per_s": speed for name, speed in medians.items()}
        ratios |= {f"vs_{n}_{size}": medians["ours"] / s for n, s in medians.items() if n != "ours"}
    learner = Learner(config.generator.learner, 1e-4, models["generator"], models["generator"])
    transformers = TransformersPolicy(models["generator"], engines["generator"])
    for name, policy in (("vllm", policies["generator"]), ("transformers", transformers)):
        both = {"generator": policy, "discriminator": policies["discriminator"]}
        played = await play(game, both, style, problems[:64], lengths, seed=99)
        difference = differences(learner, [t for t in played if t.player == "generator"])
        figures[f"{name}_vs_learner_max"] = difference.max().item()
        figures[f"{name}_vs_learner_mean"] = difference.mean().item()
    for policy in policies.values():
        await policy.close()
    for engine in in_processes.values():
        engine.shutdown()
    return figures, ratios


async def play(
    game: Any,
    policies: Mapping[str, Any],
    style: Any,
    problems: Sequence[Any],
    lengths: Mapping[str, int],
    seed: int,
) -> list[Any]:
    """Plays a five-stage attempt and a suite for each problem, all at once."""
    from sparring.core.interfaces import Player

    generator, discriminator = (
        Player(
            name=name,
            policy=policies[name],
            format=style,
            attempts=1,
            temperature=1.0,
            seed=seed,
            max_tokens=lengths[name],
        )
        for name in ("generator", "discriminator")
    )
    programs = [game.solve(problem, generator, 0, {}) for problem in problems]
    suites = [game.attack(problem, discriminator, 0) for problem in problems]
    return list(await asyncio.gather(*programs, *suites))


def chain_of(trajectory: Any) -> Chain:
    turns = trajectory.turns
    return trajectory.player, [(list(t.prompt_tokens), len(t.completion.tokens)) for t in turns]


def in_one_request(chain: Chain) -> Chain:
    policy, requests = chain
    return policy, [(requests[0][0], sum(length for _, length in requests))]


def step_through(engines: Mapping[str, Any], chains: Sequence[Chain], wanted: Mapping[str, Any]) -> None:
    """Runs each chain's requests one after another, and all chains at once; the engines take turns.

    Args:
        wanted: further arguments of vLLM's SamplingParams.
    """
    from vllm.inputs.engine import tokens_input

    waiting = {str(i): list(reversed(requests)) for i, (_, requests) in enumerate(chains)}

    def ask(name: str) -> None:
        prompt, length = waiting[name].pop()
        engine = engines[chains[int(name)][0]]
        engine.add_request(name, tokens_input(prompt), as_many_as(length, wanted))

    for name in waiting:
        ask(name)
    while any(engine.has_unfinished_requests() for engine in engines.values()):
        for engine in engines.values():
            if engine.has_unfinished_requests():
                for output in engine.step():
                    if output.finished and waiting[output.request_id]:
                        ask(output.request_id)


async def go_through(engines: Mapping[str, Any], chain: Chain, seed: int) -> None:
    from vllm.inputs.engine import tokens_input

    policy, requests = chain
    for number, (prompt, length) in enumerate(requests):
        name = f"{id(chain)}-{seed}-{number}"
        async for _ in engines[policy].generate(tokens_input(prompt), as_many_as(length, {}), name):
            pass


def as_many_as(tokens: int, wanted: Mapping[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **wanted,
    )


def differences(learner: Any, trajectories: Sequence[Any]) -> Any:
    """Returns |engine - learner| of every sampled token's log-probability."""
    import torch

    from learners.packing import pack, plan
    from sparring.core.batch import SampleSpec, TokenSelection, make_sample, transcript_of

    spec = SampleSpec(None, 0, "", 0.0, 0.0, TokenSelection())
    samples = [make_sample(transcript_of(t), spec) for t in trajectories]
    found = []
    with torch.no_grad():
        for chunk in plan(samples, range(len(samples)), 16384):
            micro = pack(samples, chunk, torch.device("cpu"))
            scores = learner.policy.score(micro.row, micro.sampled_N, 1.0)
            found.append((scores.logprobs_P - micro.logprobs_N[micro.sampled_N]).abs())
    return torch.cat(found)


if __name__ == "__main__":
    main()
