"""How well tests choose among several programs for one problem."""

import ast
import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from sparring.core.errors import SparringError
from sparring.core.evaluation import mean
from sparring.core.interfaces import Sandbox, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.source import literal_calls
from sparring.evaluation.choosing import Results, count_votes, results
from sparring.evaluation.writing import SuiteGame
from sparring.games.pass_at_k import pass_at_k

_SIZES = (2, 4, 8, 16, 32, 64)


def sampled_programs(file: Path, problems: Sequence[Problem]) -> dict[str, list[tuple[str, float]]]:
    """Returns the programs of an evaluation's file and the shares of the hidden tests that they pass, by problem. Programs
    that were not judged are left out. Raises SparringError if the file has no sampled program of these problems."""
    try:
        tasks = json.loads(file.read_text("utf-8"))["tasks"]
        known = {p.id for p in problems}
        found = {
            name: [(s["program"], s["test_rate"]) for s in task["samples"] if s["test_rate"] is not None]
            for name, task in tasks.items()
            if name in known and any(s["test_rate"] is not None for s in task.get("samples") or ())
        }
    except OSError as error:
        raise SparringError(f"--programs {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        found = {}
    if not found:
        raise SparringError(
            f"--programs {file}: no sampled programs of these problems: give the file that sparring evaluate wrote with "
            "--policy, --samples and --json"
        )
    return found


async def choice_scores(
    problems: Sequence[Problem],
    suites: Sequence[Sequence[str]],
    sampled: Mapping[str, Sequence[tuple[str, float]]],
    game: SuiteGame,
    sandbox: Sandbox,
    known_tests: int,
) -> dict[str, float | None]:
    """Returns how often the program is right that tests choose, which are not checked on the reference. A problem on which
    the sandbox failed is left out.

    pass_at_1: a program by chance. any_of_N: whether any of N programs is right, which no choice can exceed.
    best_of_N_by_WAY: the program of N with the most votes (choosing.count_votes) on the tests of 1_suites or of all suites;
    on the known_tests; on known_tests_and_M_suites, where the suites decide between programs that do equally well on the known
    tests; or majority: on the inputs of the known tests, without their expected outputs. fidelity_of_M_suites:
    Spearman's correlation over a problem's programs between the votes and the share of hidden tests passed, as a mean over
    the problems on which neither is constant (UTRL, arXiv:2508.21107).

    Args:
        suites: the texts of the suites of each problem.
        sampled: see `sampled_programs`.
        known_tests: number of each problem's baseline tests that are known at inference.
    """
    numbers = list(dict.fromkeys((1, max(map(len, suites)))))
    least = min(len(programs) for programs in sampled.values())
    sizes = [size for size in _SIZES if size <= least]
    found: dict[str, list[float | None]] = defaultdict(list)

    async def choose(problem: Problem, of_problem: Sequence[str]) -> None:
        programs = [problem.in_harness(program) for program, _ in sampled[problem.id]]
        rates = [rate for _, rate in sampled[problem.id]]
        solved = [rate == 1 for rate in rates]
        ways = {f"{n}_suites": game.tests_of(of_problem[:n], problem) for n in numbers}
        if known := problem.baseline_asserts[:known_tests]:
            inputs = [call for test in known for call in literal_calls(test, problem.entry_point)]
            ways |= {"known_tests": list(known), "majority": [ast.unparse(call) for call in inputs]}
        limits = problem.limits_over(game.limits)
        try:
            ran = {way: await results(programs, tests, sandbox, limits) for way, tests in ways.items()}
        except SandboxFailure:
            return
        found["pass_at_1"].append(fmean(solved))
        for size in sizes:
            found[f"any_of_{size}"].append(pass_at_k(len(solved), sum(solved), size))
            for way, result in ran.items():
                found[f"best_of_{size}_by_{way}"].append(best_of(size, solved, result))
            for n in numbers if known else ():
                both = best_of(size, solved, ran["known_tests"], ran[f"{n}_suites"])
                found[f"best_of_{size}_by_known_tests_and_{n}_suites"].append(both)
        for n in numbers:
            votes = count_votes(ran[f"{n}_suites"])
            found[f"fidelity_of_{n}_suites"].append(spearman(votes, rates))

    chosen = [choose(p, of) for p, of in zip(problems, suites, strict=True) if p.id in sampled]
    await asyncio.gather(*chosen)
    return {score: mean(values) for score, values in found.items()}


def best_of(count: int, solved: Sequence[bool], *results: Results) -> float:
    """Returns the chance that the program with the most votes among `count` programs is right. The programs are divided
    into groups of `count` in their order, and the rest is left out; of programs with equal votes, one is drawn at random.

    Args:
        solved: whether each program is right.
        results: the results of the programs on the tests that choose, and on tests that choose among programs with equally
            many votes by those before.
    """
    chances = []
    for begin in range(0, len(solved) - count + 1, count):
        group = range(begin, begin + count)
        counted = list(zip(*(count_votes([of[i] for i in group]) for of in results), strict=True))
        chances.append(fmean(solved[i] for i, n in zip(group, counted, strict=True) if n == max(counted)))
    return fmean(chances)


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Returns Spearman's rank correlation, with mean ranks for ties. None if one of the sequences is constant."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
