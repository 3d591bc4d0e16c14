"""Held-out problems in a training set: found, named and dropped."""

from sparring.core.problem import Problem
from sparring.problems.contamination import drop_contaminated, normalised
from tests.playing import a_problem


def problem(id: str, description: str, solution: str = "", language: str = "python") -> Problem:
    return a_problem(id=id, description=description, reference_solution=solution, language=language)


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
    kept, dropped = drop_contaminated(train, held_out)
    assert [p.id for p in kept] == ["t3", "t4"]
    assert [p.id for p in dropped] == ["t1", "t2", "t5"]


def test_a_reference_that_is_no_python_is_compared_as_text() -> None:
    held_out = [problem("h1", "One", "x = ("), problem("h2", "Two", "y")]
    same, other = problem("t1", "Three", "x=("), problem("t2", "Four", "x = )")
    assert drop_contaminated([same, other], held_out) == ([other], [same])
    assert drop_contaminated([], held_out) == ([], []) and drop_contaminated(held_out, []) == (held_out, [])
