"""The program in an answer. Answers are of the kinds that public reports on other evaluations tell of."""

import math
import textwrap

import pytest

from sparring.core.answers import extract_program, last_block, without_thinking

F = "```"
GOOD = "def f(x):\n    return x + 1\n"
BAD = "def f(x):\n    return 0\n"


def block(program: str = GOOD, tag: str = "python", fence: str = F) -> str:
    return f"{fence}{tag}\n{program}{fence}\n"


DOCSTRING = f'def f(x):\n    """Add.\n\n    {F}python\n    f(1)\n    {F}\n    """\n    return x + 1\n'
FLAT_DOCSTRING = f'def f(x):\n    """Add.\n{F}\nf(1)\n{F}\n"""\n    return x + 1\n'

ONE_BLOCK = {  # the program comes back as it is
    "tagged": (block(), GOOD),
    "untagged": (block(tag=""), GOOD),
    "tag in capitals": (block(tag="Python"), GOOD),
    "title": (block(tag='py title="a.py"'), GOOD),
    "version": (block(tag="python3.11"), GOOD),
    "tildes": (block(fence="~~~"), GOOD),
    "CRLF": (block().replace("\n", "\r\n"), GOOD.replace("\n", "\r\n")),
    "prose with apostrophes": (f"I'm sure it's this:\n{block()}Isn't it?", GOOD),
    "opened at a line's end": (f"Here it is: {block()}", GOOD),
    "begins behind the fence": (f"{F}python {GOOD}{F}", GOOD),
    "never closed": (f"{F}python\n{GOOD}", GOOD),
    "fence cut off": (f"{F}python\n{GOOD}``", GOOD),
    "closed at a line's end": (f"{F}python\n{GOOD.rstrip()}{F}\nThis adds.", GOOD.rstrip()),
    "closed at a line's end, text": (f"{F}python\n{GOOD.rstrip()}{F} This adds.", GOOD.rstrip()),
    "closed at a comment's end": (f"{F}python\n{GOOD.rstrip()} # +{F}\nIt adds.", GOOD.rstrip() + " # +"),
    "text behind the closing fence": (f"{F}python\n{GOOD}{F} This adds.", GOOD),
    "between tags": (f"<answer>{block().rstrip()}</answer>", GOOD),
    "in a list": (f"1. Write:\n\n{textwrap.indent(block(), '   ')}2. Done", GOOD),
    "in a list's line": (f"- {F}python\n{textwrap.indent(GOOD, '  ')}  {F}\n- Done", GOOD),
    "in a list, flat": (f"1. Write:\n    {F}python\n{GOOD}    {F}\n", GOOD),
    "all indented": (block(textwrap.indent(GOOD, "    ")), GOOD),
    "one line": (f"{F}python def f(x): return x + 1{F}", "def f(x): return x + 1"),
    "fences in a docstring": (f"{block(DOCSTRING)}Done.", DOCSTRING),
    "fences in a docstring at the margin": (f"{block(FLAT_DOCSTRING)}Done.", FLAT_DOCSTRING),
    "fences in a docstring, not closed": (f"{F}\n{FLAT_DOCSTRING}", FLAT_DOCSTRING),
    "fence in a string": (block(f"F = '{F}'\n{GOOD}"), f"F = '{F}'\n{GOOD}"),
    "fence in a comment": (block(f"# {F}python\n{GOOD}"), f"# {F}python\n{GOOD}"),
    "fence of five": (block(FLAT_DOCSTRING, fence="`````"), FLAT_DOCSTRING),
    "closing fence only": (f"{GOOD}{F}", GOOD),
    "closing fence only, text after": (f"{GOOD}{F}\nThis adds one.", GOOD),
    "closing fence only, docstring": (f"{FLAT_DOCSTRING}{F}\nThis adds one.", FLAT_DOCSTRING),
    "closing fence only, text before": (f"Here it is:\n\n{GOOD}{F}\nThis adds one.", GOOD),
    "no fence": (GOOD, GOOD),
    "no fence, fences in the docstring": (FLAT_DOCSTRING, FLAT_DOCSTRING),
    "no fence, prose": (f"Here is the function:\n\n{GOOD}\nIt adds one.", GOOD),
    "no fence, prose, docstring": (f"Here it is:\n\n{FLAT_DOCSTRING}\nIt adds one.", FLAT_DOCSTRING),
    "no fence, prose, imports": (f"So:\nimport re\n\n{GOOD}\nIt adds one.", f"import re\n\n{GOOD}"),
    "no fence, indented": (f"Here it is:\n\n{textwrap.indent(GOOD, '    ')}\nIt adds.", GOOD),
    "in a markdown block": (f"{F}markdown\n# Answer\n{block()}{F}", GOOD),
    "fence twice": (f"{F}python\n{block()}", GOOD),
}


@pytest.mark.parametrize(("answer", "program"), ONE_BLOCK.values(), ids=ONE_BLOCK)
@pytest.mark.parametrize("entry_point", [None, "f"])
def test_a_program_is_found_in_every_shape(answer, program, entry_point):
    assert extract_program(answer, entry_point=entry_point) == program


SEVERAL = {
    "text": f"{block()}Complexity:\n{block('O(n) time', 'text')}",
    "output": f"{block()}Output:\n{block('3', '')}",
    "JSON": block() + block('{"a": 1}\n', "json"),
    "shell": block() + block("python main.py\n", "bash"),
    "another language": block() + block("function f(x) { return x + 1 }\n", "js"),
    "session": block() + block(">>> f(1)\n2\n"),
    "usage": block() + block("print(f(2))\n"),
    "usage before": block("print(f(2))\n") + block(),
    "stub after": block() + block("def f(x):\n    raise NotImplementedError\n"),
    "stub after, with a reason": block() + block("def f(x):\n    raise NotImplementedError('to do')\n"),
    "excerpt after": block() + block("    return x + 1\n"),
    "tag without a fence": f"python\n{GOOD}",
    "between marks": f"[BEGIN]\n{GOOD}[DONE]",
    "asserts": block() + block("assert f(1) == 2\n"),
    "test function": block() + block("def test_f():\n    assert f(1) == 3\n\ntest_f()\n"),
    "signature": block() + block("def f(x: int) -> int: ...\n"),
    "empty": block() + block(""),
    "opened": f"{block()}{F}python\n",
    "cut off": f"{block()}Or:\n{F}python\ndef f(x):\n    return (x",
    "draft before": f"{block(BAD)}No:\n{block()}",
    "inline before": f"We call {F}sorted(x){F} and\n{block()}",
    "inline after": f"{block()}Note: {F}f(1){F}",
    "never closed, usage after": f"{F}python\n{GOOD}\nUse it so:\n{block('print(f(2))')}",
    "no fence, usage after": f"This is it:\n\n{GOOD}\nUse it so:\n{block('print(f(2))')}",
    "no fence, draft before": f"First try:\n\n{BAD}\nBut right is:\n\n{GOOD}\nDone that.",
    "thinking": f"<think>\n{block(BAD)}</think>\n{block()}",
    "thinking, fence left open": f"<think>\n{F}python\n{BAD}off by one\n</think>\n{block()}",
    "thinking begun by the template": f"so {block(BAD)}</think>\n\n{block()}",
    "thinking twice": f"<think>\n{BAD}</think>\nWait.\n<think>\n{BAD}</think>\n{block()}",
    "thinking about the tag": f"<think>\nThen I write '</think>'. {block(BAD)}\n</think>\n{block()}",
    "thinking, no fence after": f"<think>\n{block('x = 0')}</think>\n{GOOD}",
    "thinking in one line": f"<think>Easy.</think>{GOOD}",
    "thinking not ended": f"<think>\nSo:\n{block()}",
}


@pytest.mark.parametrize("answer", SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("entry_point", [None, "f"])
def test_among_several_pieces_the_program_is_chosen(answer, entry_point):
    assert extract_program(answer, entry_point=entry_point) == GOOD


def test_what_a_program_needs_of_other_blocks_comes_with_it():
    helper, user = "def g(x):\n    return x + 1\n", "def f(x):\n    return g(x)\n"
    assert extract_program(block(helper) + block(user)) == f"{helper}\n{user}"
    assert extract_program(block(user) + block(helper)) == f"{user}\n{helper}"
    assert extract_program(block(user) + block(helper), entry_point="f") == f"{user}\n{helper}"
    assert extract_program(f"It is:\n\n{helper}\nwith that:\n\n{user}\nDone that.") == f"{helper}\n{user}"
    assert extract_program(block("import re\n") + block("def f(x):\n    return re.I\n")).startswith(
        "import re"
    )
    assert extract_program(block("def h(x): return x\n") + block()) == GOOD


@pytest.mark.parametrize("usage", ["result = f(3)\n", "x = 3\nresult = f(x)\n", "def g(y=f(2)):\n    pass\n"])
def test_a_use_of_the_function_before_it_is_left_out(usage):
    assert extract_program(block(usage) + block(), entry_point="f") == GOOD


@pytest.mark.parametrize(
    "check", ["r = f(1)\n", "n = int(input())\nprint(f(n))\n", "a, b = f(1), f(2)\nprint(a)\n"]
)
def test_of_a_draft_only_what_the_program_needs_is_kept(check):
    draft = f"import math\nSCALE = 2\n\ndef g(x):\n    return x * SCALE\n\n{check}"
    program = extract_program(block(draft) + block("def f(x):\n    return g(x) + math.pi\n"), entry_point="f")
    found: dict = {}
    exec(program, found)  # it neither reads input nor calls f before it is there
    assert found["f"](1) == 2 + math.pi


def test_a_draft_that_is_nested_too_deeply_is_no_error():
    deep = f"import math\nx = {'+'.join(['1'] * 2000)}\nprint(x)\n"
    assert "def f" in extract_program(block(deep) + block("def f(x):\n    return math.pi\n"), entry_point="f")


def test_a_function_goes_before_a_method_of_its_name():
    method = "class Solution:\n    def f(self, x):\n        return x + 1\n"
    assert extract_program(block() + block(method), entry_point="f") == GOOD
    assert extract_program(block(method), entry_point="f") == method


@pytest.mark.parametrize("excerpt", ["n = int(input())\n", "def g(x):\n    return x\n"])
def test_an_excerpt_of_a_whole_program_does_not_replace_it(excerpt):
    script = "n = int(input())\n\ndef g(x):\n    return x\n\nm = g(n)\nprint(m + 1)\n"
    assert extract_program(f"{block(script)}First:\n{block(excerpt)}") == script


def test_a_short_program_after_text_that_is_no_python_is_no_excerpt():
    notes = "The steps are:\nn = int(input())\nprint(n + 1)\nand then it ends\nas above\n"
    assert (
        extract_program(block(notes) + block("n = int(input())\nprint(n + 1)\n"))
        == "n = int(input())\nprint(n + 1)\n"
    )


@pytest.mark.parametrize("other", ["bash", "js"])
def test_a_block_of_another_language_is_not_the_program(other):
    text = block("function f() end\n", "") + block("run it\n", other)
    assert extract_program(text, language="lua") == "function f() end\n"


def test_the_entry_point_decides_between_programs():
    other = "def show(x):\n    print(x)\n"
    assert extract_program(block("x = 1\n") + block("x = 2\n")) == "x = 2\n"
    assert extract_program(block() + block(other)) == other
    assert extract_program(block() + block(other), entry_point="f") == GOOD


def test_a_script_that_reads_its_input_is_a_program():
    script = "n = int(input())\nprint(n + 1)\n"
    assert extract_program(f"{block(script)}Output:\n{block('x = 3', '')}") == script
    assert extract_program(f"This is it:\n\n{script}\nIt adds one.") == script


@pytest.mark.parametrize(
    "text", ["def f(n) return", "", "no program here", f"inline {F} fence", "1 / 0\nfoo("]
)
def test_without_a_program_the_answer_comes_back(text):
    assert extract_program(text) == text
    assert extract_program(block("")) == ""


def test_a_broken_program_is_not_mended():
    broken = f"{GOOD}\ndef g(:\n    pass\n"
    assert extract_program(broken) == broken
    assert extract_program(block(broken)) == broken
    assert extract_program(f"{F}python\n{broken}") == broken
    assert extract_program(block("x = (\n") + block("y = (\n")) == "y = (\n"


def test_other_languages_have_the_last_block_of_theirs():
    lua = "local x = io.read()\nprint(x)\n"
    assert extract_program(block("x = 1\n", "lua") + block(lua, "lua"), language="lua") == lua
    assert extract_program(block(lua, "") + block("3\n", "text"), language="lua") == lua
    assert extract_program(block("x = 1\n", "") + block(lua, ""), language="lua") == lua
    assert (
        extract_program(block("f(1)\n", "js") + block("node a.js\n", "sh"), language="javascript") == "f(1)\n"
    )
    assert extract_program(lua, language="lua") == lua


def test_the_last_block_is_taken_whatever_it_holds():
    assert last_block(block() + block("3\n", "output") + block("")) == "3\n"
    assert last_block(f"<think>\n{block()}</think>\n12") == "12"
    assert last_block(block("")) == ""


def test_a_tag_in_a_program_ends_no_thinking():
    program = "TAG = '</think>'\n" + GOOD
    assert without_thinking(block(program)) == block(program)
    assert without_thinking(f"<think>\nx\n</think>\n{block(program)}") == block(program)


def test_a_tag_inside_a_line_of_a_block_ends_no_thinking_that_never_began():
    program = "def f(s):\n    return s.replace('</think> ', '')\n"
    assert extract_program(block(program)) == program


def test_thinking_that_never_ends_leaves_what_stands_before_it():
    assert extract_program(f"{block()}<think>\n{block(BAD)}") == GOOD


N = 64_000
HUGE = {
    "blanks": f"The program:\n{F}python{' ' * N}",
    "fences": f"{F}\n" * N,
    "opening fences": f"{F}python\n" * N,
    "fences in a line": f"{F} " * N,
    "fences at lines' ends": f"a {F}\nb\n" * N,
    "fences in comments": f"# a{F}\n" * N,
    "fences in strings": f"{F}python\n'''\n\"\"\"\n{F}\n" * N,
    "inline blocks": f"{F}x{F} " * N,
    "prose": "This is a line of prose.\n" * 100_000,
    "prose like code": "from here we go on\n" * 100_000,
    "functions": f"{GOOD}\nAnd so on.\n\n" * 30_000,
    "quotes": "\\'" * 4 * N,
    "tags": "<think>" * N + "</think>" * N,
    "lengths": "\n".join("`" * (3 + i % 350) + "py" for i in range(N // 4)),
}


@pytest.mark.timeout(60)  # with the square of the length, each would take many minutes
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_the_time_grows_with_the_length_only(text):
    extract_program(text)
    extract_program(text, language="lua")


@pytest.mark.parametrize(
    "check", ["assert f(1.5) == 2", "print(f([1]))", "assert (\n    f(1.5)\n    == 2\n)"]
)
def test_the_checks_of_an_earlier_version_are_no_part_of_the_program(check):
    first = f"import math\nimport sys\nsys.getrecursionlimit()\ndef f(x): return math.floor(x)\n{check}\n"
    answer = f"{block(first)}That is wrong. Fixed:\n{block('def f(x): return math.ceil(x)')}"
    names: dict = {}
    exec(extract_program(answer, entry_point="f"), names)
    assert names["f"](1.5) == 2 and "sys" in names


def test_what_a_check_stands_beside_stays():
    first = "import math\nLIMIT = 10; print(LIMIT)\nTEXT = 'a\x0cb'\nassert TEXT\nx = 1"
    answer = f"{block(first)}Then:\n{block('def f(n): return n + LIMIT + x + len(TEXT)')}"
    names: dict = {}
    exec(extract_program(answer, entry_point="f"), names)
    assert names["f"](1) == 15
