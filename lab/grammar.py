"""The grammar of the toy problems: a Spec, and the texts derived from it (description, signature, code,
difficulty).

A Spec names the parts of one small function `f`; every text about the function is derived from the Spec. So a
misconception about a problem is simply another Spec. Specs and inputs are drawn at random in `sampling.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The types of f's argument and result."""

    LIST_TO_INT = "list-to-int"
    LIST_TO_LIST = "list-to-list"
    INT_TO_INT = "int-to-int"
    STR_TO_INT = "str-to-int"
    STR_TO_STR = "str-to-str"

    @property
    def takes_list(self) -> bool:
        return self in (Kind.LIST_TO_INT, Kind.LIST_TO_LIST)

    @property
    def takes_str(self) -> bool:
        return self in (Kind.STR_TO_INT, Kind.STR_TO_STR)

    @property
    def input_type(self) -> str:
        return self.value.split("-to-")[0]

    @property
    def output_type(self) -> str:
        return self.value.split("-to-")[1]

    @property
    def parameter(self) -> str:
        """The name of f's parameter."""
        return {"list": "xs", "int": "n", "str": "s"}[self.input_type]

    @property
    def element(self) -> str:
        """The name of the variable that filters and transforms apply to."""
        return {"list": "x", "int": "n", "str": "c"}[self.input_type]


@dataclass(frozen=True, slots=True)
class Template:
    """A component as an English phrase and as a Python expression. {k} is the constant, {v} the variable; `constants`
    lists the values that the constant may take."""

    phrase: str
    expression: str
    constants: tuple[int, ...] = (0,)

    @property
    def takes_constant(self) -> bool:
        return "{k}" in self.expression


@dataclass(frozen=True, slots=True)
class Op:
    """A chosen component: the name of a template, and its constant (0 if it takes none). Example: Op("gt", 3)."""

    name: str
    constant: int = 0


@dataclass(frozen=True, slots=True)
class Collection:
    """The rule by which the filtered and transformed elements become the result; {e} is the element's expression."""

    opening: str
    suffix: str
    step: str
    start: tuple[str, ...]
    update: tuple[str, ...]
    result: str


NUMBER_FILTERS: Mapping[str, Template] = {
    "even": Template("even", "{v} % 2 == 0"),
    "odd": Template("odd", "{v} % 2 == 1"),
    "pos": Template("positive", "{v} > 0"),
    "neg": Template("negative", "{v} < 0"),
    "nz": Template("nonzero", "{v} != 0"),
    "gt": Template("above {k}", "{v} > {k}", tuple(range(1, 8))),
    "lt": Template("below {k}", "{v} < {k}", tuple(range(1, 8))),
    "ge": Template("at least {k}", "{v} >= {k}", tuple(range(1, 8))),
    "le": Template("at most {k}", "{v} <= {k}", tuple(range(1, 8))),
    "div": Template("divisible by {k}", "{v} % {k} == 0", (3, 4, 5)),
}
BOUNDARY_FILTERS = ("gt", "lt", "ge", "le")
"""Filters with a boundary at their constant, where wrong programs tend to fail."""

NUMBER_TRANSFORMS: Mapping[str, Template] = {
    "sq": Template("squared", "{v} * {v}"),
    "dbl": Template("doubled", "{v} * 2"),
    "neg": Template("negated", "-{v}"),
    "abs": Template("made absolute", "abs({v})"),
    "add": Template("increased by {k}", "{v} + {k}", tuple(range(1, 6))),
    "mul": Template("multiplied by {k}", "{v} * {k}", (3, 4, 5)),
    "sub": Template("decreased by {k}", "{v} - {k}", tuple(range(1, 6))),
}

STRING_FILTERS: Mapping[str, Template] = {
    "vowel": Template("vowels", '{v} in "aeiou"'),
    "cons": Template("non-vowels", '{v} not in "aeiou"'),
    "digit": Template("digits", "{v}.isdigit()"),
    "upper": Template("uppercase letters", "{v}.isupper()"),
    "lower": Template("lowercase letters", "{v}.islower()"),
    "isa": Template('letters equal to "a"', '{v} == "a"'),
    "nota": Template('characters except "a"', '{v} != "a"'),
    "isb": Template('letters equal to "b"', '{v} == "b"'),
    "notb": Template('characters except "b"', '{v} != "b"'),
    "ise": Template('letters equal to "e"', '{v} == "e"'),
    "note": Template('characters except "e"', '{v} != "e"'),
}

STRING_TRANSFORMS: Mapping[str, Template] = {
    "up": Template("in upper case", "{v}.upper()"),
    "low": Template("in lower case", "{v}.lower()"),
    "dup": Template("repeated twice", "{v} * 2"),
}

POSTS: Mapping[str, Template] = {
    "add": Template("plus {k}", "{v} + {k}", tuple(range(1, 6))),
    "mul": Template("times {k}", "{v} * {k}", (2, 3)),
    "cap": Template("capped at {k}", "min({v}, {k})", (5, 8, 9)),
    "floor": Template("but never below {k}", "max({v}, {k})", (1, 2, 3)),
    "mod": Template("modulo {k}", "{v} % {k}", (3, 4, 5)),
}

_APPEND = ("r = []",), ("r.append({e})",)
COLLECTIONS: Mapping[str, Collection] = {
    "sum": Collection("the sum of the", "", "add up", ("r = 0",), ("r += {e}",), "r"),
    "count": Collection("how many", "", "count", ("r = 0",), ("r += 1",), "r"),
    "max": Collection("the largest of the", ", 0 if none", "take largest", *_APPEND, "max(r) if r else 0"),
    "min": Collection("the smallest of the", ", 0 if none", "take smallest", *_APPEND, "min(r) if r else 0"),
    "first": Collection("the first of the", ", 0 if none", "take first", *_APPEND, "r[0] if r else 0"),
    "last": Collection("the last of the", ", 0 if none", "take last", *_APPEND, "r[-1] if r else 0"),
    "list": Collection("the", "", "collect", *_APPEND, "r"),
    "rev": Collection("the", ", in reverse order", "collect reversed", *_APPEND, "r[::-1]"),
    "sort": Collection("the", ", sorted", "collect sorted", *_APPEND, "sorted(r)"),
    "run": Collection(
        "the running totals of the",
        "",
        "collect running totals",
        ("r = []", "t = 0"),
        ("t += {e}", "r.append(t)"),
        "r",
    ),
}
_EASY_COLLECTIONS = ("", "sum", "count", "list")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One toy problem.

    Example:
        Spec(kind=Kind.LIST_TO_INT, filters=(Op("gt", 3),), transform=Op("sq"), collect="sum", post=Op("mod", 5))
        # "Return the sum of the above 3 numbers in xs, each squared, modulo 5."
    """

    kind: Kind
    filters: tuple[Op, ...] = ()
    transform: Op | None = None
    collect: str = ""
    """A key of COLLECTIONS; empty for INT_TO_INT, which collects nothing."""
    post: Op | None = None
    otherwise: Op | None = None
    """Transform of the numbers that do not pass the filters (INT_TO_INT only)."""

    @property
    def filter_phrases(self) -> tuple[str, ...]:
        table = self._filter_table()
        return tuple(table[op.name].phrase.format(k=op.constant) for op in self.filters)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The filters as Python conditions on the element."""
        table = self._filter_table()
        return tuple(
            table[op.name].expression.format(v=self.kind.element, k=op.constant) for op in self.filters
        )

    def transform_phrase(self, op: Op) -> str:
        return self._transform_table()[op.name].phrase.format(k=op.constant)

    def transformed(self, op: Op | None) -> str:
        """Returns the element after `op`, as a Python expression."""
        element = self.kind.element
        return self._transform_table()[op.name].expression.format(v=element, k=op.constant) if op else element

    @property
    def post_phrase(self) -> str:
        return POSTS[self.post.name].phrase.format(k=self.post.constant) if self.post else ""

    @property
    def returned(self) -> str:
        """The expression that f returns; `r` holds the result before the post-processing."""
        return POSTS[self.post.name].expression.format(v="r", k=self.post.constant) if self.post else "r"

    def _filter_table(self) -> Mapping[str, Template]:
        return STRING_FILTERS if self.kind.takes_str else NUMBER_FILTERS

    def _transform_table(self) -> Mapping[str, Template]:
        return STRING_TRANSFORMS if self.kind.takes_str else NUMBER_TRANSFORMS


def operations(table: Mapping[str, Template]) -> list[Op]:
    """Returns every Op of a table, in the table's order."""
    return [Op(name, constant) for name, template in table.items() for constant in template.constants]


def describe(spec: Spec) -> str:
    """Returns the problem as one English sentence. Specs with equal sentences have equal code."""
    if spec.kind is Kind.INT_TO_INT:
        return _describe_branch(spec)
    if spec.kind.takes_str:
        return _describe_string(spec)
    collection = COLLECTIONS[spec.collect]
    filters = " and ".join(spec.filter_phrases)
    subject = f"{filters} numbers in xs" if filters else "numbers in xs"
    if spec.transform:
        subject += f", each {spec.transform_phrase(spec.transform)}"
    post = f", {spec.post_phrase}" if spec.post else ""
    return f"Return {collection.opening} {subject}{collection.suffix}{post}."


def _describe_branch(spec: Spec) -> str:
    assert spec.transform and spec.otherwise
    then, otherwise = spec.transform_phrase(spec.transform), spec.transform_phrase(spec.otherwise)
    post = f"; the result is {spec.post_phrase}" if spec.post else ""
    return (
        f"If n is {' and '.join(spec.filter_phrases)} return n {then}, otherwise return n {otherwise}{post}."
    )


def _describe_string(spec: Spec) -> str:
    subject = " and ".join(spec.filter_phrases) or "characters"
    if spec.kind is Kind.STR_TO_INT:
        post = f", {spec.post_phrase}" if spec.post else ""
        return f"Return how many {subject} are in s{post}."
    transform = f", {spec.transform_phrase(spec.transform)}" if spec.transform else ""
    return f"Return the {subject} of s{transform}{COLLECTIONS[spec.collect].suffix}."


def signature(spec: Spec) -> str:
    return f"def f({spec.kind.parameter}: {spec.kind.input_type}) -> {spec.kind.output_type}:"


def code(spec: Spec) -> str:
    """Returns the source code of the reference solution."""
    lines = _branch_lines(spec) if spec.kind is Kind.INT_TO_INT else _loop_lines(spec)
    return "".join(
        f"{line}\n" for line in (f"def f({spec.kind.parameter}):", *(f"    {line}" for line in lines))
    )


def _branch_lines(spec: Spec) -> list[str]:
    condition = f"if {' and '.join(spec.conditions)}:"
    then, otherwise = spec.transformed(spec.transform), spec.transformed(spec.otherwise)
    if spec.post is None:
        return [condition, f"    return {then}", f"return {otherwise}"]
    return [condition, f"    r = {then}", "else:", f"    r = {otherwise}", f"return {spec.returned}"]


def _loop_lines(spec: Spec) -> list[str]:
    collection = COLLECTIONS[spec.collect]
    start, update, result = collection.start, collection.update, collection.result
    if spec.kind is Kind.STR_TO_STR:
        start, update = ('r = ""',), ("r += {e}",)
    update = tuple(line.format(e=spec.transformed(spec.transform)) for line in update)
    if spec.conditions:
        update = (f"if {' and '.join(spec.conditions)}:", *(f"    {line}" for line in update))
    lines = [
        *start,
        f"for {spec.kind.element} in {spec.kind.parameter}:",
        *(f"    {line}" for line in update),
    ]
    if spec.post is None:
        return [*lines, f"return {result}"]
    finish = [] if result == "r" else [f"r = {result}"]
    return [*lines, *finish, f"return {spec.returned}"]


def difficulty(spec: Spec) -> int:
    """Returns the difficulty, 1 (at most one part beyond a plain loop) to 5: the number of parts beyond a plain loop."""
    parts = len(spec.filters) + sum(op is not None for op in (spec.transform, spec.post, spec.otherwise))
    return max(1, min(5, parts + (spec.collect not in _EASY_COLLECTIONS)))


def structure(spec: Spec) -> tuple[str, ...]:
    """Returns the composition without the constants and without the order of the filters: two Specs may share it."""
    named = (op.name if op else "" for op in (spec.transform, spec.post, spec.otherwise))
    return (spec.kind.value, spec.collect, "+".join(sorted(op.name for op in spec.filters)), *named)
