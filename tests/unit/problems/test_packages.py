"""A package that the sandbox lacks is named before problems are judged."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.problem import Problem
from sparring.problems.packages import missing_packages

PLAIN = Problem(
    id="plain",
    description="Return n.",
    function_signature="def f(n):",
    baseline_tests=("import math\nfrom solution import f\nassert f(2) == math.sqrt(4)",),
    reference_solution='"""Text with\nimport words in it."""\ndef f(n):\n    return n\n',
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox("process") as local:
        yield local


def missing(sandbox, *problems: Problem) -> str:
    return asyncio.run(missing_packages(problems, sandbox))


def test_a_missing_package_is_named_with_the_problems_that_import_it(sandbox) -> None:
    of_reference = replace(PLAIN, id="a", reference_solution="def f(n):\n    import no_such_package.part\n")
    of_test = replace(PLAIN, id="b", hidden_tests=("import json, other_package as o\nassert f(1)",))
    both = replace(of_test, id="c", preamble="from no_such_package import thing\n")
    said = missing(sandbox, PLAIN, of_reference, of_test, both)
    assert (
        "no_such_package (2 problems, such as a)" in said and "other_package (2 problems, such as b)" in said
    )
    assert "json" not in said and "solution" not in said and "\n" not in said


def test_nothing_is_asked_or_said_if_problems_import_what_python_has() -> None:
    assert missing(None, PLAIN) == ""  # no sandbox is needed
    assert missing(None, replace(PLAIN, language="lua", reference_solution="import x")) == ""
    assert missing(None, replace(PLAIN, reference_solution="from x import (")) == ""
