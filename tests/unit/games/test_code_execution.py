"""R1's table, to the letter, on programs that really run."""

import pytest

from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, OutputTest, Status, Verdict
from sparring.games.programs.code_execution import CodeExecutionRules, execution_reward
from sparring.games.programs.game import SolverGame
from tests.playing import Breaking, a_problem, play, reader

PROBLEM = a_problem()
QUICK = Limits(cpu_s=0.3, wall_s=6.0, memory_mb=128, output_kb=16)
TABLE = {
    "print(1)": 1.0,
    "print(0)\nraise SystemExit": 1.0,
    "x = 1": 0.5,
    "": 0.5,  # runs, and prints nothing
    "print()": 0.5,  # blanks are no output
    "import sys\nprint('only a warning', file=sys.stderr)": 0.5,
    "def f(n) return n": -0.5,
    "if True:\nprint(1)": -0.5,  # indentation
    "print(1)\n  print(2)": -0.5,
    "print('never reached'": -0.5,
    "return 3": -0.5,  # it parses, but does not compile
    "1 / 0": -1.0,
    "print(1)\n1 / 0": -1.0,  # what it printed before does not help
    "raise SyntaxError('said, not made')": -1.0,
    "exec('1 +')": -1.0,
    "raise SystemExit(3)": -1.0,
    "while True: pass": -1.0,
    "print('x' * 100_000)": -1.0,
    "x = bytearray(10 ** 10)": -1.0,
}


def game(**rules) -> SolverGame:
    return SolverGame(CodeExecutionRules(sandbox_limits=QUICK, **rules))


def test_the_table(sandbox):
    watched = Breaking(sandbox, on=set())
    episode = play(game(), PROBLEM, [reader("generator", list(TABLE))], watched)
    assert {tests for _, tests, *_ in watched.jobs} == {(OutputTest(stdout=None),)}, "no test is run"
    assert {t.artifact: t.reward for t in episode.trajectories} == TABLE
    for attempt in episode.trajectories:
        parts, reward = attempt.components, attempt.reward
        assert parts["python"] == (reward != -0.5)
        assert parts["runs"] == (reward in (0.5, 1.0))
        assert parts["prints"] == (reward == 1.0)
        assert "solved" not in parts


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("is_python", [True, False])
def test_every_verdict_has_its_reward(status, is_python):
    if status is Status.SANDBOX_ERROR:
        with pytest.raises(SandboxFailure):
            execution_reward(Verdict(status=status), is_python)
        return
    for stdout, bonus in (("1\n", 1.0), (" \n\t", 0.5), ("", 0.5)):
        expected = {
            Status.PASSED: bonus,
            Status.SYNTAX_ERROR: -1.0 if is_python else -0.5,
            Status.RUNTIME_ERROR: -1.0 if is_python else -0.5,
        }.get(status, -1.0)
        assert execution_reward(Verdict(status=status, stdout=stdout), is_python) == expected


# ---------------------------------------------------------------------- gate on tests
RIGHT = "def f(n): return n * 2\n"


def test_with_the_gate_a_program_earns_where_it_also_passes_the_tests(sandbox):
    expected = {
        RIGHT + "print(f(3))": (1.0, 1.0),
        RIGHT: (0.5, 1.0),
        "print(1)": (0.0, 0.0),
        "def f(n): return 4\nprint(f(2))": (0.0, 0.0),  # one of two tests
        "": (0.0, 0.0),
        "def f(n) return n": (-0.5, None),
        RIGHT + "print(f(3))\n1 / 0": (-1.0, None),
    }
    watched = Breaking(sandbox, on=set())
    gated = game(gate_on_tests=True)
    episode = play(gated, PROBLEM, [reader("generator", list(expected))], watched)
    assert {t.artifact: (t.reward, t.components.get("solved")) for t in episode.trajectories} == expected
    tested = {program for program, tests, *_ in watched.jobs if tests == PROBLEM.baseline_tests}
    assert tested == {program for program, (_, solved) in expected.items() if solved is not None}
    assert {limits for _, _, limits, *_ in watched.jobs} == {QUICK}


# ---------------------------------------------------------------------- what is no reward
def test_a_broken_sandbox_gives_no_reward_and_spoils_no_other_attempt(sandbox):
    broken = Breaking(sandbox, on={"print(2)"})
    episode = play(game(), PROBLEM, [reader("generator", ["print(1)", "print(2)", "x = 1"])], broken)
    assert [t.reward for t in episode.trajectories] == [1.0, None, 0.5]
    assert episode.trajectories[1].components == {"sandbox_failure": 1.0}


def test_a_sandbox_that_breaks_at_the_tests_gives_no_reward_either(sandbox):
    class BreaksAtTests(Breaking):
        async def judge(self, program, tests, **how):
            if tests == PROBLEM.baseline_tests:
                raise SandboxFailure("broken")
            return await super().judge(program, tests, **how)

    programs = ["print(1)", "1 / 0"]
    broken = BreaksAtTests(sandbox, on=set())
    episode = play(game(gate_on_tests=True), PROBLEM, [reader("generator", programs)], broken)
    assert [t.reward for t in episode.trajectories] == [None, -1.0]
    assert episode.trajectories[0].components == {"sandbox_failure": 1.0}


def test_what_is_asked_for_names_problem_and_signature():
    message = game().rules.message(PROBLEM)
    assert message.brief == PROBLEM.description
    assert "Return n doubled." in message.full and "def f(n: int) -> int:" in message.full
