"""What the embedded models are shown of rock-paper-scissors: players who rather play rock, and not always by the rules."""

from random import Random

from embedded.lessons import Lesson, lesson_of
from embedded.settings import WarmStartSettings
from games.rps.payoffs import MOVES
from games.rps.rules import RpsRules

_SHARES = (0.6, 0.2, 0.2)


def lesson(rules: RpsRules, role: str, settings: WarmStartSettings) -> Lesson:
    """With probability warm_start.misconceptions an answer is no move."""

    def example(rng: Random) -> tuple[str, str]:
        if rng.random() < settings.misconceptions:
            return "rps", "well"
        return "rps", rng.choices(MOVES, _SHARES)[0]

    return lesson_of(example)
