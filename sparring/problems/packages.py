"""Finds the packages that problems import and the sandbox does not have, before anything is judged: else each problem fails
on its own, and a data set that needs numpy looks like one that is wrong."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sparring.core.interfaces import Sandbox, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.source import parse
from sparring.core.verdict import OutputTest, Status

_OURS = {"program", "solution", "__main__"}
"""Modules by which a test imports the program."""
_IMPORT = re.compile(r"\bfrom[ \t]+(\w+)[\w.]*[ \t]+import\b|\bimport[ \t]+([\w., \t]+)")
_LOOK = """\
from importlib.util import find_spec
print(*(name for name in {names} if find_spec(name) is None))
"""


async def missing_packages(problems: Sequence[Problem], sandbox: Sandbox) -> str:
    """Returns a line that names the packages which the references and tests of Python problems import and the sandbox does not
    have, or "" if there are none or the sandbox does not answer."""
    importing: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        if problem.language == "python":
            for name in _packages_of(problem):
                importing[name].append(problem.id)
    if not importing:
        return ""
    look = _LOOK.format(names=sorted(importing))
    try:
        (verdict,) = await sandbox.judge(look, [OutputTest(stdout="")])
    except SandboxFailure:  # what is judged next tells
        return ""
    if verdict.status is not Status.WRONG_ANSWER:
        return ""
    missing = [name for name in verdict.stdout.split() if name in importing]
    found = ", ".join(f"{name} ({_count(importing[name])})" for name in missing)
    return (
        f"packages that problems import and the sandbox does not have: {found}; tests that need them fail. How programs can "
        "import packages: docs/sandbox.md#can-programs-import-numpy"
    )


def _count(ids: Sequence[str]) -> str:
    return f"problem {ids[0]}" if len(ids) == 1 else f"{len(ids)} problems, such as {ids[0]}"


def _packages_of(problem: Problem) -> set[str]:
    tests = (test for test in problem.baseline_tests + problem.hidden_tests if isinstance(test, str))
    sources = (problem.preamble, problem.reference_solution, *tests)
    return {name for source in sources for name in _imported(source)}


def _imported(source: str) -> Iterator[str]:
    """Yields the packages, other than those of Python, that the source imports."""
    found = [name for module, several in _IMPORT.findall(source) for name in (module, *several.split(","))]
    if all(_known(top) for name in found if (top := re.split(r"[ .]", name.strip())[0])):
        return  # nothing to parse, as in most tests; and the words of a text may look like an import
    try:
        nodes = ast.walk(parse(source, most_chars=len(source)))
    except SyntaxError:
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        yield from (top for name in names if not _known(top := name.partition(".")[0]))


def _known(name: str) -> bool:
    return name in sys.stdlib_module_names or name in _OURS
