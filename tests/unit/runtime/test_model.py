import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.settings import VllmEngineSettings
from sparring.core.errors import SparringError
from sparring.core.project_files import EXAMPLES
from sparring.games.programs.game import SolverGame
from sparring.games.prompts import ChatFormat, TaggedFormat
from sparring.runtime.model import (
    Model,
    check_writes_programs,
    find_policies,
    find_policy,
    loaded,
    open_model,
    program_game,
    room_for,
)
from tests.unit.runtime.makers import problem

NEEDS = {"a": 40, "b": 90, "c": 120}
PROBLEMS = list(map(problem, NEEDS))
GRID, OTHER = problem("grid", signature="def p(grid):"), problem("other")


def model(context: int | None = None, path: str | Path = "m/m", game: dict[str, Any] | None = None) -> Model:
    return Model(path=str(path), tokenizer=None, context=context, run={"game": game} if game else {})


def room(context: int | None, max_model_len: int | None) -> int:
    return room_for(PROBLEMS, lambda p: NEEDS[p.id], model(context), 16, max_model_len)


def test_the_room_is_what_the_longest_problem_may_take():
    assert room(None, None) == room(500, None) == room(500, 120) == 120


@pytest.mark.parametrize(
    ("context", "max_model_len", "said"),
    [
        (
            None,
            80,
            "2 of 3 problems do not fit: .* of c may take 120 .* --max-model-len is 80: raise it or lower",
        ),
        (100, None, r"1 of 3 problems .*the model's context is 100: lower --max-tokens \(16\)"),
        (100, 110, "the model's context is 100"),
        (110, 100, "--max-model-len is 100"),
    ],
)
def test_problems_that_do_not_fit_are_counted_and_the_key_is_named(context, max_model_len, said):
    with pytest.raises(SparringError, match=said):
        room(context, max_model_len)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nowhere", "no such directory"),
        ("of/best.pt", "no such directory"),
        (str(Path(__file__).parent), "cannot be loaded"),
    ],
)
def test_what_is_no_model_is_refused(path, said):
    with pytest.raises(SparringError, match=f"--policy {path}: {said}"):
        open_model(path, "--policy")


@pytest.mark.asyncio
async def test_a_model_that_vllm_does_not_load_is_refused_before_an_engine_starts(tmp_path, monkeypatch):
    there = Path(shutil.copytree(EXAMPLES / "toy/generator", tmp_path / "model"))
    config = json.loads((there / "config.json").read_text())
    (there / "config.json").write_text(json.dumps({**config, "architectures": ["OpenAIGPTLMHeadModel"]}))
    monkeypatch.setattr(
        "sparring.runtime.build.build_policy", lambda *_: pytest.fail("an engine was started")
    )
    opened = open_model(str(there), "--policy")
    with pytest.raises(SparringError, match=r"--engine vllm: .*OpenAIGPTLMHeadModel"):
        async with loaded(opened, VllmEngineSettings(), "cpu", opened.style(), 16, 0):
            pass


@pytest.mark.parametrize("role", ["generator", "discriminator"])
def test_a_policy_is_found_by_its_run_its_checkpoint_or_its_own_directory(tmp_path: Path, role: str) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    best = checkpoint(tmp_path / "checkpoints" / "best", "generator", "discriminator")
    for name in (tmp_path, best, best / role):
        assert find_policy(str(name), role, "--k") == str(best / role)
    assert find_policy("sparring/examples/toy", role, "--k").endswith(f"sparring/examples/toy/{role}")
    assert find_policy("owner/name", role, "--k") == "owner/name"


def test_a_checkpoint_without_a_discriminator_has_none_to_give(tmp_path: Path) -> None:
    alone = checkpoint(tmp_path / "alone", "generator")
    with pytest.raises(SparringError, match=r"--discriminator .*alone: comes with no discriminator"):
        find_policy(str(alone), "discriminator", "--discriminator")


# ---------------------------------------------------------------------- what a toy model says of itself
SMALL, LARGE = (f'"Return the sum of the above {n} numbers in xs."' for n in (6, 613))


@pytest.mark.parametrize(("name", "example"), [("toy", SMALL), ("edges", LARGE)])
@pytest.mark.parametrize("role", ["generator", "discriminator"])
def test_a_toy_model_names_a_problem_of_its_own_kind(name: str, role: str, example: str) -> None:
    assert example in open_model(str(EXAMPLES / name / role), "--k").note()


def test_so_does_one_that_was_exported(tmp_path: Path) -> None:
    there = tmp_path / "exported"
    shutil.copytree(EXAMPLES / "edges/generator", there)
    assert LARGE in open_model(str(there), "--k").note()
    (there / "README.md").unlink()
    bare = open_model(str(there), "--k").note()
    assert bare and '"' not in bare  # nothing says which problems it knows


def test_the_card_of_another_model_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "style", lambda self: object.__new__(ChatFormat))
    (tmp_path / "README.md").write_bytes(b"---\ntitle: a: b\n---\n\xe4")
    theirs = model(path=tmp_path)
    assert theirs.note([OTHER]) == "" and theirs.max_tokens > 0


def test_a_toy_model_warns_of_a_function_that_it_does_not_write() -> None:
    model = open_model(str(EXAMPLES / "toy/generator"), "--k")
    assert "called f, not add" in model.note([replace(OTHER, function_signature="def add(a, b):")])
    assert model.note([OTHER]) == model.note([replace(OTHER, function_signature="")]) == model.note()


@pytest.mark.parametrize(
    ("kind", "tagged", "known"),
    [
        ("multistage", True, True),
        ("multistage", False, True),
        ("kuhn", True, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_who_knows_the_stages_is_said_by_the_run_else_by_the_markers(monkeypatch, kind, tagged, known):
    style = object.__new__(TaggedFormat if tagged else ChatFormat)
    monkeypatch.setattr(Model, "style", lambda self: style)
    assert model(game={"kind": kind} if kind else None).knows_stages == known


@pytest.mark.parametrize(
    ("game", "said"),
    [
        ({"kind": "unit_tests", "of_old": 1}, "game.of_old: unknown here"),
        ({"kind": "of_old"}, "game: Input tag"),
    ],
)
def test_a_run_of_another_version_is_named_with_its_key(game: dict, said: str) -> None:
    old = model(path="runs/mine/checkpoints/best/generator", game=game)
    with pytest.raises(SparringError, match=f"^runs/mine: {said}.*of another version"):
        check_writes_programs("--checkpoint", old)


def test_a_run_whose_config_is_damaged_is_named(tmp_path: Path) -> None:
    there = tmp_path / "checkpoints" / "best" / "generator"
    shutil.copytree(EXAMPLES / "toy/generator", there)
    (tmp_path / "config.yaml").write_text("game: {kind: [")
    with pytest.raises(SparringError, match=r"config.yaml: not readable as YAML"):
        open_model(str(there), "--policy")


def checkpoint(directory: Path, *roles: str, file: str = "config.json") -> Path:
    for role in roles:
        (directory / role).mkdir(parents=True)
        (directory / role / file).write_text("{}")
    return directory


def test_of_a_run_the_best_checkpoint_is_taken_else_the_latest(tmp_path: Path) -> None:
    run = tmp_path / "run"
    steps = [checkpoint(run / "checkpoints" / f"step_00000{i}", "generator", "discriminator") for i in (1, 2)]
    (run / "metrics.jsonl").write_text("")
    assert find_policies(None, tmp_path) == (str(steps[1] / "generator"), str(steps[1] / "discriminator"))
    (run / "checkpoints" / "best").symlink_to("step_000001")
    best = run / "checkpoints" / "best"
    assert find_policies(str(run), tmp_path) == (str(best / "generator"), str(best / "discriminator"))
    assert find_policies(str(steps[1]), tmp_path) == find_policies(str(steps[1]), Path("nowhere"))
    adapters = checkpoint(run / "checkpoints" / "step_000003", "generator", file="adapter_config.json")
    assert find_policies(str(adapters), tmp_path) == (str(adapters / "generator"), None)


def test_one_model_has_no_discriminator(tmp_path: Path) -> None:
    assert find_policies("owner/name", tmp_path) == ("owner/name", None)
    assert find_policies("sparring/examples/toy", tmp_path)[1] is not None


def test_what_writes_no_programs_or_has_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparringError, match="no run"):
        find_policies(None, tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(SparringError, match="this run has no checkpoint yet"):
        find_policies(None, tmp_path)
    with pytest.raises(SparringError, match="a checkpoint of first, none of which writes programs"):
        find_policies(str(checkpoint(tmp_path / "boards", "first")), tmp_path)


@pytest.mark.parametrize(
    ("game", "form", "problems", "kind"),
    [
        ({"kind": "code_golf"}, None, [GRID], "code_golf"),
        ({"kind": "code_golf"}, None, [GRID, OTHER], "unit_tests"),
        ({"kind": "code_golf"}, "direct", [GRID], "unit_tests"),
        ({"kind": "unit_tests", "answer_format": "reasoning"}, None, [OTHER], "unit_tests"),
        ({"kind": "multistage"}, None, [OTHER], "unit_tests"),
    ],
)
def test_who_learnt_to_write_programs_at_one_go_is_asked_as_it_was_then(game, form, problems, kind):
    played = program_game(model(game=game), "none", form, problems, attempts=3)
    assert isinstance(played, SolverGame) and played.rules.kind == kind
    assert played.rules.attempts_per_episode == 3
    if kind == "unit_tests":
        assert played.rules.answer_format == game.get("answer_format", "direct")
