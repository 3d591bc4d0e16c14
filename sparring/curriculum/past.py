"""Tests that failed programs, and wrong programs, of earlier steps, which the policies play against again.

The curriculum keeps both by problem. They are a cheap form of fictitious play: they stand for earlier versions of the
opponent. Nothing is judged here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sparring.core.seeding import derive_seed


class MistakeBook:
    """Tests that programs failed, by the rule of Code-A1 (Wang et al. 2026, arXiv:2603.15611): a test that some program
    fails gains a point; a test that all programs pass loses a point and is removed at 0. The tests with the highest
    scores are kept."""

    def __init__(self, size: int) -> None:
        """size: maximum number of tests per problem."""
        self._size = size
        self._scores: dict[str, dict[str, int]] = {}

    def tests(self, problem_id: str) -> tuple[str, ...]:
        """Returns the tests of a problem, the highest score first."""
        return tuple(self._scores.get(problem_id, ()))

    def observe(self, problem_id: str, failed: Mapping[str, bool]) -> None:
        """Updates the scores of a problem's tests. failed: whether some program failed the test, by the test's source."""
        scores = dict(self._scores.get(problem_id, {}))
        for test, lost in failed.items():
            scores[test] = scores.get(test, 0) + (1 if lost else -1)
        # The sort is stable: of tests with equal scores, the older ones are kept. New tests would otherwise displace tests
        # that were not used again yet.
        ranked = sorted(scores.items(), key=lambda entry: -entry[1])
        self._scores[problem_id] = {test: score for test, score in ranked[: self._size] if score > 0}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {problem_id: list(scores.items()) for problem_id, scores in self._scores.items() if scores}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scores = {problem_id: dict(of) for problem_id, of in state.items()}


class WrongPrograms:
    """A uniform sample of all distinct wrong programs so far: the programs with the smallest hashes (bottom-k sampling;
    Cohen and Kaplan 2007, "Summarizing data using bottom-k sketches")."""

    def __init__(self, size: int, seed: int) -> None:
        """size: maximum number of programs per problem."""
        self._size, self._seed = size, seed
        self._programs: dict[str, tuple[str, ...]] = {}

    def programs(self, problem_id: str) -> tuple[str, ...]:
        return self._programs.get(problem_id, ())

    def observe(self, problem_id: str, programs: Iterable[str]) -> None:
        known = {*self.programs(problem_id), *programs}
        ranked = sorted(known, key=lambda program: derive_seed(self._seed, "wrong", problem_id, program))
        self._programs[problem_id] = tuple(ranked[: self._size])

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {problem_id: list(programs) for problem_id, programs in self._programs.items() if programs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._programs = {problem_id: tuple(programs) for problem_id, programs in state.items()}
