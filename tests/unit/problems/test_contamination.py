"""Held-out problems in a training set: found, named and dropped."""

from core.problem import Problem
from problems.contamination import contaminated, drop_contaminated, normalised


def problem(id: str, description: str, solution: str = "", language: str = "python") -> Problem:
    return Problem(
        id=id,
        description=description,
        function_signature="def f(x):",
        baseline_tests=("assert f(1)",),
        reference_solution=solution,
        language=language,
    )


def test_normalised() -> None:
    assert normalised("  Return the\n*sum*, of `a_b`:  X\u00b2!") == "return the sum of a b x2"
    assert normalised("...") == ""


def test_same_descriptions_and_solutions_are_found() -> None:
    held_out = [
        problem("h1", "Return the sum."),
        problem("h2", "Add.", "def f(x):\n    return x + 1  # one more"),
        problem("h3", "?!"),
        problem("h4", "Print.", "print( 1 )", "lua"),
    ]
    train = [
        problem("t1", "return  the SUM", "def f(x): return 0"),
        problem("t2", "Something else.", "def f(x):\n\n\n  return (x+1)\n"),
        problem("t3", "..."),
        problem("t4", "Return the sum of squares.", "def f(x):\n    return x + 2"),
        problem("t5", "Write.", "print(1)", "lua"),
    ]
    assert contaminated(train, held_out) == [
        ("t1", "h1", "same description"),
        ("t2", "h2", "same reference solution"),
        ("t5", "h4", "same reference solution"),
    ]
    kept, dropped = drop_contaminated(train, held_out)
    assert [p.id for p in kept] == ["t3", "t4"]
    assert [p.id for p in dropped] == ["t1", "t2", "t5"]


def test_a_pair_is_named_once_and_every_pair_is_named() -> None:
    held_out = [problem("h1", "One", "def f(x): pass"), problem("h2", "one!", "x = (")]
    found = contaminated([problem("t", "ONE", "def f(x):\n    pass")], held_out)
    assert found == [("t", "h1", "same description"), ("t", "h2", "same description")]
    assert contaminated([], held_out) == contaminated(held_out, []) == []
