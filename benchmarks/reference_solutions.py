"""Judges data sets of reference solutions, one JSON object per line with task_id, code, test_list and optionally
test_setup_code: every solution must pass its own tests, and none must pass them once its functions return None."""

import ast
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Verdict

IN_FLIGHT = 64


def judge_references(sandbox: LocalSandbox, path: Path) -> dict[str, Any]:
    """Returns how many solutions pass and which do not, and how many pass with empty functions and which."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    start = time.perf_counter()
    intact = asyncio.run(_outcomes(sandbox, rows, str))
    seconds = time.perf_counter() - start
    hollow = asyncio.run(_outcomes(sandbox, rows, hollowed))
    failed = [f"{row['task_id']}: {outcome}" for row, outcome in zip(rows, intact, strict=True) if outcome]
    passed = [str(row["task_id"]) for row, outcome in zip(rows, hollow, strict=True) if not outcome]
    return {
        "references": len(rows),
        "references_passed": len(rows) - len(failed),
        "references_not_passed": failed,
        "references_wall_s": seconds,
        "hollow_passed": len(passed),
        "hollow_passed_tasks": passed,
    }


async def _outcomes(sandbox: LocalSandbox, rows: Sequence[dict], change: Callable[[str], str]) -> list[str]:
    """Returns a text for each row: empty if all tests passed, otherwise the first verdict that is not PASSED."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def one(row: dict) -> str:
        async with room:
            try:
                verdicts = await sandbox.judge(change(row["code"]), own_tests(row))
            except SandboxFailure as failure:
                return f"SANDBOX_ERROR {failure}"
            return first_failure(verdicts)

    return await asyncio.gather(*map(one, rows))


def first_failure(verdicts: Sequence[Verdict]) -> str:
    return next((f"{v.status} {v.error}".strip() for v in verdicts if not v.passed), "")


def own_tests(row: dict) -> list[str]:
    """Returns the row's tests, each after the set-up code. The set-up makes the tests' data with the program's classes,
    so it belongs to each test and not to the program."""
    setup = row.get("test_setup_code") or ""
    return [f"{setup}\n{test}" if setup.strip() else test for test in row["test_list"]]


def hollowed(program: str) -> str:
    """Returns the program with `return None` as the body of every function, lambdas included."""
    return ast.unparse(_Hollow().visit(ast.parse(program)))


class _Hollow(ast.NodeTransformer):
    def _empty(self, node: Any) -> Any:
        node.body = [ast.Return(ast.Constant(None))]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _empty

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.body = ast.Constant(None)
        return node
