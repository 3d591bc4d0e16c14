"""Demonstrations for rock-paper-scissors: players that prefer rock and sometimes make an invalid move."""

from random import Random

from lab.lessons import Lesson, lesson_of
from lab.settings import WarmUp
from sparring.games.rps.payoffs import MOVES
from sparring.games.rps.rules import RpsRules

_SHARES = (0.6, 0.2, 0.2)


def lesson(rules: RpsRules, role: str, settings: WarmUp) -> Lesson:
    """Returns the demonstrations. With probability WarmUp.misconceptions the answer is not a valid move."""

    def example(rng: Random) -> tuple[str, str]:
        if rng.random() < settings.misconceptions:
            return "rps", "well"
        return "rps", rng.choices(MOVES, _SHARES)[0]

    return lesson_of(example)
