"""Who takes part in a run's league, and what the league says of players who are known."""

from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.settings import VllmEngineSettings
from configs.load import load_run
from sparring.core.errors import SparringError
from sparring.evaluation.writing import PolicyWriter
from sparring.runtime import league
from sparring.runtime.league import Effort, Member, members_of, play_league
from sparring.runtime.problem_sets import load_splits
from sparring.runtime.start import STARTED_FROM
from tests.playing import Letters, ScriptedPolicy

KUHN = load_run(["--config", "spiral_kuhn"])[0].to_config()
MULTISTAGE = load_run(["--config", "toy"])[0].to_config()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (12, 3, 100):
        (tmp_path / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)
    (tmp_path / "checkpoints" / "best").symlink_to("step_000012")
    return tmp_path


def writer_that_says(text: str) -> PolicyWriter:
    policy = ScriptedPolicy(lambda prompt, sampling: Letters().completion(text))
    return PolicyWriter(policy=policy, format=Letters(), max_tokens=4000, seed=1)


@pytest.fixture
def says(monkeypatch):
    """Members whose policies answer every prompt with the text that their path names."""

    @asynccontextmanager
    async def writer(member, role, config, at_once=1):
        yield writer_that_says(str(member.models[role]))

    monkeypatch.setattr(league, "writer", writer)


def test_members_are_the_start_and_each_checkpoint_once_in_order(run, monkeypatch):
    monkeypatch.setattr(league, "starting_models", lambda config: {"generator": "warm"})
    found = members_of(run, KUHN)
    assert [m.name for m in found] == ["before", "step 3", "step 12", "step 100"]
    assert found[0].models == {"generator": "warm"}
    assert found[1].models == {"generator": run / "checkpoints" / "step_000003" / "generator"}


def test_a_run_that_began_from_anothers_checkpoint_began_there(run):
    (run / STARTED_FROM).write_text("/other/checkpoints/step_000009")
    assert members_of(run, KUHN)[0].models == {"generator": Path("/other/checkpoints/step_000009/generator")}


def test_a_run_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(SparringError, match="no checkpoint yet"):
        members_of(tmp_path, KUHN)


def test_at_a_board_everyone_plays_everyone_on_both_sides(says):
    """Who always bets takes the ante of who always passes, on both sides; what is no move loses to both."""
    players = [Member(name=name, models={"generator": name}) for name in ("pass", "bet", "hm")]
    told = play_league(players, KUHN, Effort(problems=6, matches=2), "process", lambda line: None)
    assert told["members"] == ["pass", "bet", "hm"] and told["game"] == "kuhn"
    assert told["scores"] == [[None, 0.0, 1.0], [1.0, None, 1.0], [0.0, 0.0, None]]
    passes, bets, breaks = (rating["points"] for rating in told["ratings"])
    assert bets > passes > breaks


def test_every_program_meets_every_suite(says):
    """One generator is right and one is not; one discriminator tests and one says nothing."""
    rules = MULTISTAGE.game.model_copy(update={"test_format": "input_only"})
    config = MULTISTAGE.model_copy(update={"game": rules})
    problem = load_splits(config)[1][0]
    call = problem.baseline_asserts[1].removeprefix("assert ").split(" ==")[0]
    wrong = f"def {problem.entry_point}(*given): return '?'"
    players = [
        Member(name="good", models={"generator": problem.reference_solution, "discriminator": call}),
        Member(name="bad", models={"generator": wrong, "discriminator": "hm"}),
    ]
    told = play_league(players, config, Effort(problems=1), "process", lambda line: None)
    assert told["kills"] == [[None, 1.0], [None, 0.0]]
    assert told["survival"] == [[1.0, 1.0], [0.0, 1.0]]
    rated = {(r["policy"], r["member"]): r["points"] for r in told["ratings"]}
    assert rated["generator", "good"] > rated["generator", "bad"]
    assert rated["discriminator", "good"] > rated["discriminator", "bad"]


def test_a_game_that_has_no_league_is_refused():
    config = load_run(["--config", "output_prediction"])[0].to_config()
    with pytest.raises(SparringError, match="a league is of programs against suites"):
        play_league([], config, Effort(problems=1), "process", lambda line: None)


def test_a_run_of_a_gpu_has_its_league_without_one_too(tmp_path, monkeypatch):
    monkeypatch.setattr(league, "open_model", lambda path, key: SimpleNamespace(style=lambda: None))
    monkeypatch.setattr(league, "loaded", lambda model, engine, device, *_: (engine.kind, device))
    monkeypatch.setattr(league, "detect", lambda: SimpleNamespace(gpus=0))
    config = MULTISTAGE.model_copy(update={"device": "cuda"})
    member = Member(name="before", models={"generator": tmp_path})
    assert league.writer(member, "generator", config) == ("transformers", "cpu")


def test_at_a_board_two_engines_divide_the_memory_of_the_runs_own(monkeypatch):
    engine = {"kind": "vllm", "gpu_memory_utilization": 0.9, "sleep": True}
    generator = KUHN.generator.model_copy(update={"engine": VllmEngineSettings.model_validate(engine)})
    config = KUHN.model_copy(update={"device": "cuda", "generator": generator})
    loaded, most = [], []

    @asynccontextmanager
    async def load(model, engine, *_):
        loaded.append(engine)
        most.append(sum(each.gpu_memory_utilization for each in loaded))
        assert not engine.sleep, "vLLM lets only one engine of a process sleep"
        yield writer_that_says("pass")
        loaded.remove(engine)

    monkeypatch.setattr(league, "open_model", lambda path, key: SimpleNamespace(style=lambda: None))
    monkeypatch.setattr(league, "loaded", load)
    monkeypatch.setattr(league, "detect", lambda: SimpleNamespace(gpus=1))
    players = [Member(name=name, models={"generator": name}) for name in ("before", "after")]
    play_league(players, config, Effort(problems=1, matches=1), "process", lambda line: None)
    assert max(most) == pytest.approx(0.9)


def test_programs_of_toy_models_need_no_namespaces(monkeypatch):
    class Refused(Exception): ...

    def opened(kind, *, trusted, **_):
        assert trusted
        raise Refused

    monkeypatch.setattr(league, "LocalSandbox", opened)
    with pytest.raises(Refused):
        play_league([], MULTISTAGE, Effort(problems=1), "auto", print)
