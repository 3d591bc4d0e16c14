"""Parses untrusted Python source on the host, and writes values as Python source. Nothing is executed, and no source can
crash or block this interpreter."""

import ast
import warnings
from collections.abc import Sequence

MOST_CHARS = 20_000
"""Maximum length of a completion that is parsed. CPython's compiler recurses without a check of its stack (660,000
characters of nested comprehensions end the process), and its parser takes quadratic time on a dotted import."""


BOM = "\ufeff"
"""Byte order mark. Python skips it at the beginning of a file, but not at the beginning of a string."""


def parse(source: str, *, most_chars: int = MOST_CHARS) -> ast.Module:
    """Parses Python source. Raises SyntaxError, and nothing else, if the source is not Python, or is too long or nested too
    deeply."""
    if len(source) > most_chars:
        raise SyntaxError(f"{len(source)} characters; at most {most_chars} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about a model's code are of no use
            return ast.parse(source.removeprefix(BOM))
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from None


def parse_or_none(source: str, *, most_chars: int | None = None) -> ast.Module | None:
    """Returns the syntax tree, or None if the source is not Python.

    Args:
        most_chars: maximum length. None: no limit, for sources of a data set, which a model did not write.
    """
    try:
        return parse(source, most_chars=len(source) if most_chars is None else most_chars)
    except SyntaxError:
        return None


def is_valid_python(source: str) -> bool:
    """Returns whether the source compiles. Source that `parse` refuses does not count as Python."""
    try:
        tree = parse(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        return False
    return True


_VALUES = (
    ast.Compare, ast.UnaryOp, ast.BinOp, ast.Name, ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Set,
    ast.Dict, ast.Lambda, ast.GeneratorExp,
)  # fmt: skip


def unchecked(test: ast.Module) -> str | None:
    """Returns the first statement of a test that checks nothing, such as `f(1) == 2` without assert or `assert (f(1) == 2, "no")`.
    A program passes it whatever it returns. A call alone is none: it checks that nothing is raised."""
    return _unchecked_in(test.body)


def _unchecked_in(body: Sequence[ast.stmt]) -> str | None:
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if len(body) > 1:
                continue  # a docstring or a comment
            case ast.Expr(value=ast.BoolOp(values=[*_, value]) | value) if isinstance(value, _VALUES):
                return ast.unparse(statement)
            case ast.Assert(
                test=ast.Tuple(elts=[_, *_]) | ast.Constant(value=True)
            ):  # true, whatever the program does
                return ast.unparse(statement)
            case ast.FunctionDef(name=name, body=inner) if name.startswith("test"):
                if (found := _unchecked_in(inner)) is not None:
                    return found
    return None


def parse_signature(signature: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Returns the function of a signature, or None if there is none. The signature may lack its colon, and may have a body
    and imports above it."""
    text = signature.strip()
    for candidate in (text, f"{text}\n    pass", f"{text}:\n    pass"):
        try:
            body = parse(candidate).body
        except SyntaxError:
            continue
        return next((node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    return None


def literal_calls(source: str, function: str) -> list[ast.Call]:
    """Returns the calls of a function whose arguments are all literals, in source order; an empty list if the source is not
    Python."""
    try:
        nodes = ast.walk(parse(source))
        calls = [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", None) == function]
    except SyntaxError:
        return []
    found = [c for c in calls if all(map(is_literal, [*c.args, *(k.value for k in c.keywords)]))]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def is_literal(node: ast.expr) -> bool:
    """Returns whether an expression is a literal whose value can be written as a literal again, as those of ... and 1e999
    cannot."""
    try:
        ast.literal_eval(literal(ast.literal_eval(node)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def literal(value: object) -> str:
    """Returns the repr of a value, with sets in sorted order, so that a test's source does not depend on the process's hash
    seed."""
    if isinstance(value, set) and value:
        return "{" + ", ".join(sorted(map(literal, value))) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, tuple):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)
