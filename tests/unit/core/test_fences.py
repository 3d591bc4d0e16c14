from sparring.core.fences import Block, fenced_blocks

F = "```"


def contents(text: str) -> list[tuple[str, str]]:
    return [(block.language, block.content) for block in fenced_blocks(text)]


def test_a_block_says_where_it_stands_and_what_it_is():
    text = f"So:\n{F}Python\nx = 1\n{F}\nDone."
    (block,) = fenced_blocks(text)
    assert block == Block(
        language="python", content="x = 1\n", inline=False, closed=True, start=4, end=len(text) - 6
    )
    assert text[block.start : block.end] == f"{F}Python\nx = 1\n{F}"


def test_the_first_word_behind_a_fence_is_the_language():
    for info in ("python", " python", 'python title="a.py"', "{.python}", "Python\r"):
        assert contents(f"{F}{info}\nx\n{F}") == [("python", "x\n")], info
    assert contents(f"{F}\nx\n{F}") == [("", "x\n")]


def test_a_fence_is_closed_by_its_own_kind_and_length():
    assert contents(f"~~~\n{F}\n~~~\n") == [("", f"{F}\n")]
    assert contents(f"`{F}md4\n{F}python\nx\n{F}\n`{F}\nafter") == [("md4", f"{F}python\nx\n{F}\n")]
    assert contents(f"{F}\nx\n`{F}\nafter") == [("", "x\n")]


def test_a_block_without_a_closing_fence_ends_with_the_text_or_before_the_next_one():
    (block,) = fenced_blocks(f"{F}py\nx\n\ny")
    assert (block.content, block.closed) == ("x\n\ny", False)
    assert contents(f"{F}py\nx = '''\n\n{F}text\ny\n{F}\n") == [("py", "x = '''\n\n"), ("text", "y\n")]
    assert contents(f"{F}py\nx\n``") == [("py", "x\n")]


def test_the_indentation_of_the_fence_is_taken_off_the_content():
    assert contents(f"- a:\n  {F}\n  x\n    y\n\n  {F}\n") == [("", "x\n  y\n\n")]
    assert contents(f"1. {F}\n   x\n   {F}\n") == [("", "x\n")]
    assert contents(f"    {F}\ndef f():\n    return 1\n    {F}") == [("", "def f():\n    return 1\n")]


def test_several_blocks_may_stand_in_one_line():
    blocks = fenced_blocks(f"Use {F}a{F} or {F}python b{F}.")
    assert [(b.language, b.content, b.inline) for b in blocks] == [("", "a", True), ("python", "b", True)]


def test_a_fence_in_a_string_closes_only_what_is_no_python():
    assert contents(f"{F}\nx = '''\n{F}\n'''\n{F}\n") == [("", f"x = '''\n{F}\n'''\n")]
    assert contents(f"{F}text\nIt's '''\n{F}\n'''\n")[0] == ("text", "It's '''\n")


def test_what_stands_before_a_lone_closing_fence_is_a_block_if_it_is_python():
    assert contents(f"assert f(1) == 2\n{F}\nSo it is.") == [("", "assert f(1) == 2\n")]
    assert contents(f"The answer:\n{F}\nx = 1\n{F}") == [("", "x = 1\n")]


def test_a_markdown_block_is_read_as_the_answer_that_it_holds():
    assert contents(f"{F}markdown\n# Title\n{F}python\nx\n{F}\n")[0] == ("python", "x\n")
