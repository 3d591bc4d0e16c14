import pytest

from core.problem import Problem
from games.prompts import ChatFormat, TaggedFormat
from runtime.model import Model, open_model, room_for
from runtime.start import SessionError

NEEDS = {"a": 40, "b": 90, "c": 120}
PROBLEMS = [
    Problem(id=name, description="", function_signature="", baseline_tests=(), reference_solution="")
    for name in NEEDS
]


def model(context: int | None) -> Model:
    return Model(path="m/m", tokenizer=None, context=context, run={})


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
    with pytest.raises(SessionError, match=said):
        room(context, max_model_len)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(SessionError, match=r"--policy /nowhere: no such directory"):
        open_model("/nowhere", "--policy")
    with pytest.raises(SessionError, match=r"--policy .*cannot be loaded"):
        open_model(str(tmp_path), "--policy")


def test_a_checkpoint_of_several_models_is_refused_with_their_names(tmp_path):
    (tmp_path / "generator").mkdir()
    (tmp_path / "generator" / "config.json").write_text("{}")
    with pytest.raises(SessionError, match=r"holds several models; give .*/generator"):
        open_model(str(tmp_path), "--policy")


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
    run = {"game": {"kind": kind}} if kind else {}
    assert Model(path="m/m", tokenizer=None, context=None, run=run).knows_stages == known
