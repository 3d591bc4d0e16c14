"""Rewards a run's stored attempts again under other rules, so that you can see what a reward would have paid before you
train with it. No model is loaded.

    python -m sparring rejudge RUN -- --game.rewards.partial-credit never
    python -m sparring rejudge RUN --hidden -- --game.rewards.wrong-output-penalty 0
    python -m sparring rejudge RUN --tests DIR/problems.json -- --game.baseline-in-reward   DIR: of `sparring export-tests`

The options after `--` are keys of driver.py. Every attempt of episodes.jsonl is judged again, in the games multistage,
code_execution, unit_tests and code_golf. Tests and programs of a memory (curriculum.remembered_*) are not stored and do
not take part. With --tests, all tests of a problem file take the place of the problems' own tests in the rewards. With
--hidden, the programs also run on the problems' evaluation tests, and the command prints how well each of the two
rewards separates right programs from wrong ones.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.core.interfaces import Sandbox, SandboxFailure, SandboxKind
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.evaluation.intervals import print_table
from sparring.evaluation.replaying import Judgement, compared, play_again, told_apart
from sparring.tracking.runs import Row, find_run, played

if TYPE_CHECKING:
    from configs.schema import Config

_GAMES = ("multistage", "code_execution", "unit_tests", "code_golf")
_AT_ONCE = 8
"""Number of episodes that are judged at the same time."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        from configs.load import load_run
        from configs.options import check_writable
        from sandbox_workers.local import LocalSandbox
        from sparring.problems.references import judge_references
        from sparring.runtime.problem_sets import load_splits
        from sparring.tracking.rows import write_json

        run = find_run(options.run, options.output_dir)
        if options.json is not None:
            try:
                check_writable(options.json, "--json")
            except ValueError as error:
                raise SparringError(str(error)) from None
        config = load_run(["--config", str(run / "config.yaml"), *options.keys])[0].to_config()
        if config.game.kind not in _GAMES:
            raise SparringError(f"{run}: game {config.game.kind} has no attempts that can be judged again")
        problems = {problem.id: problem for problem in load_splits(config)[0]}
        if options.tests is not None:
            problems = _with_tests(problems, options.tests, config)
        code_tests = config.sandbox.code_tests
        with LocalSandbox(options.sandbox, limits=config.sandbox_limits, code_tests=code_tests) as sandbox:
            print(sandbox.description, flush=True)
            # a run judges programs on tests in the form that their references decided
            ids = {row["problem"] for row in played(run)}
            judged, _ = asyncio.run(judge_references([p for i, p in problems.items() if i in ids], sandbox))
            problems |= {problem.id: problem for problem in judged}
            found = asyncio.run(judge_again(config, problems, played(run), sandbox, hidden=options.hidden))
        report: dict[str, Any] = {player: compared(of_player) for player, of_player in found.items()}
        _print_rewards(report)
        if options.hidden and GENERATOR in found:
            apart = {when: told_apart(found[GENERATOR], now=when == "now") for when in ("then", "now")}
            _print_apart(apart)
            report["told_apart"] = apart
        if options.json is not None:
            write_json(options.json, report)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring rejudge", __doc__, of_runs=True)
    parser.add_argument("run", nargs="?", help="a run's directory or name. Default: the latest run")
    parser.add_argument(
        "--hidden", action="store_true", help="also run the programs on the problems' tests for evaluation"
    )
    parser.add_argument(
        "--tests",
        type=home_path,
        metavar="FILE",
        help="a problem file (as problems.file), whose tests take the place of the problems' own in the rewards",
    )
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), default="auto")
    parser.add_argument("--json", type=home_path, metavar="FILE", help="also write the figures to this file")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.keys = list(arguments[end + 1 :])
    return options


def _with_tests(problems: Mapping[str, Problem], file: Path, config: "Config") -> dict[str, Problem]:
    """Returns the problems with all tests of the file's problems as the tests that rewards count. Problems that the file
    does not have keep their own. Raises SparringError."""
    from sparring.problems.loader import load_problems

    if not getattr(config.game, "baseline_in_reward", True):
        raise SparringError(
            "--tests: the run's rewards count no tests of the problems; add: -- --game.baseline-in-reward"
        )
    tests = {problem.id: problem.evaluation_tests for problem in load_problems(file)}
    if not tests.keys() & problems.keys():
        raise SparringError(f"--tests {file}: none of its problems is among those of the run")
    print(f"{len(tests.keys() & problems.keys())} of the run's {len(problems)} problems have tests in {file}")
    return {
        i: replace(p, baseline_tests=tests.get(i, p.baseline_tests), hidden_tests=p.evaluation_tests)
        for i, p in problems.items()
    }


async def judge_again(
    config: "Config",
    problems: Mapping[str, Problem],
    rows: Iterable[Row],
    sandbox: Sandbox,
    *,
    hidden: bool = False,
) -> dict[str, list[Judgement]]:
    """Returns the stored and the new reward of each attempt, by player. The new reward is that of the config's game; it
    is None if the sandbox cannot judge the attempt. Raises SparringError if a problem of the run is missing."""
    episodes: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        episodes[row["step"], row["problem"]].append(row)
    if missing := sorted({problem for _, problem in episodes} - problems.keys()):
        raise SparringError(f"problem {missing[0]} of the run is not among the problems of its config now")
    game = config.game.model_copy(update={"attempts_per_episode": 1}).game()  # each is an attempt of its own
    places, turns = config.game.stage_numbers or (0,), asyncio.Semaphore(_AT_ONCE)

    async def again(key: tuple[int, str], attempts: list[Row]) -> list[tuple[str, Judgement]]:
        problem, by_player = problems[key[1]], defaultdict[str, list[Row]](list)
        for row in attempts:
            by_player[row["player"]].append(row)
        answers = {name: [_answer(row) for row in of_player] for name, of_player in by_player.items()}
        prompts = {
            name: next(iter(of_player[0].get("prompts", ())), "") for name, of_player in by_player.items()
        }
        async with turns:
            try:
                now = await play_again(game, problem, answers, prompts, places, sandbox)
            except SandboxFailure:
                now = {}
            found = []
            for name, of_player in by_player.items():
                for row, attempt in zip(of_player, now.get(name) or [None] * len(of_player), strict=True):
                    right = None
                    if hidden and attempt is not None and name == GENERATOR:
                        right = await _is_right(problem, attempt.artifact, sandbox, limits)
                    group = (*key, row.get("number", 1), row.get("group"))
                    reward = None if attempt is None else attempt.reward
                    found.append((name, Judgement(group=group, then=row["reward"], now=reward, right=right)))
        return found

    limits = config.sandbox_limits or Limits()
    judged = await asyncio.gather(*(again(key, attempts) for key, attempts in episodes.items()))
    by_player: dict[str, list[Judgement]] = defaultdict(list)
    for name, judgement in (pair for of_episode in judged for pair in of_episode):
        by_player[name].append(judgement)
    return by_player


def _answer(row: Row) -> str:
    texts = row.get("texts")
    return texts[-1] if texts else row.get("artifact", "")


async def _is_right(problem: Problem, program: str, sandbox: Sandbox, limits: Limits) -> bool | None:
    try:
        verdicts = await sandbox.judge(
            problem.in_harness(program),
            problem.evaluation_tests,
            limits=problem.limits_over(limits),
            language=problem.language,
        )
    except SandboxFailure:
        return None
    return all(verdict.passed for verdict in verdicts)


def _print_rewards(report: Mapping[str, Mapping[str, float | None]]) -> None:
    header = ["", "attempts", "mean reward then", "now", "share changed", "pairs ordered alike"]
    keys = ("attempts", "mean_then", "mean_now", "changed", "rank_agreement")
    rows = [[name, *(_told(of[key]) for key in keys)] for name, of in report.items()]
    print_table("rewards of the stored attempts", header, rows)


def _print_apart(apart: Mapping[str, Mapping[str, float | None]]) -> None:
    header = ["reward", "right over wrong", "groups with signal", "of those without a right program"]
    keys = ("right_over_wrong", "with_signal", "signal_without_right")
    rows = [[when, *(_told(of[key]) for key in keys)] for when, of in apart.items()]
    print_table("how well it tells right programs from wrong ones", header, rows)


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if value.is_integer() and value > 1 else f"{value:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
