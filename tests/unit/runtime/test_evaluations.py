"""When a run is evaluated, with what yardstick, and what is said of the scores."""

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.core.evaluation import Scores
from sparring.core.play import PlayRequest
from sparring.core.weights import Weights
from sparring.games.multistage.rules import MultistageRules
from sparring.runtime.evaluations import Evaluations
from sparring.tracking.clock import Clock
from sparring.tracking.progress import Display
from tests.unit.runtime.makers import problem, start_at

DONE = {"step": 3}
WEIGHTS = {"generator": Weights(version=3, update=None)}


class Game:
    """An evaluator whose yardstick is how often it was played; its score is what it is given."""

    shown = ("score",)

    def __init__(self, gap: float | None = None, held_out: str = "a", shows_bank: bool = True) -> None:
        self.values, self.played = {} if gap is None else {"proxy_gold_gap": gap}, 0
        self.held_out, self.shows_bank = held_out, shows_bank
        self.events: list[str] = []
        self.missing: tuple[str, ...] = ()

    def begin(self, request: PlayRequest) -> Any:
        assert request.weights == WEIGHTS
        bank = request.address == ("bank",)
        self.played += bank
        name = "bank" if bank else "held out"
        self.events.append(f"{name} begins")

        def wait() -> Any:
            self.events.append(f"{name} is there")
            return SimpleNamespace(episodes=[p.id for p in request.problems] if bank else [])

        return wait

    def bank_request(self) -> PlayRequest:
        problems = tuple(map(problem, self.held_out))
        return PlayRequest(address=("bank",), problems=problems, attempts={}, temperatures={})

    async def bank_of(self, episodes: Any) -> Any:
        return {problem: [f"played {self.played}"] for problem in episodes}

    def requests(self, bank: Any) -> list[PlayRequest]:
        assert not self.shows_bank or bank.keys() >= set(self.held_out)
        return [PlayRequest(address=("held out",), problems=(), attempts={}, temperatures={})]

    async def scores(self, played: Any, bank: Any) -> Scores:
        assert bank.keys() >= set(self.held_out)
        return Scores(self.values, 0.0, missing=self.missing)


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, said: io.StringIO) -> Any:
    def make(run: Path, game: Game, checkpoint: Path | None = None, **settings: Any) -> Evaluations:
        monkeypatch.setattr(MultistageRules, "evaluator", lambda *_: game)
        run.mkdir(exist_ok=True)
        parts: Any = SimpleNamespace(rollouts=game, sandbox=None, wait=asyncio.run)
        state = DONE if checkpoint is not None else None
        start = start_at(run, checkpoint=checkpoint, state=state)
        config = Config.model_validate({"evaluation": settings})
        show = Display(Console(file=said, width=200))
        made = Evaluations(config, start, [], parts, WEIGHTS, show, Clock())
        made.prepare()
        return made

    return make


def scored(run: Evaluations, step: int, last_of_stage: bool = False) -> Scores | None:
    waiting = run.begin(step, last_of_stage)
    return waiting() if waiting is not None else None


def after(run: Path) -> Path:
    return run / "checkpoints" / "step_000003"


def test_scores_are_due_before_the_first_step_at_a_stages_end_and_as_often_as_is_wanted(
    made, tmp_path
) -> None:
    run = made(tmp_path, Game(), every=2)
    due = [step for step in range(6) if scored(run, step, last_of_stage=step == 5) is not None]
    assert due == [0, 2, 4, 5]


def test_without_evaluation_nothing_is_played(made, tmp_path) -> None:
    game = Game()
    run = made(tmp_path, game, enabled=False)
    assert run.begin(0) is None and run.begin(3, last_of_stage=True) is None
    assert run.shown == () and not game.played and not (tmp_path / "bank.json").exists()


def test_the_yardstick_is_played_once_and_goes_with_the_run_and_with_those_that_begin_from_it(
    made, tmp_path
) -> None:
    game, first, other = Game(), tmp_path / "a", tmp_path / "b"
    for run, checkpoint in ((first, None), (first, after(first)), (other, after(first))):
        assert scored(made(run, game, checkpoint), 4, last_of_stage=True) is not None
        assert json.loads((run / "bank.json").read_text()) == {"a": ["played 1"]}
    assert game.played == 1


@pytest.mark.parametrize("shows_bank", [False, True])
def test_the_yardstick_is_played_beside_the_first_scores_unless_its_programs_are_shown_there(
    made, tmp_path, shows_bank
) -> None:
    game = Game(shows_bank=shows_bank)
    assert scored(made(tmp_path, game), 0) is not None
    last = ["bank is there", "held out begins"] if shows_bank else ["held out begins", "bank is there"]
    assert game.events == ["bank begins", *last, "held out is there"]


def test_held_out_problems_that_the_run_before_did_not_have_get_their_yardstick(made, tmp_path, said) -> None:
    assert scored(made(tmp_path / "a", Game(held_out="ab")), 0) is not None
    evaluated = made(tmp_path / "b", Game(held_out="bcd"), after(tmp_path / "a"))
    assert scored(evaluated, 4, last_of_stage=True) is not None
    bank = json.loads((tmp_path / "b" / "bank.json").read_text())
    assert bank == {problem: ["played 1"] for problem in "abcd"}
    assert said.getvalue().startswith("2 of 3 held-out problems are not of the run before")


def test_a_checkpoint_whose_runs_yardstick_is_missing_says_what_to_do(made, tmp_path) -> None:
    with pytest.raises(SparringError, match=r"bank.json is missing at .*--no-evaluation.enabled"):
        made(tmp_path / "b", Game(), after(tmp_path / "copy"))


@pytest.mark.parametrize(("gap", "rings"), [(0.4, True), (0.2, False), (None, False)])
def test_an_evaluation_of_a_run_sounds_the_alarm(made, tmp_path, said, gap, rings) -> None:
    scored(made(tmp_path, Game(gap)), 0)
    assert said.getvalue().startswith("hacking alarm") is rings


def test_the_best_checkpoint_is_chosen_by_the_score_that_is_named(made, tmp_path) -> None:
    scores = scored(made(tmp_path, Game(0.25), best_by="proxy_gold_gap"), 0)
    assert scores is not None and scores.combined == 0.25
    other = made(tmp_path / "other", Game(0.25), best_by="elegance")
    with pytest.raises(SparringError, match=r"best_by elegance: .* give one of proxy_gold_gap"):
        scored(other, 0)


def test_a_score_of_this_game_that_nothing_was_measured_for_makes_no_best_checkpoint(made, tmp_path) -> None:
    game = Game()
    game.missing = ("kill_rate",)
    scores = scored(made(tmp_path, game, best_by="kill_rate"), 0)
    assert scores is not None and scores.combined is None
