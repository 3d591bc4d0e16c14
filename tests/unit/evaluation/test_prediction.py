"""The prediction game's held-out scores, by hand."""

import asyncio
import json
from dataclasses import replace

import pytest

from sparring.core.episode import Episode, Trajectory
from sparring.games.prediction.evaluator import PredictionEvaluator
from sparring.games.prediction.game import OutputPredictionGame
from sparring.games.prediction.rules import OutputPredictionRules
from tests.playing import play, player, reader
from tests.recorded import DOUBLE

TOPICS = [replace(DOUBLE, id=name, description=name) for name in ("sums", "words")]


def author(artifact: str, reward: float | None, **components: float) -> Trajectory:
    said = {"artifact": artifact, "reward": reward, "components": components}
    return Trajectory(player="author", attempt=0, turns=[], **said)


def opponent(right: bool) -> Trajectory:
    earned = {"reward": 1.0 if right else -1.0, "components": {"predicted": float(right)}}
    return Trajectory(player="opponent", attempt=0, turns=[], **earned)


def episode(*trajectories: Trajectory) -> Episode:
    return Episode(problem_id="sums", trajectories=list(trajectories))


def scores(fresh, of_bank, bank=4):
    programs = {"sums": [f"print({n})" for n in range(bank)]}
    return asyncio.run(PredictionEvaluator(TOPICS, 3).scores([fresh, of_bank], programs))


def test_scores_by_hand():
    fresh = [
        episode(
            author("a", 1.0, valid=1.0, stumped=1.0, lines=3.0),
            author("b", -1.0, valid=1.0, stumped=0.0, lines=5.0),
            author("c", -1.0, valid=0.0, foul_syntax=1.0),
            author("d", None, sandbox_failure=1.0),
            opponent(False),
            opponent(True),
        ),
        episode(author("e", 1.0, valid=1.0, stumped=1.0, lines=1.0), opponent(False)),
    ]
    found = scores(fresh, [episode(opponent(True), opponent(False), opponent(True), opponent(True))])
    rates = {"author_valid": 3 / 4, "author_stumps": 2 / 3, "opponent_predicts_bank": 3 / 4}
    assert found.values == pytest.approx(rates | {"program_lines": 3.0, "unjudged": 1.0})
    assert found.combined == 0.75


def test_a_program_of_the_bank_that_nobody_was_asked_about_is_counted():
    found = scores([episode()], [episode(opponent(True), opponent(False))], bank=5)
    assert found.values["unjudged"] == 3.0 and found.values["opponent_predicts_bank"] == 0.5


def test_nothing_valid_is_no_error():
    found = scores([episode(author("c", -1.0, valid=0.0))], [episode()], bank=0)
    assert found.values == {"author_valid": 0.0, "unjudged": 0.0} and found.combined == 0.0
    assert found.missing == ("author_stumps", "opponent_predicts_bank", "program_lines")


def test_the_bank_is_the_valid_programs_of_the_first_author_each_once():
    evaluator = PredictionEvaluator(TOPICS, 3)
    request = evaluator.bank_request()
    assert request.attempts == {"author": 3, "opponent": 0}
    made = [
        author("a", None, valid=1.0),
        author("b", -1.0, valid=0.0),
        author("a", None, valid=1.0),
        author("x", None, sandbox_failure=1.0),
    ]
    bank = asyncio.run(evaluator.bank_of([episode(*made)]))
    assert bank == {"sums": ["a"]} == json.loads(json.dumps(bank))


def test_what_is_asked_for():
    evaluator = PredictionEvaluator(TOPICS, 3)
    fresh, of_bank = evaluator.requests({"sums": ["print(1)"]})
    assert fresh.attempts == {"author": 3, "opponent": 1} and not fresh.memory
    assert of_bank.attempts == {"author": 0, "opponent": 1}
    assert of_bank.memory == {"sums": ("print(1)",)}
    assert len({r.address for r in (fresh, of_bank, evaluator.bank_request())}) == 3
    for request in (fresh, of_bank):
        assert request.temperatures == {"author": 1.0, "opponent": 0.0}
        assert request.problems == tuple(TOPICS)


def test_from_play_to_scores(sandbox):
    """One who predicts the bank and is stumped by what is new."""
    game = OutputPredictionGame(OutputPredictionRules())
    evaluator = PredictionEvaluator(TOPICS[:1], 2)
    seats = [reader("author", ["print(1)", "print(1"]), player("opponent", lambda *_: "", attempts=0)]
    bank = asyncio.run(evaluator.bank_of([play(game, TOPICS[0], seats, sandbox)]))
    assert bank == {"sums": ["print(1)"]}

    def says(prompt, sampling):
        return "1" if prompt == "print(1)>" else "no idea"

    played = []
    for request, texts in zip(evaluator.requests(bank), (["print(2)", "print(1)"], []), strict=True):
        seats = [reader("author", texts), player("opponent", says, attempts=request.attempts["opponent"])]
        played.append([play(game, TOPICS[0], seats, sandbox, request.memory.get("sums", ()))])
    found = asyncio.run(evaluator.scores(played, bank)).values
    assert (found["author_valid"], found["author_stumps"], found["opponent_predicts_bank"]) == (1.0, 0.5, 1.0)
