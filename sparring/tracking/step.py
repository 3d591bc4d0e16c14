"""Summarises the episodes of a training step: the row of metrics, whether the sandbox failed, the best programs."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sparring.core.episode import Episode, Mistakes
from sparring.core.evaluation import mean
from sparring.core.interfaces import SandboxFailure
from sparring.core.play import PlayResult, Usage
from sparring.core.tracing import seconds_of

_FLAGS = ("foul_", "ended_", "fault_surplus", "solved")
"""Prefixes of components that an attempt lists only if they are not 0."""


def episode_metrics(players: Iterable[str], result: PlayResult) -> dict[str, Any]:
    """Returns the step's metrics, which are means over its episodes."""
    row: dict[str, Any] = {}
    attempts = [t for e in result.episodes for t in e.trajectories]
    for player in players:
        all_judged = [t for t in attempts if t.player == player and t.reward is not None]
        judged = [t for t in all_judged if t.number == 1]  # later ones follow failures only: not comparable
        if further := [t.reward for t in all_judged if t.number > 1 and t.reward is not None]:
            row[f"{player}_further"] = {"attempts": len(further), "reward": mean(further)}
        row[f"{player}_reward"] = mean([t.reward for t in judged if t.reward is not None])
        row[f"{player}_tokens"] = mean([t.token_count for t in judged])
        names = dict.fromkeys(name for t in judged for name in t.components)
        row[f"{player}_components"] = {
            name: mean(
                [
                    t.components.get(name, 0.0)
                    for t in judged
                    if name in t.components or name.startswith(_FLAGS)
                ]
            )
            for name in names
        }
        shared = [is_shared for t in judged for is_shared in t.shared_tests]
        if any(shared):
            row[f"{player}_components"]["shared_tests"] = mean(shared)
    suites = row.get("discriminator_components", {})
    row["validity"], row["kill_rate"] = suites.get("validity"), suites.get("kill_rate")
    row["dropped"] = {
        reason: sum(reason in t.components for t in attempts)
        for reason in ("sandbox_failure", "no_valid_test")
    }
    row["weights"] = {
        policy: {
            "version": receipts[0].version,
            "probe_difference": max(receipt.probe_difference for receipt in receipts),
        }
        for policy, receipts in result.receipts.items()
        if receipts
    }
    usage = result.usage
    row["prefix_hits"] = usage.cached / usage.prompts if usage.prompts else None
    row["tokens"] = tokens = usage.sampled.total()
    generating = seconds_of("generate", result.spans)
    row["tokens_per_s"] = tokens / generating if generating else None
    return row


def without_signal(row: Mapping[str, Any]) -> str:
    """Explains why a step has no sample for a policy."""
    dropped = {reason: count for reason, count in row["dropped"].items() if count}
    if dropped:
        counts = ", ".join(f"{count} of {reason.replace('_', ' ')}" for reason, count in dropped.items())
        return (
            f"attempts were dropped ({counts}); all other attempts at the same problem earned equal rewards"
        )
    return "all attempts at the same problem earned equal rewards"


def policy_lag(usage: Usage, players: Collection[str], version: int) -> dict[str, float]:
    """Returns the mean (over tokens) and the maximum policy lag of the players' tokens: the number of versions by which the
    policy that sampled a token is older than the policy from which the update to `version` starts. Empty if the players
    sampled no tokens."""
    tokens: Counter[int] = Counter()
    for (player, sampled_by), count in usage.sampled.items():
        if player in players:
            tokens[version - 1 - sampled_by] += count
    if not tokens.total():
        return {}
    mean_lag = sum(lag * count for lag, count in tokens.items()) / tokens.total()
    return {"policy_lag_mean": mean_lag, "policy_lag_max": float(max(tokens))}


def require_some_judged(step: int, episodes: Sequence[Episode]) -> None:
    """Raises SandboxFailure if the sandbox failed and no attempt of the step was judged. Such a step must be repeated
    after a --resume; the run must not skip it."""
    attempts = [t for e in episodes for t in e.trajectories]
    failed = any("sandbox_failure" in t.components for t in attempts)
    # without a judged test no program has a reward either
    if failed and all(t.reward is None for t in attempts):
        raise SandboxFailure(
            f"step {step}: the sandbox judged none of {len(attempts)} attempts; check the sandbox (such as the "
            "Docker Engine) and continue with --resume"
        )


def best_programs(episodes: Sequence[Episode]) -> dict[str, tuple[float, str]]:
    """Returns (reward, program) of the best program per problem, which the curriculum keeps for the solvability gate."""
    best = {}
    for episode in episodes:
        rewarded = [(t.reward, t.artifact) for t in episode.judged("generator") if t.reward]
        if rewarded:
            best[episode.problem_id] = max(rewarded)
    return best


def mistakes(episodes: Sequence[Episode]) -> dict[str, Mistakes]:
    """Returns the mistakes of each episode that has any, by problem."""
    return {e.problem_id: e.mistakes for e in episodes if e.mistakes != Mistakes()}
