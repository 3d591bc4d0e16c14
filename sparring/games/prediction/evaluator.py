"""Held-out evaluation of the output prediction game."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparring.core.episode import Episode
from sparring.core.evaluation import Scores, mean, scores_of
from sparring.core.play import PlayRequest
from sparring.core.problem import Problem
from sparring.games.prediction.rules import AUTHOR, OPPONENT


class PredictionEvaluator:
    """Evaluator on topics that training does not use. The author samples programs, and the opponent decodes greedily.
    Scores:
    author_valid: share of programs that keep the rules;
    author_stumps: share of the valid programs whose output the opponent mispredicts; it falls as the opponent learns;
    opponent_predicts_bank: share of the valid programs of the *initial* author whose output the opponent predicts;
    program_lines: mean length of the valid programs, in lines;
    unjudged: number of programs that the sandbox could not judge.

    combined is the mean of author_valid and opponent_predicts_bank, since neither falls when the other player gets better.
    """

    shown = ("author_valid", "author_stumps", "opponent_predicts_bank")
    shows_bank = True

    def __init__(self, problems: Sequence[Problem], programs: int) -> None:
        self._problems, self._programs = tuple(problems), programs

    def bank_request(self) -> PlayRequest:
        return self._request("bank", {AUTHOR: self._programs, OPPONENT: 0})

    async def bank_of(self, episodes: Sequence[Episode]) -> dict[str, list[str]]:
        """Returns the initial author's valid programs by problem id, without repetitions."""
        return {
            e.problem_id: list(dict.fromkeys(t.artifact for t in e.trajectories if t.components.get("valid")))
            for e in episodes
        }

    def requests(self, bank: Mapping[str, Sequence[str]]) -> list[PlayRequest]:
        fresh = self._request("evaluation", {AUTHOR: self._programs, OPPONENT: 1})
        memory = {problem_id: tuple(programs) for problem_id, programs in bank.items()}
        return [fresh, replace(self._request("of bank", {AUTHOR: 0, OPPONENT: 1}), memory=memory)]

    async def scores(self, played: Sequence[Sequence[Episode]], bank: Mapping[str, Sequence[str]]) -> Scores:
        """See Evaluator."""
        fresh, of_bank = ([t for e in episodes for t in e.trajectories] for episodes in played)
        programs = [t for t in fresh if t.player == AUTHOR and t.reward is not None]
        valid = [t for t in programs if t.components["valid"]]
        values = {
            "author_valid": mean([t.components["valid"] for t in programs]),
            "author_stumps": mean([t.components["stumped"] for t in valid]),
            "opponent_predicts_bank": mean([t.components["predicted"] for t in of_bank]),
            "program_lines": mean([t.components["lines"] for t in valid]),
            # Programs of the bank are valid. If one has no prediction, the sandbox could not judge it.
            "unjudged": float(
                sum(t.reward is None for t in fresh) + sum(map(len, bank.values())) - len(of_bank)
            ),
        }
        return scores_of(values, {"author_valid": 0.5, "opponent_predicts_bank": 0.5})

    def _request(self, name: str, attempts: Mapping[str, int]) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=self._problems,
            attempts=attempts,
            temperatures={AUTHOR: 1.0, OPPONENT: 0.0},
        )
