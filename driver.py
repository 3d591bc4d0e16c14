"""Sparring's training loop: two policies are trained against each other on a curriculum, and a sandbox judges their
programs.

    python driver.py                     the recipe toy:edges on a local Ray
    python driver.py --config debug      one process, under a minute
    python driver.py --resume            continue the latest run

The loop is `train`; the rest of this file is set-up.
"""

import sys
from collections.abc import Sequence

from configs.load import load_run
from sparring.core.batch import BatchSpec
from sparring.core.commands import plain_endings
from sparring.core.seeding import derive_seed
from sparring.core.tracing import seconds_of
from sparring.runtime.logs import quiet_logs
from sparring.runtime.placement import learning_in_turn
from sparring.runtime.session import Session, open_session, show_plan
from sparring.tracking.step import (
    best_programs,
    episode_metrics,
    mistakes,
    policy_lag,
    require_some_judged,
    without_signal,
)


def main(arguments: Sequence[str]) -> None:
    quiet_logs()
    with plain_endings():
        run, recipe = load_run(list(arguments))
        if run.plan or run.plan_for is not None:
            return show_plan(run, recipe)
        with open_session(run, recipe) as session:
            train(session)


def train(session: Session) -> None:
    """Runs training steps until the curriculum ends.

    A step plays episodes with the newest weights (with rollout.max_policy_lag, with older ones), updates the policies
    that learn, reports the results to the curriculum, and then evaluates and saves a checkpoint if these are due.
    """
    config, parts, show, clock = session.config, session.parts, session.display, session.clock
    session.evaluate_start()
    began = dict(clock.seconds)
    for assignment, playing in session.steps():
        step = assignment.step
        result = playing()
        publishing = seconds_of("publish", result.spans, since=clock.last)
        judging = seconds_of("sandbox", result.spans, since=clock.last + publishing)
        clock.split({"publish": publishing, "sandbox": judging}, "rollout", result.spans)
        require_some_judged(step, result.episodes)
        row = {"step": step, "stage": assignment.stage, "phase": str(assignment.phase)}
        row |= episode_metrics(config.seats, result)
        for roles in learning_in_turn(config, assignment.learning):
            show.phase(f"step {step}: learning ({', '.join(roles)})")
            parts.rollouts.sleep()
            updates = {}
            for role in roles:
                samples, row[role] = session.credit[role].samples(result.episodes, assignment.stage)
                if not samples:
                    show.say(f"step {step}: {role} not updated: {without_signal(row)}")
                    continue
                version = parts.learners[role].version + 1
                row[role] |= policy_lag(result.usage, config.players_of(role), version)
                seed = derive_seed(config.seed, "minibatches", role, version)
                batch = BatchSpec(step=version, samples=samples, temperature=config.temperature, seed=seed)
                updates[role] = parts.learners[role].begin(batch)
            for role, learning in updates.items():
                metrics, session.weights[role] = learning()
                row[role] |= dict(metrics)
                clock.lap("learn")
        parts.scheduler.observe(step, best_programs(result.episodes), mistakes(result.episodes))
        row |= {"sandbox": result.sandbox, "played_again": result.played_again, "replaced": result.replaced}
        clock.lap("records")
        row["seconds"] = clock.since(began)
        show.step(row)
        session.finish_step(assignment, row, result.episodes)
        began = dict(clock.seconds)
    session.recorder.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
