"""sparring solve: which options go together."""

import pytest

from configs.solve import SolveOptions
from sparring.core.errors import SparringError

ONE = ("--problem", "Add.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --problem, --problem-file, or --batch --problems-file"),
        ((*ONE, "--problem-file", "x"), "give --problem, --problem-file, or --batch"),
        (("--batch",), "--batch needs --problems-file"),
        (("--batch", "--problems-file", "f", *ONE), "--problem has no effect with --batch"),
        ((*ONE, "--problems-file", "f"), "--problems-file has no effect without --batch"),
        (("--batch", "--problems-file", "f", "--split", "test"), "--split has no effect with --format"),
        ((*ONE, "--execute-tests"), "--execute-tests needs --tests"),
        ((*ONE, "--attempts", "2"), "--attempts needs --tests"),
        ((*ONE, "--attempts", "0"), "--attempts: Input should be greater than or equal to 1 .got '0'"),
        ((*ONE, "--tests", "assert f(1) == "), "--tests: not valid Python"),
        ((*ONE, "--suites", "3"), "--suites has no effect without --best-of"),
        ((*ONE, "--discriminator", "x"), "--discriminator has no effect without --best-of"),
        ((*ONE, "--best-of", "4", "--temperature", "0"), "--best-of needs a --temperature above 0"),
        ((*ONE, "--temperature", "0", "--top-k", "3"), "--top-k has no effect with --temperature 0"),
        ((*ONE, "--tests", "# none", "--execute-tests"), "--tests: holds no statement"),
        ((*ONE, "--tests", "f(1) == 2", "--execute-tests"), "checks nothing"),
        ((*ONE, "--output", "/tmp"), "--output /tmp: is a directory"),
        ((*ONE, "--sandbox", "process"), "--sandbox has no effect without --execute-tests"),
        ((*ONE, "--checkpoint", "x", "--output-dir", "y"), "--output-dir has no effect with --checkpoint"),
        (("--batch", "--problems-file", "f", "--no-reasoning"), "--no-reasoning has no effect with --batch"),
        ((*ONE, "--stages", "9"), "give all, none, or a number from 0 to 4"),
        ((*ONE, "--output", "/nowhere/at/all.json"), "its directory does not exist; make it first"),
        ((*ONE, "--chekpoint", "x"), "unrecognized arguments: --chekpoint x; did you mean --checkpoint?"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SparringError, match=said):
        SolveOptions.read(arguments)


def test_tests_are_separated_where_python_would() -> None:
    options = SolveOptions.read([*ONE, "--tests", "assert f('a;b') == 1;assert f('') == 0 ; f(2)"])
    assert options.separate_tests == ("assert f('a;b') == 1", "assert f('') == 0", "f(2)")


def test_r0s_own_defaults() -> None:
    options = SolveOptions.read([*ONE, "--no-reasoning"])
    assert (options.temperature, options.top_p, options.reasoning) == (0.7, 0.9, False)


def test_the_environment_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBLEM", "another")
    assert SolveOptions.read(ONE).problem == "Add."
