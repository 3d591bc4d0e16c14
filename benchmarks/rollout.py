"""Rollouts: episodes of the game through VllmPolicy against bare vLLM on the same prompts, and how far the engines'
log-probabilities are from the learner's.

Baseline `bare_vllm`: the same number of sequences, same model and engine settings, generated in one call of
`AsyncLLM.generate` each, with as many tokens as the episodes sampled, no game, no stages, no seeds.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from actors.rollout import ENGINE_ENVIRONMENT
from benchmarks.report import arguments, publish

os.environ |= ENGINE_ENVIRONMENT


def main() -> None:
    options = arguments(__doc__).parse_args()
    episodes = 64 if options.quick else 256
    figures, ratios = asyncio.run(measure(episodes, rounds=2 if options.quick else 5))
    publish(options.json, figures, ratios)


async def measure(episodes: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    from transformers import AutoTokenizer

    from actors.transformers_policy import TransformersPolicy
    from actors.vllm_policy import VllmPolicy
    from configs.load import load_run
    from games.multistage import MultistageGame
    from games.prompts import format_for
    from learners.learner import Learner
    from problems.embedded.generate import embedded_problems
    from scripts.warm_start import ensure_embedded

    config = load_run([])[0].to_config()
    model = str(ensure_embedded(config, ["generator"])["generator"])
    style = format_for(AutoTokenizer.from_pretrained(model), "input_only")
    problems = embedded_problems("train")[:episodes]
    engine = config.generator.engine
    vllm = VllmPolicy(model, engine)
    learner = Learner(config.generator.learner, 1e-4, model, model)
    game = MultistageGame(config.multistage)
    ours, bare = [], []
    sampled: list[Any] = []
    for round_number in range(rounds + 1):
        start = time.perf_counter()
        sampled = await play(game, vllm, style, problems, config.generator.max_tokens, round_number)
        seconds = time.perf_counter() - start
        tokens = sum(t.token_count for t in sampled)
        start = time.perf_counter()
        await plain(vllm, [style.generator_prompt(p) for p in problems], tokens // len(problems))
        if round_number:  # the first round warms up
            ours.append(tokens / seconds)
            bare.append(tokens // len(problems) * len(problems) / (time.perf_counter() - start))
    figures = {
        "episodes": float(episodes),
        "tokens_per_s": median(ours),
        "bare_vllm_tokens_per_s": median(bare),
    }
    for name, policy in (("vllm", vllm), ("transformers", TransformersPolicy(model, engine))):
        trajectories = await play(game, policy, style, problems[:64], config.generator.max_tokens, 99)
        difference = differences(learner, trajectories)
        figures[f"{name}_vs_learner_max"] = difference.max().item()
        figures[f"{name}_vs_learner_mean"] = difference.mean().item()
    await vllm.close()
    return figures, {"vs_bare_vllm": median(ours) / median(bare)}


async def play(
    game: Any, policy: Any, style: Any, problems: Sequence[Any], max_tokens: int, seed: int
) -> list[Any]:
    """One five-stage attempt per problem, all at once."""
    from core.interfaces import Player

    player = Player(
        name="generator",
        policy=policy,
        format=style,
        attempts=1,
        temperature=1.0,
        seed=seed,
        max_tokens=max_tokens,
    )
    return list(await asyncio.gather(*(game.solve(problem, player, 0) for problem in problems)))


async def plain(policy: Any, prompts: Sequence[list[int]], length: int) -> None:
    from core.interfaces import Sampling

    sampling = Sampling(max_tokens=length, stop_token_ids=())
    await asyncio.gather(*(policy.generate(prompt, sampling) for prompt in prompts))


def differences(learner: Any, trajectories: Sequence[Any]) -> Any:
    """|engine - learner| of every sampled token's log-probability."""
    import torch

    from core.batch import sample_from
    from learners.packing import pack, plan

    for trajectory in trajectories:
        trajectory.reward = 0.0
    samples = [sample_from(t, 0.0, None) for t in trajectories]
    found = []
    with torch.no_grad():
        for chunk in plan(samples, range(len(samples)), 16384):
            micro = pack(samples, chunk, torch.device("cpu"))
            scores = learner.policy.score(micro.row, micro.sampled_N, 1.0)
            found.append((scores.logprobs_P - micro.logprobs_N[micro.sampled_N]).abs())
    return torch.cat(found)


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
