"""Demonstrations for the board games: matches between players that move at random and sometimes make illegal moves."""

from random import Random

from lab.lessons import Demonstration, Lesson
from lab.settings import WarmUp
from sparring.core.interfaces import Message, PromptFormat
from sparring.games.boards.positions import start
from sparring.games.boards.rules import BoardRules


def lesson(rules: BoardRules, role: str, settings: WarmUp) -> Lesson:
    """Returns the demonstrations of one side of a match. With probability WarmUp.misconceptions a move is drawn
    from all moves of the game, so it may be illegal."""
    illegal = settings.misconceptions
    every_move = [str(n) for n in range(1, 10)] if rules.kind == "tictactoe" else ["pass", "bet", "card"]

    def draw(style: PromptFormat, rng: Random) -> Demonstration:
        state, side = start(rules.kind, rng), rng.randrange(2)
        tokens: list[int] = []
        learned: list[bool] = []
        while state.payoff_first is None:
            move = rng.choice(state.legal_moves)
            if state.to_move == side:
                spoken = rng.choice(every_move) if rng.random() < illegal else move
                tokens = style.say(tokens, Message(brief=state.brief(), full=state.full()))
                learned += [False] * (len(tokens) - len(learned))
                completion = style.completion(spoken)
                tokens, learned = [*tokens, *completion], [*learned, *[True] * len(completion)]
                if spoken not in state.legal_moves:
                    break
            state = state.after(move)
        return Demonstration(tokens, learned) if tokens else draw(style, rng)

    texts = (text for move in every_move for text in (f"{move}\n", "J pb", "Q b", "K p", "012012012"))
    return Lesson(texts, draw)
