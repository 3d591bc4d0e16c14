"""Extracts the program from a chat model's answer. Nothing is executed, and the run time is linear in the text's length.

The program is the last fenced block that defines something, together with the blocks that define what it needs. If no
block defines anything, the program may stand in the text without fences. A program is never repaired: one that is not
valid Python is returned as it is.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparring.core.fences import (
    MOST_PARSED,
    OTHER_LANGUAGES,
    PARSE,
    PROSE,
    PYTHON,
    Block,
    fenced_blocks,
    strings_and_fences,
)
from sparring.core.snippets import Rank, Snippet

_TAG = re.compile(
    r"(?m)(^[ \t]*+)?(?:<(/?)(?:think|thinking|thought|reasoning)>|\[(/?)THINK\])", re.IGNORECASE
)
_FENCE = re.compile(r"(?m)^[ \t]*+```")
_BLANK = re.compile(r"(?:[ \t\r]*+\n)++|[ \t]*+")
_INDENTATION = re.compile(r"[ \t]*+")
_SAME_LANGUAGE = {
    "javascript": ("js", "node", "nodejs"),
    "bash": ("sh", "shell"),
}
_GOES_ON = re.compile(r"[\s)\]}]|(?:else|elif|except|finally)\b")
"""Matches the beginning of a line that belongs to the statement before it."""
_DEFINES = re.compile(r"(?:async[ ]+)?def[ ]+\w|class[ ]+\w++[ ]*[(:]|@\w")
_MAY_BE_CODE = re.compile(
    r"[@#]|(?:async|def|class|import|from|if|for|while|with|try|match|global|assert|del|raise|return|pass)\b"
    r"|[rRbBfFuU]{0,2}(?:'''|\"\"\")|[\w.]++\(|[^\W\d][\w.,\[\]() ]*+(?::[^=\n]*+)?[-+*/%&|^@<>]{0,3}="
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A fenced block, or lines of the text that are a program without fences."""

    snippet: Snippet
    start: int
    language: str = ""
    inline: bool = False

    def key(self, entry_point: str | None) -> tuple[int, bool, bool, int, bool, bool]:
        """Returns the sort key of the piece: the program is the piece with the greatest key, and the last one of equals. A
        function of the entry point's name goes before a method of that name, and, if no entry point is known, a program that
        reads its input before one that does not."""
        rank = self.snippet.rank
        is_program = rank is Rank.PROGRAM
        defines = self.defines(entry_point) + (
            self.defines(entry_point) and entry_point in self.snippet.binds
        )
        reads = entry_point is None and self.snippet.reads_input
        return defines, is_program, not self.inline, rank, reads, not is_program and self.is_tagged

    def defines(self, entry_point: str | None) -> bool:
        return entry_point in self.snippet.functions

    @property
    def is_tagged(self) -> bool:
        return self.language in PYTHON


def extract_program(text: str, *, language: str = "python", entry_point: str | None = None) -> str:
    """Returns the program in an answer, or the whole answer if it has neither a block nor lines that are a program.

    Args:
        text: the answer, with or without the model's thinking.
        language: the program's language, by the sandbox's name. In any language but Python, the program is the last
            block that is tagged with the language, else the last block without the tag of another language or of prose, else
            the last block that does not hold prose, else the last block.
        entry_point: the function that the tests call, if it is known.
    """
    text = without_thinking(text)
    blocks = fenced_blocks(text)
    if language != "python":
        return _last_block(blocks, (language, *_SAME_LANGUAGE.get(language, ())), text)
    whole = Snippet(text)
    if (
        whole.tree is not None
        and (not blocks or whole.rank >= Rank.STATEMENTS)
        and not whole.begins_with_a_tag
    ):
        return whole.text
    pieces = _pieces(blocks) if entry_point else _without_excerpts(_pieces(blocks))
    if not any(
        piece.defines(entry_point) if entry_point else piece.snippet.rank is Rank.PROGRAM for piece in pieces
    ):
        pieces = sorted([*pieces, *_unfenced(text, blocks)], key=lambda piece: piece.start)
    if not pieces:
        return _last_block(blocks, PYTHON, text)
    best = max(range(len(pieces)), key=lambda i: (*pieces[i].key(entry_point), i))
    return _with_helpers([piece.snippet for piece in pieces], best, entry_point)


def last_block(text: str) -> str:
    """Returns the last block of an answer that is not empty, in any language, or the whole answer if it has no block."""
    text = without_thinking(text)
    contents = [block.content for block in fenced_blocks(text)] or [text]
    return next((content for content in reversed(contents) if content.strip()), contents[-1])


def without_thinking(text: str) -> str:
    """Returns the text after the model's thinking (<think>...</think>). The first tag may be missing, since many chat
    templates write it into the prompt.

    If the thinking never ends, returns the text before it, or the thinking itself if there is no text before it.
    """
    begin, opened = 0, None
    seen, in_block = 0, False
    for tag in _TAG.finditer(text):
        leads, after = tag[1] is not None, text[tag.end() : tag.end() + 3]
        in_block ^= bool(len(_FENCE.findall(text, seen, tag.start())) % 2)
        seen = tag.start()
        if not (tag[2] or tag[3]):
            if leads and opened is None:
                opened = tag
        elif opened is None and in_block and not leads:
            continue  # a program mentions the tag
        elif (
            leads
            or after == "```"
            or not after.strip()
            or after[0].isspace()
            or (begin == 0 and after[0] not in "'\"\\`")
        ):
            begin, opened = tag.end(), None
    if opened is not None:
        before = text[begin : opened.start()]
        if before.strip():
            return before
        begin = opened.end()
    return text[_BLANK.match(text, begin).end() :] if begin else text  # type: ignore[union-attr]


def _last_block(blocks: Sequence[Block], languages: Sequence[str] | frozenset[str], text: str) -> str:
    full = [block for block in blocks if block.content.strip()]
    tagged = [block for block in full if block.language in languages]
    code = [block for block in full if block.language not in PROSE]
    unnamed = [block for block in code if block.language not in OTHER_LANGUAGES]
    last = next((kind[-1] for kind in (tagged, unnamed, code, full, blocks) if kind), None)
    return text if last is None else last.content


def _pieces(blocks: Sequence[Block]) -> list[_Piece]:
    """Returns the parsed blocks that may be the program."""
    full = [block for block in blocks if block.content.strip()]
    candidates = [block for block in full if block.language not in PROSE | OTHER_LANGUAGES] or full
    pieces: list[_Piece] = []
    spare = MOST_PARSED
    for block in reversed(candidates):
        spare -= len(block.content) + PARSE
        if spare < 0 and pieces:
            break
        snippet = Snippet(block.content)
        pieces.append(
            _Piece(snippet=snippet, start=block.start, language=block.language, inline=block.inline)
        )
    return pieces[::-1]


def _without_excerpts(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Returns the pieces without those that only repeat lines of the longest program before them, at most half of its
    lines: an explanation quotes the program. For whole programs, whose pieces no entry point tells apart."""
    kept: list[_Piece] = []
    longest: set[str] = set()
    for piece in pieces:
        lines = {line.strip() for line in piece.snippet.text.splitlines()} - {""}
        if lines and lines <= longest and 2 * len(lines) <= len(longest):
            continue
        kept.append(piece)
        if piece.snippet.rank is Rank.PROGRAM:  # text that is no Python hides no program after it
            longest = max(longest, lines, key=len)
    return kept


# ---------------------------------------------------------------------- programs without fences
def _unfenced(text: str, blocks: Sequence[Block]) -> Iterator[_Piece]:
    """Yields the runs of lines that are Python and define something, the last run first. Runs inside a block are skipped,
    unless the block has no closing fence: prose may then follow the program."""
    closed = [(block.start, block.end) for block in blocks if block.closed]
    for begin, end in _runs(text):
        while closed and closed[-1][0] > begin:
            closed.pop()
        if closed and begin < closed[-1][1]:
            continue
        snippet = Snippet(text[begin:end].rstrip() + "\n")
        if snippet.rank is Rank.PROGRAM:
            yield _Piece(snippet=snippet, start=begin)


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Yields the (begin, end) of each run of consecutive Python statements, the last run first. A run next to a statement
    that is broken or cut off is skipped, since programs are not repaired."""
    run: tuple[int, int] | None = None
    spare, is_broken = MOST_PARSED, False
    for begin, end in reversed(list(_statements(text))):
        code = _code_in(text, begin, end)
        if code < end:
            spare -= end - code + PARSE
        if spare < 0:
            break
        is_python = code < end and Snippet(text[code:end]).tree is not None
        if is_python and code == begin:
            run = None if is_broken else (begin, run[1] if run else end)
            continue
        is_broken = code == begin and _DEFINES.match(text, begin) is not None
        if run and not is_broken:
            yield run
        run = None
        if is_python:  # an indented paragraph after a line of prose
            yield code, end
    if run:
        yield run


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Splits the text into pieces that each begin in a line without indentation; yields their (begin, end)."""
    strings = (span for span in strings_and_fences(text, 0, len(text)) if span[1] < len(text))
    string = next(strings, None)
    start, place, decorated = 0, 0, False
    while place < len(text):
        while string and string[1] <= place:
            string = next(strings, None)
        is_inside = string is not None and string[0] < place
        if place > start and not is_inside and not decorated and not _GOES_ON.match(text, place):
            yield start, place
            start = place
        decorated = text[place] == "@"
        place = text.find("\n", place) + 1 or len(text)
    if start < place:
        yield start, place


def _code_in(text: str, begin: int, end: int) -> int:
    """Returns the position at which the code of a piece may begin, or the piece's end if it holds no code."""
    if text[begin].isspace() or _MAY_BE_CODE.match(text, begin, end):
        return begin
    newline = text.find("\n", begin, end)
    inner = _BLANK.match(text, newline, end).end() if newline >= 0 else end  # type: ignore[union-attr]
    words = _INDENTATION.match(text, inner, end).end()  # type: ignore[union-attr]
    return inner if words < end and _MAY_BE_CODE.match(text, words, end) else end


# ---------------------------------------------------------------------- programs in several blocks
def _with_helpers(snippets: Sequence[Snippet], best: int, entry_point: str | None) -> str:
    """Returns the program, with the snippets that define what it needs and the ones that need what it defines."""
    taken, needs = {best}, snippets[best].needs
    for i in reversed(range(best)):
        earlier = snippets[i]
        if earlier.binds & needs and not earlier.is_tests:
            taken.add(i)
            needs = (needs - earlier.binds) | earlier.needs
        elif entry_point is None and earlier.only_defines and earlier.needs & snippets[best].binds:
            taken.add(i)
    for i in range(best + 1, len(snippets)):  # the entry point's block need not be the last one
        later = snippets[i]
        if later.only_defines and later.binds & needs:
            taken.add(i)
    if len(taken) == 1:
        return snippets[best].text
    drafts = range(best if entry_point else 0)  # a whole program prints its result
    read = set[str]().union(*(snippets[i].needs for i in taken))
    return "\n".join(snippets[i].helpers(read) if i in drafts else snippets[i].text for i in sorted(taken))
