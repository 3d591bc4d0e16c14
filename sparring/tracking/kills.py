"""Computes which suites kill which programs, across the steps of a run, from the stored attempts.

In a run, a step's programs are tested by that step's suites only. A pair of a suite and a program from different steps is
known only if some step stored the outcome of each valid test of the suite on a program with the same text; other pairs
are left out, never guessed. A cell off the diagonal is therefore computed only from programs and tests that occurred in
both steps with exactly the same text; common programs and tests are overrepresented there.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparring.tracking.runs import is_suite

_CUT = "…"


class KillMatrix:
    def __init__(self) -> None:
        # the keys of all three are problem ids
        self._killed: dict[str, dict[str, dict[str, bool]]] = defaultdict(lambda: defaultdict(dict))
        self._programs: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        self._suites: dict[str, dict[frozenset[str], Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds an attempt, a row of episodes.jsonl. Suites without a valid test and attempts that were not judged are
        ignored."""
        outcomes, problem, step = row["outcomes"], row["problem"], row["step"]
        if not outcomes or row["reward"] is None:
            return
        if is_suite(outcomes):
            tests = frozenset(_key(o, step) for o in outcomes if o["status"] in ("valid", "repeat"))
            if tests:
                self._suites[problem][tests][step] += 1
            return
        program = row.get("artifact", "")
        known = self._killed[problem][program]
        known |= {_key(o, step): o.get("counts", True) and o["status"] != "PASSED" for o in outcomes}
        self._programs[problem][program][step] += 1

    def cells(self, bins: Sequence[Iterable[int]]) -> list[list[tuple[int, int]]]:
        """Returns cells[i][j] = (pairs killed, pairs known), for suites of bin i and programs of bin j. Empty if no suite is
        stored.

        Args:
            bins: the steps of each bin.
        """
        if not self._suites:
            return []
        of_step = {step: number for number, steps in enumerate(bins) for step in steps}
        killed = [[0] * len(bins) for _ in bins]
        pairs = [[0] * len(bins) for _ in bins]
        for problem, suites in self._suites.items():
            for tests, suite_steps in suites.items():
                for program, program_steps in self._programs[problem].items():
                    known = self._killed[problem][program]
                    if not tests <= known.keys():
                        continue
                    kills = any(known[test] for test in tests)
                    for i, wrote in suite_steps.items():
                        for j, played in program_steps.items():
                            pairs[of_step[i]][of_step[j]] += wrote * played
                            killed[of_step[i]][of_step[j]] += wrote * played * kills
        return [list(zip(*rows, strict=True)) for rows in zip(killed, pairs, strict=True)]


def _key(outcome: Mapping[str, Any], step: int) -> str:
    """Returns a key of the test. A text that was cut off identifies the test only within its step."""
    test = outcome["test"]
    # thousands of programs are tested by the same tests
    return sys.intern(f"{step} {test}" if test.endswith(_CUT) else test)
