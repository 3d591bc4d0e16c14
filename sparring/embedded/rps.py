"""Demonstrations for rock-paper-scissors: players that prefer rock and sometimes make an invalid move."""

from random import Random

from sparring.embedded.lessons import Lesson, lesson_of
from sparring.embedded.settings import WarmStartSettings
from sparring.games.rps.payoffs import MOVES
from sparring.games.rps.rules import RpsRules

_SHARES = (0.6, 0.2, 0.2)


def lesson(rules: RpsRules, role: str, settings: WarmStartSettings) -> Lesson:
    """Returns the demonstrations. With probability warm_start.misconceptions the answer is not a valid move."""

    def example(rng: Random) -> tuple[str, str]:
        if rng.random() < settings.misconceptions:
            return "rps", "well"
        return "rps", rng.choices(MOVES, _SHARES)[0]

    return lesson_of(example)
