"""A coding problem, the input of every game."""

import re
from dataclasses import dataclass

from sparring.core.verdict import Limits, Test

_FUNCTION_NAME = re.compile(r"def\s+([A-Za-z_]\w*)\s*\(")
_FUTURE = re.compile(r"^from __future__ import (?:\([^)]*\)|.*)\n?", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One task with a reference solution.

    Example:
        Problem(id="p1", description="Return n doubled.", function_signature="def f(n: int) -> int:",
                baseline_tests=("assert f(2) == 4",), reference_solution="def f(n):\\n    return n * 2\\n")
    """

    id: str
    description: str
    function_signature: str
    baseline_tests: tuple[Test, ...]
    """Tests that come with the problem; a training reward may use them."""
    reference_solution: str
    """Empty if the data set has none."""
    difficulty: str | int = "unknown"
    tags: tuple[str, ...] = ()
    hidden_tests: tuple[Test, ...] = ()
    """Tests for evaluation: no prompt and no reward uses them. A data set's official list may repeat baseline tests."""
    language: str = "python"
    limits: Limits | None = None
    """Limits that the data set states. Limits that are not set here are the run's."""
    other_solutions: tuple[str, ...] = ()
    """Correct solutions besides the reference solution."""
    wrong_solutions: tuple[str, ...] = ()
    preamble: str = ""
    """Python that the data set's harness puts before each program: imports, and the prompt's other functions."""
    epilogue: str = ""
    """Python that the harness puts after each program, such as a function that calls the method of a class Solution."""

    @property
    def is_function(self) -> bool:
        """Whether the problem asks for a Python function, which the signature names and tests can call."""
        return self.language == "python" and _FUNCTION_NAME.search(self.function_signature) is not None

    @property
    def entry_point(self) -> str:
        """Name of the function under test, from the signature. Raises ValueError if it has none."""
        match = _FUNCTION_NAME.search(self.function_signature)
        if match is None:
            raise ValueError(
                f"problem {self.id}: function_signature {self.function_signature!r} has no 'def name('"
            )
        return match.group(1)

    def in_harness(self, program: str) -> str:
        """Returns the program as it is judged: between the preamble and the epilogue."""
        if self.epilogue:
            program = f"{program}\n{self.epilogue}"
        if not self.preamble:
            return program
        futures = "".join(_FUTURE.findall(program))  # Python requires them at the beginning
        return f"{futures}{self.preamble}\n{_FUTURE.sub('', program)}"

    def limits_over(self, run: Limits) -> Limits:
        return self.limits.over(run) if self.limits is not None else run

    @property
    def baseline_asserts(self) -> tuple[str, ...]:
        """The baseline tests that are Python source."""
        return tuple(test for test in self.baseline_tests if isinstance(test, str))

    @property
    def evaluation_tests(self) -> tuple[Test, ...]:
        return self.hidden_tests or self.baseline_tests
