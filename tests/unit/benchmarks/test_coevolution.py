import asyncio
import json
import math
from pathlib import Path

from benchmarks.experiments import coevolution
from benchmarks.experiments.coevolution import Meeting, generations, kill_rate, meet, survival_rate
from configs.load import load_run
from core.problem import Problem
from sandbox_workers.local import LocalSandbox

CONFIG = load_run(["--config", "embedded"])[0].to_config()
DOUBLE = Problem(
    id="double",
    description="Return x doubled.",
    function_signature="def f(x: int) -> int:",
    baseline_tests=("assert f(1) == 2",),
    hidden_tests=("assert f(3) == 6", "assert f(-1) == -2"),
    reference_solution="def f(x): return 2 * x",
)
RIGHT, SQUARES, ABSOLUTE = (f"def f(x): return {body}" for body in ("x + x", "x * x", "abs(2 * x)"))


def test_rates_by_hand():
    meeting = Meeting(
        programs=[["right", "a", "b"], ["right", "right", "a"]],
        wrong=frozenset("ab"),
        killed=[[frozenset("a"), frozenset()], [frozenset("ab"), frozenset("b")]],
    )
    nothing = Meeting(programs=[["c"], ["c"]], wrong=frozenset(), killed=[[frozenset()] * 2] * 2)
    both = [meeting, nothing]
    assert kill_rate(both, 0, 0) == 1 / 4 and kill_rate(both, 1, 0) == 3 / 4
    assert kill_rate(both, 0, 1) == kill_rate(both, 1, 1) == 1 / 2
    assert [survival_rate(both, 0, d) for d in (0, 1)] == [3 / 4, 1 / 2]
    assert [survival_rate(both, 1, d) for d in (0, 1)] == [3 / 4, 3 / 4]
    assert math.isnan(kill_rate([nothing], 0, 0))


def test_every_suite_meets_every_program():
    programs = [[RIGHT, SQUARES], [ABSOLUTE]]
    suites = [["f(2)\nf(0)", "f(2)"], ["f(5)", "f(-3)"]]  # squares and abs are right at 2 and 0
    with LocalSandbox("process") as sandbox:
        meeting = asyncio.run(meet(DOUBLE, programs, suites, sandbox, CONFIG))
    assert meeting.wrong == {SQUARES, ABSOLUTE}
    assert meeting.killed == [[set(), set()], [{SQUARES}, {SQUARES, ABSOLUTE}]]


def test_generations_are_those_before_training_and_at_the_ends_of_stages(monkeypatch):
    warm = {role: Path("warm") / role for role in CONFIG.policies}
    monkeypatch.setattr(coevolution, "ensure_embedded", lambda roles, rules, settings: warm)
    run = Path("run")
    results = json.dumps({"stages": [{"step": 13}, {"step": 26}]})
    monkeypatch.setattr(Path, "read_text", lambda path: results)
    found = generations(run, CONFIG)
    assert [g.name for g in found] == ["before", "stage 1", "stage 2"]
    assert found[0].models == warm
    assert found[2].models["discriminator"] == run / "checkpoints" / "step_000026" / "discriminator"
