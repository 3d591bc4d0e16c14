"""Sparring's training loop: two live policies, a judge, a curriculum.

    python driver.py                     the embedded recipe on a local Ray
    python driver.py --config debug      one process, under a minute
    python driver.py --resume            continue the latest run

The loop is `train`; everything above it is set-up, everything it calls is a noun of core/.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from configs.load import load_run
from configs.schema import Config
from core.batch import Batch, Sample, sample_from
from core.episode import Episode, Trajectory
from core.errors import SparringError, exit_with
from core.interfaces import SandboxFailure
from core.seeding import derive_seed
from curriculum.curriculum import Assignment
from learners.advantages.estimate import Advantages
from learners.advantages.tree import branch_values
from runtime.logs import quiet_logs
from runtime.session import Session, open_session, show_plan


def main(arguments: Sequence[str]) -> None:
    quiet_logs()
    try:
        run, recipe = load_run(list(arguments))
        if run.plan:
            return show_plan(run, recipe)
        with open_session(run, recipe) as session:
            train(session)
    except SparringError as error:
        exit_with(error)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; continue with --resume") from None


def train(session: Session) -> None:
    """Play, learn, publish, observe, save; until the curriculum ends."""
    config, parts, show, clock = session.config, session.parts, session.display, session.clock
    session.evaluate_start()
    while (assignment := parts.scheduler.next()) is not None:
        began = dict(clock.seconds)
        result = parts.rollouts.play(session.play_request(assignment))
        clock.split({"sandbox": result.seconds["sandbox"]}, rest="rollout")
        require_some_judged(assignment, result.episodes)
        row = {"step": assignment.step, "stage": assignment.stage, "phase": str(assignment.phase)}
        row |= episode_metrics(config.seats, result.episodes, result.seconds)
        for role in assignment.learning:
            show.phase(f"step {assignment.step}: the {role} learns")
            batch, estimate = make_batch(
                config,
                session.advantages[role],
                assignment,
                role,
                result.episodes,
                parts.learners[role].version + 1,
            )
            if not batch.samples:
                show.say(
                    f"step {assignment.step}: no sample for the {role} (see metrics.jsonl); it does not learn"
                )
                row[role] = estimate
                continue
            metrics, weights = parts.learners[role].step(batch)
            clock.lap("learn")
            receipts = parts.rollouts.publish(role, weights)
            clock.lap("publish")
            row[role] = (
                dict(metrics) | estimate | {"probe_difference": max(r.probe_difference for r in receipts)}
            )
        parts.scheduler.observe(assignment.step, best_programs(result.episodes))
        row["sandbox"] = result.sandbox
        clock.lap("records")
        row["seconds"] = clock.since(began)
        show.step(row)
        session.finish_step(assignment, row, result.episodes)
    session.recorder.finish()


def make_batch(
    config: Config,
    advantages: Advantages,
    assignment: Assignment,
    role: str,
    episodes: Sequence[Episode],
    update: int,
) -> tuple[Batch, dict[str, float]]:
    """(batch, what was left out). Advantages of critic-free estimators are estimated here, per group."""
    settings = config.policy(role).learner
    of_stage = config.staged and role == "generator" and config.credit in ("stage", "tree")
    samples: list[Sample] = []
    groups_seen = without_signal = 0
    for player in config.players_of(role):  # two of them in self-play: each has baselines of its own
        groups = learning_groups(assignment, player, episodes)
        credits = advantages.credit(
            [[t.reward for t in group if t.reward is not None] for _, group in groups],
            game=config.game.kind,
            role=player,
            parents=[parent for parent, _ in groups],
        )
        samples += [
            replace(
                sample_from(
                    t,
                    a,
                    (assignment.stage,) if of_stage else None,
                    mask_truncated=settings.mask_truncated,
                    by_turn=role == "generator" and config.credit == "stage_gae",
                ),
                reward=r,
            )
            for (_, group), credit in zip(groups, credits, strict=True)
            if credit is not None
            for t, (r, a) in zip(group, credit, strict=True)
        ]
        groups_seen += len(groups)
        without_signal += credits.count(None)
    dropped = sum(config.seats[t.player] == role for e in episodes for t in e.dropped())
    batch = Batch(
        step=update,
        samples=tuple(samples),
        temperature=config.temperature,
        seed=derive_seed(config.seed, "minibatches", role, update),
    )
    share = without_signal / max(1, groups_seen)
    return batch, {"groups_without_signal": share, "dropped": float(dropped)}


def learning_groups(
    assignment: Assignment, player: str, episodes: Sequence[Episode]
) -> list[tuple[str, list[Trajectory]]]:
    """(problem, attempts that share a baseline). Where attempts branched at the stage under training: per prefix one
    attempt for each branch, cut after that stage, whose reward is the mean over the branch's continuations."""
    groups: list[tuple[str, list[Trajectory]]] = []
    for episode in episodes:
        judged = episode.judged(player)
        if not judged or judged[0].place is None:
            groups += [(episode.problem_id, group) for group in episode.groups(player)]
            continue
        tree: dict[int, dict[int, list[Trajectory]]] = {}
        for trajectory in judged:
            assert trajectory.place is not None
            prefix, branch = trajectory.place
            tree.setdefault(prefix, {}).setdefault(branch, []).append(trajectory)
        for branches in tree.values():
            values = branch_values([[t.reward or 0.0 for t in branch] for branch in branches.values()])
            cut = [
                replace(branch[0], turns=branch[0].turns[: assignment.stage], reward=value)
                for branch, value in zip(branches.values(), values, strict=True)
            ]
            groups.append((episode.problem_id, cut))
    return groups


def episode_metrics(
    players: Iterable[str], episodes: Sequence[Episode], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Means over the step's episodes."""
    row: dict[str, Any] = {}
    trajectories = [t for e in episodes for t in e.trajectories]
    for player in players:
        judged = [t for t in trajectories if t.player == player and t.reward is not None]
        row[f"{player}_reward"] = mean([t.reward for t in judged])
        row[f"{player}_tokens"] = mean([sum(len(turn.completion.tokens) for turn in t.turns) for t in judged])
        names = dict.fromkeys(name for t in judged for name in t.components)
        row[f"{player}_components"] = {
            name: mean([t.components[name] for t in judged if name in t.components]) for name in names
        }
    suites = row.get("discriminator_components", {})
    row["validity"], row["kill_rate"] = suites.get("validity"), suites.get("kill_rate")
    row["dropped"] = {
        reason: sum(reason in t.components for t in trajectories)
        for reason in ("sandbox_failure", "no_valid_test")
    }
    turns = {id(turn): turn for t in trajectories for turn in t.turns}  # attempts that branch share some
    tokens = sum(len(turn.completion.tokens) for turn in turns.values())
    row["tokens"] = tokens
    row["tokens_per_s"] = tokens / seconds["generate"] if seconds["generate"] else None
    return row


def require_some_judged(assignment: Assignment, episodes: Sequence[Episode]) -> None:
    """Raises SandboxFailure where the sandbox judged nothing at all: the step must be done again, not skipped."""
    trajectories = [t for e in episodes for t in e.trajectories]
    failed = any("sandbox_failure" in t.components for t in trajectories)
    if failed and all(
        t.reward is None for t in trajectories
    ):  # without a judged test no program has a reward either
        raise SandboxFailure(
            f"step {assignment.step}: the sandbox judged none of {len(trajectories)} attempts; look after the Docker "
            "Engine and continue with --resume"
        )


def best_programs(episodes: Sequence[Episode]) -> dict[str, tuple[float, str]]:
    """The best program of each episode, for the solvability gate's memory."""
    best = {}
    for episode in episodes:
        rewarded = [(t.reward, t.artifact) for t in episode.judged("generator") if t.reward]
        if rewarded:
            best[episode.problem_id] = max(rewarded)
    return best


def mean(values: Sequence[Any]) -> float | None:
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    main(sys.argv[1:])
