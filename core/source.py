"""Python that others wrote, read on the host, and values written as Python. Nothing is run, and nothing that is read ends
or stops this interpreter."""

import ast
import warnings

MOST_CHARS = 20_000
"""Of a completion. CPython's compiler descends without a look at its stack (660,000 characters of nested comprehensions
end the process), and its parser's work on a dotted import grows with the square of the length."""


BOM = "\ufeff"
"""A file may begin with it; Python passes it over in a file, but not in a text."""


def parse(source: str, *, most_chars: int = MOST_CHARS) -> ast.Module:
    """Raise SyntaxError, and nothing else, where the source is not Python, or too long or too deep to be read."""
    if len(source) > most_chars:
        raise SyntaxError(f"{len(source)} characters; at most {most_chars} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a model writes, only errors matter
            return ast.parse(source.removeprefix(BOM))
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from None


def is_valid_python(source: str) -> bool:
    """Whether it compiles. What `parse` does not read does not count as Python."""
    try:
        tree = parse(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        return False
    return True


def parse_signature(signature: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The signature's function, with or without its colon, imports above it and a body; None if there is none."""
    text = signature.strip()
    for candidate in (text, f"{text}\n    pass", f"{text}:\n    pass"):
        try:
            body = parse(candidate).body
        except SyntaxError:
            continue
        return next((node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    return None


def literal_calls(source: str, function: str) -> list[ast.Call]:
    """The calls of a function with literal arguments only, in the order in which they stand in the source; none if the
    source is not Python."""
    try:
        nodes = ast.walk(parse(source))
        calls = [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", None) == function]
    except SyntaxError:
        return []
    found = [c for c in calls if all(map(is_literal, [*c.args, *(k.value for k in c.keywords)]))]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def is_literal(node: ast.expr) -> bool:
    try:
        literal(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def literal(value: object) -> str:
    """repr, with sets in sorted order: a test's source must not depend on a process's hash seed."""
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
