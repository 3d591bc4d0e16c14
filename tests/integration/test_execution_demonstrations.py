"""The sandbox tells apart what the demonstrations of the code execution game show."""

import asyncio
from random import Random

from lab.code_execution import Execution, program_that
from lab.problems import toy_specs
from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import Status, Verdict
from tests.contracts.test_sandbox_contract import require

STATUS = {
    Execution.PRINTS: Status.PASSED,
    Execution.SILENT: Status.PASSED,
    Execution.SYNTAX: Status.SYNTAX_ERROR,
    Execution.RUNTIME: Status.RUNTIME_ERROR,
}


def test_each_flaw_gets_its_verdict() -> None:
    """A test in Python ("pass") compiles the program first; of a whole program only the exit code is known."""
    require("auto")
    jobs = [
        (execution, program_that(execution, spec, Random(seed)))
        for seed, spec in enumerate(toy_specs("train")[:10])
        for execution in Execution
    ]

    async def judged(sandbox: LocalSandbox) -> list[list[Verdict]]:
        return await asyncio.wait_for(
            asyncio.gather(*(sandbox.judge(program, ["pass"]) for _, program in jobs)), 120
        )

    with LocalSandbox("auto") as sandbox:
        verdicts = asyncio.run(judged(sandbox))
    for (execution, program), (verdict,) in zip(jobs, verdicts, strict=True):
        assert verdict.status is STATUS[execution], program
        assert bool(verdict.stdout) == (execution is Execution.PRINTS), program
