"""Common functions of the readers: signatures from source code, tests that call a function, and limits."""

import ast
import builtins
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from sparring.core.problem import Problem
from sparring.core.source import BOM, literal, parse_or_none, parse_signature
from sparring.core.verdict import Limits, OutputTest, Test
from sparring.problems.loader import names_defined

MOST_SOLUTIONS = 16
"""Maximum number of correct solutions per problem, and of wrong ones. Contests have thousands."""


_MODULES = "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
HARNESS_IMPORTS = "\n".join(
    (
        *(f"from {module} import *" for module in ("typing", *_MODULES.split(), "builtins")),
        f"import {_MODULES.replace(' ', ', ')}",
        "sys.setrecursionlimit(50000)",
    )
)
"""Imports that the harnesses of LiveCodeBench, APPS and TACO put before a program, as LeetCode does: `List`, `Counter` and
`inf` are available without an import. The builtins follow the other star imports, since `math` and `operator` have their own
`pow`. The modules follow, since `datetime`, `copy` and `bisect` each name both a module and one of its members. The recursion limit
is that of LiveCodeBench's harness."""


def python_solutions(sources: Iterable[str]) -> tuple[str, ...]:
    """Returns the first MOST_SOLUTIONS distinct sources that are Python 3. The data sets also contain Python 2, without a
    label."""
    distinct = dict.fromkeys(unix_lines(source).removeprefix(BOM) for source in sources)
    return tuple(islice((source for source in distinct if parse_or_none(source)), MOST_SOLUTIONS))


def unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def signature_of(source: str, name: str) -> str | None:
    """Returns `def name(...) -> ...:` for the function or method `name` (without self), or None if there is none.

    The code may end after a signature on one line, as starter code does.
    """
    tree = parse_or_none(source)
    if tree is None:
        line = re.search(rf"^[ \t]*((?:async )?def[ \t]+{re.escape(name)}[ \t]*\(.*)$", source, re.MULTILINE)
        function = parse_signature(line.group(1)) if line else None
    else:
        function = next((node for node in _functions(tree) if node.name == name), None)
    if function is None:
        return None
    if function.args.args and function.args.args[0].arg == "self":
        function.args.args.pop(0)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"def {name}({ast.unparse(function.args)}){returns}:"


def signature_under_test(source: str, tests: Iterable[str]) -> str | None:
    """Returns the signature of the function in `source` that the tests call, or None if they call none. If they call several
    functions, the outermost call counts."""
    tree = parse_or_none(source)
    defined = {node.name for node in _functions(tree)} if tree else set()
    for test in map(parse_or_none, tests):
        for node in ast.walk(test) if test else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
                return signature_of(source, node.func.id)
    return None


def with_signature(problem: Problem, most_chars: int | None = None) -> Problem:
    """Returns the problem. If it has no signature, it gets one for the function that its baseline tests call.

    Args:
        most_chars: length above which a test is not read; see parse_or_none.
    """
    if problem.function_signature:
        return problem
    trees = [parse_or_none(test, most_chars=most_chars) for test in problem.baseline_asserts]
    return replace(problem, function_signature=_signature_called([*filter(None, trees)]))


def _signature_called(trees: Sequence[ast.Module]) -> str:
    """Returns a signature for the function that the tests call but do not define, with as many parameters as the calls have
    arguments. If they call several functions, the outermost call counts. Empty if they call no function, or a class."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    there = parameters.union(vars(builtins), *map(names_defined, trees))
    calls = [(n.func.id, n) for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    name = next((called for called, _ in calls if called not in there), None)
    if name is None or name[0].isupper():  # nothing, or a class
        return ""
    given = [[*call.args, *call.keywords] for called, call in calls if called == name]
    plain = not any(isinstance(argument, ast.Starred | ast.keyword) for call in given for argument in call)
    if not plain or len({*map(len, given)}) > 1:
        return f"def {name}(*args, **kwargs):"
    return f"def {name}({', '.join(f'x{i}' for i in range(1, len(given[0]) + 1))}):"


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Returns the functions of a syntax tree, outer functions before inner ones."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


_CALL_TEST = """\
import json
got = {name}(*{arguments})
try:
    got = json.loads(json.dumps(got))
except (TypeError, ValueError, RecursionError):
    pass
assert got in json.loads({right!r}), "another value than expected"
"""
_METHOD_OF_SOLUTION = """\
if hasattr(globals().get("Solution"), {name!r}) and getattr(globals().get({name!r}), "__module__", "") != __name__:
    def {name}(*args, **kwargs):
        return Solution().{name}(*args, **kwargs)
"""


def call_test(name: str, arguments: Sequence[object], right: Sequence[object]) -> str:
    """Returns a test that calls the function `name` and accepts any of the values `right`.

    The values are compared as JSON: a program may return tuples instead of lists, and dicts whose keys are not strings. The
    arguments are JSON, too, unless one of them is a dict with keys that are no strings.
    """
    keys = [key for argument in arguments if isinstance(argument, dict) for key in argument]
    is_json = all(isinstance(key, str) for key in keys)
    given = f"json.loads({json.dumps([*arguments])!r})" if is_json else literal([*arguments])
    return _CALL_TEST.format(name=name, arguments=given, right=json.dumps([*right]))


def method_of_solution(name: str) -> str:
    """Returns an epilogue for programs in LeetCode's form: if the program has a class Solution with the method `name`, it
    defines a function `name` that calls this method of a new object."""
    return _METHOD_OF_SOLUTION.format(name=name)


def limits_for(
    tests: Iterable[Test], cpu_s: float | None = None, memory_mb: float | None = None
) -> Limits | None:
    """Returns the limits that a data set states, with an output limit that suffices for the longest expected output. All
    other limits are left unset. Returns None if the run's limits suffice.

    The wall-clock limit is four times the CPU limit, as in the defaults.
    """
    outputs = (test.stdout or "" for test in tests if isinstance(test, OutputTest))
    longest = max((len(text.encode("utf-8", "surrogatepass")) for text in outputs), default=0)
    stated: dict[str, float] = {}
    if cpu_s:
        stated |= {"cpu_s": cpu_s, "wall_s": 4 * cpu_s}
    if memory_mb:
        stated["memory_mb"] = max(32, round(memory_mb))
    if 2 * longest > Limits().output_kb * 1024:
        stated["output_kb"] = 2 * longest // 1024 + 1
    return Limits.model_validate(stated) if stated else None
