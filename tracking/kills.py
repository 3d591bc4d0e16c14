"""Which suites kill which programs, over the steps of a run, from the attempts that it stored.

A step's programs meet that step's suites. A pair of two steps is known only where the outcome of each valid test on a
program of the same text is stored by any step; other pairs are left out, never guessed. So a cell off the diagonal rests
on programs and tests that came up again word for word, which are rather the common ones.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracking.runs import is_suite

_CUT = "…"


class KillMatrix:
    def __init__(self) -> None:
        # all by problem
        self._killed: dict[str, dict[str, dict[str, bool]]] = defaultdict(lambda: defaultdict(dict))
        self._programs: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        self._suites: dict[str, dict[frozenset[str], Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )

    def add(self, row: Mapping[str, Any]) -> None:
        """An attempt, as episodes.jsonl has it. Suites without a valid test and attempts that nobody judged tell
        nothing here."""
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
        """(pairs killed, pairs known), by the bin of the suite's step, then of the program's. Empty where no suite is
        stored."""
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
    """A text that was cut off says which test it is only within its own step."""
    test = outcome["test"]
    # thousands of programs meet the same tests
    return sys.intern(f"{step} {test}" if test.endswith(_CUT) else test)
