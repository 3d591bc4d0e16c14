"""Serves a game of programs as an OpenEnv environment: another trainer's model writes the program, and gets our reward.

    python -m sparring openenv --dataset my_problems.json                               unit tests
    python -m sparring openenv --dataset mbpp.jsonl --format mbpp --split train --game.kind code_execution

The reward follows from the game's settings, as in training here (`--game.KEY`). Programs run in the sandbox only.
OpenEnv's clients send no key, so the server listens on this machine only. Needs: pip install openenv
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from configs.openenv import OpenEnvOptions
from sandbox_workers.local import LocalSandbox
from sparring.core.commands import plain_endings
from sparring.core.errors import SparringError
from sparring.games.programs.game import SolverGame
from sparring.problems.formats import load_dataset
from sparring.problems.loader import ProblemFileError
from sparring.problems.packages import missing_packages
from sparring.problems.references import judge_references
from sparring.runtime.logs import quiet_logs
from sparring.runtime.problem_sets import playable, without_failing
from sparring.web.service import run


def main(arguments: Sequence[str]) -> None:
    with plain_endings():
        serve(OpenEnvOptions.read(arguments))


def serve(options: OpenEnvOptions) -> None:
    """Serves until the process is stopped. Raises SparringError."""
    game = options.game.game()
    if not isinstance(game, SolverGame):
        raise SparringError(
            f"--game.kind {options.game.kind}: cannot be served as an environment: give a game in which a "
            "single player writes a program, such as unit_tests"
        )
    try:
        from sparring.serving.openenv import environments
    except ModuleNotFoundError as error:
        raise SparringError(f"{error}: pip install openenv") from None
    faults: list[ProblemFileError] = []
    problems = load_dataset(
        options.dataset, options.format, fields=options.fields, split=options.split, faults=faults
    )
    for fault in faults:
        print(f"left out: {fault}", flush=True)
    problems = playable(problems, options.dataset, options.game.refuse, leave_out=True)
    limits = game.rules.sandbox_limits
    with LocalSandbox(options.sandbox, slots=options.slots, limits=limits) as sandbox:
        print(sandbox.description, flush=True)
        if missing := asyncio.run(missing_packages(problems, sandbox)):
            print(missing, flush=True)
        judged, failing = asyncio.run(judge_references(problems, sandbox))
        known = {problem.id: problem for problem in without_failing(judged, failing)}
        print(f"game {options.game.kind}, {len(known)} problems", flush=True)
        run(environments(game, known, sandbox), argparse.Namespace(host="127.0.0.1", port=options.port))


if __name__ == "__main__":
    quiet_logs()
    main(sys.argv[1:])
