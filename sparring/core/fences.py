"""Finds the fenced blocks of a chat model's answer. The run time is linear in the text's length.

Fences are read as in CommonMark. In addition, these deviations of models are handled: fences within a line, a fence at the
end of a line of code, a fence inside a string of a Python program, a closing fence without an opening one, and a missing
closing fence. Not read: quoted blocks (lines that begin with ">") and blocks that are indented without a fence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparring.core.snippets import Rank, Snippet
from sparring.core.source import MOST_CHARS

MOST_PARSED = 10 * MOST_CHARS
"""Maximum number of characters of one answer that are parsed as Python or read twice."""
PARSE = 1_000
"""Fixed cost of one parse, in characters, which counts toward MOST_PARSED."""

_PROSE = (
    "text txt plain plaintext output out stdout stdin input console terminal log result results example examples "
    "error traceback pycon doctest python-repl markdown md latex tex math mermaid csv json jsonl yaml yml toml ini "
    "xml html css diff patch pseudo pseudocode algorithm none"
)
PROSE = frozenset(_PROSE.split())
"""Tags of blocks that hold no program in any language."""
_OTHER_LANGUAGES = (
    "bash sh shell zsh fish powershell ps1 cmd bat batch javascript js jsx node nodejs typescript ts tsx java c cpp "
    "c++ cc cxx h hpp cs csharp c# go golang rust rs ruby rb php perl pl r lua swift kotlin kt scala haskell hs sql "
    "q kdb matlab julia jl dart elixir erlang clojure lisp scheme racket ocaml fsharp zig nim fortran assembly asm "
    "makefile cmake dockerfile docker http regex"
)
OTHER_LANGUAGES = frozenset(_OTHER_LANGUAGES.split())
PYTHON = frozenset(("python", "py", "python2", "python3", "py3", "ipython", "cython", "sage"))
_TAGS = PYTHON | PROSE | OTHER_LANGUAGES

_FENCE = re.compile(r"`{3,}+|~{3,}+")
_LEAD = re.compile(r"[ \t]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?+")
"""Matches what may stand before a block's fence: indentation and the marker of a list item."""
_CODE_BEGINS = re.compile(r"(?:async[ ]+def|def|class|import|from)[ ]|@\w")
_TOKEN = re.compile(
    r"""\#[^\n]*+|'''|\"\"\"|'(?:[^'\\\n]|\\.)*+'?|"(?:[^"\\\n]|\\.)*+"?|`{3,}+|~{3,}+""", re.DOTALL
)
"""Matches comments, string beginnings and fences: they decide whether a fence is part of a Python program."""
_STRING_ENDS = {
    "'''": re.compile(r"(?:[^'\\]|\\.|'(?!''))*+'''", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*+"""', re.DOTALL),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block.

    Example: Block(language="python", content="x = 1\\n", inline=False, closed=True, start=0, end=23)
    """

    language: str
    """The first word after the opening fence, in lower case; empty if there is none."""
    content: str
    """The text between the fences. The indentation of the opening fence is removed from each line."""
    inline: bool
    """Whether the block begins and ends within one line."""
    closed: bool
    """Whether the block has a closing fence."""
    start: int
    end: int
    """Position of the block in the text, with its fences: [start, end)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mark:
    """A run of backticks or tildes that may open or close a block."""

    fence: str
    start: int
    end: int
    line_start: int
    line_end: int
    leads: bool
    """Whether only indentation or a list marker stands before the mark."""
    rest: str
    """The text from the mark to the next mark or to the end of the line."""
    paired: bool
    """Whether the next mark stands in the same line."""

    def closes(self, opening: "_Mark") -> bool:
        return self.fence[0] == opening.fence[0] and len(self.fence) >= len(opening.fence)

    @property
    def ends_line(self) -> bool:
        return not self.paired and not self.rest

    @property
    def opens(self) -> bool:
        return not self.paired and (self.leads or not self.rest or self.rest.lower() in _TAGS)

    @property
    def names_a_language(self) -> bool:
        """Whether the mark opens a block even if another block is open, because that block's closing fence is missing."""
        words = self.rest.split()
        known = bool(words) and words[0].lower() in _TAGS
        return self.leads and not self.paired and known and (len(words) == 1 or "=" in self.rest)


def fenced_blocks(text: str) -> list[Block]:
    """Returns all fenced blocks of the text, in order. A block that is not closed ends with the text."""
    return _Blocks(text).found()


class _Blocks:
    def __init__(self, text: str) -> None:
        self._text, self._marks = text, list(_marks(text))
        self._at = {mark.start: i for i, mark in enumerate(self._marks)}
        self._ends = {mark.end: i for i, mark in enumerate(self._marks)}
        self._spare = MOST_PARSED
        self._leading: dict[str, int] = {}

    def found(self) -> list[Block]:
        blocks = self._unopened()
        marks, i = self._marks, len(blocks) and self._ends[blocks[0].end] + 1
        while i < len(marks):
            opening = marks[i]
            if opening.paired and marks[i + 1].closes(opening):
                blocks.append(self._inline(opening, marks[i + 1]))
                i += 2
            elif opening.opens and opening.rest.lower() not in ("markdown", "md"):  # its blocks are read
                begin = self._begin(opening)
                closing = self._closing(opening, begin, i + 1)
                blocks.append(self._block(opening, begin, closing))
                if closing is None:
                    break
                i = self._at[closing.start] + (not closing.names_a_language)
            else:
                i += 1
        return blocks

    def _unopened(self) -> list[Block]:
        """Returns the block that ends with a closing fence without an opening one, if its content is a program."""
        mark = self._next_outside_strings(0, None, self._marks[0] if self._marks else None)
        if mark is None or mark.paired or mark.names_a_language or (mark.leads and mark.rest):
            return []
        content = self._text[: self._content_end(mark)]
        if Snippet(content).rank < Rank.STATEMENTS:
            return []
        return [Block(language="", content=content, inline=False, closed=True, start=0, end=mark.end)]

    def _inline(self, opening: _Mark, closing: _Mark) -> Block:
        language, code = _split_language(self._text[opening.end : closing.start])
        return Block(
            language=language, content=code, inline=True, closed=True, start=opening.start, end=closing.end
        )

    def _begin(self, opening: _Mark) -> int:
        """Returns the position at which the content begins: in the next line, unless code follows the fence."""
        code = _split_language(opening.rest)[1]
        if _CODE_BEGINS.match(code):
            return opening.end + self._text[opening.end : opening.line_end].index(code)
        return min(opening.line_end + 1, len(self._text))

    def _block(self, opening: _Mark, begin: int, closing: _Mark | None) -> Block:
        content = self._text[begin : self._content_end(closing)]
        if closing is None:
            whole, _, last = content.rpartition("\n")
            if last.strip() in ("`", "``"):  # the closing fence, cut off
                content = whole + "\n"
        if opening.leads:
            content = _dedented(content, opening.start - opening.line_start)
        words = opening.rest.split(maxsplit=1)
        language = words[0].strip("{.}").lower() if words and begin > opening.line_end else ""
        if words and begin <= opening.line_end:
            language = _split_language(opening.rest)[0]
        closed = closing is not None and not closing.names_a_language
        end = closing.end if closing is not None and closed else self._content_end(closing)
        return Block(
            language=language, content=content, inline=False, closed=closed, start=opening.start, end=end
        )

    def _content_end(self, closing: _Mark | None) -> int:
        if closing is None:
            return len(self._text)
        return closing.line_start if closing.leads else closing.start

    def _closing(self, opening: _Mark, begin: int, first: int) -> _Mark | None:
        """Returns the mark that closes the block, or None if the text ends first.

        In a Python program this is the first fence outside strings and comments, at any place in its line. In any other
        text it is the first fence that begins a line.
        """
        plain = self._next_leading(opening, first)
        free = self._next_outside_strings(begin, opening, plain)
        best = plain
        if free is not None and free is not plain:
            is_end = free.ends_line and (plain is None or free.start < plain.start)
            if is_end or self._parses(begin, free):
                best = free
        elif free is None and plain is not None and self._parses(begin, None):
            best = None
        stop = len(self._marks) if best is None else self._at[best.start]
        glued = (self._marks[i] for i in range(first, stop))
        hidden = next((mark for mark in glued if mark.ends_line and mark.closes(opening)), None)
        if hidden and self._parses(begin, hidden) and not self._parses(begin, best):
            read = (len(self._text) if best is None else best.end) - hidden.end  # read again later
            self._spare = max(0, self._spare - read)
            return hidden  # a fence at the end of a comment
        return best

    def _next_leading(self, opening: _Mark, first: int) -> _Mark | None:
        i = max(first, self._leading.get(opening.fence, 0))
        while i < len(self._marks) and not (self._marks[i].leads and self._marks[i].closes(opening)):
            i += 1
        self._leading[opening.fence] = i
        return self._marks[i] if i < len(self._marks) else None

    def _next_outside_strings(self, begin: int, opening: _Mark | None, plain: _Mark | None) -> _Mark | None:
        """Returns the first mark after `begin` that is in no string and no comment, if the text is read as Python."""
        paid = len(self._text) if plain is None else plain.end  # the next block begins there at the earliest
        limit = min(len(self._text), paid + min(self._spare, MOST_CHARS))
        found, read_to = None, begin
        for start, read_to in strings_and_fences(self._text, begin, limit):  # noqa: B007
            mark = self._marks[self._at[start]] if start in self._at else None
            if mark and (opening is None or mark.closes(opening)):
                found = mark
                break
        self._spare = max(0, self._spare - max(0, read_to - paid))
        return found

    def _parses(self, begin: int, closing: _Mark | None) -> bool:
        content = self._text[begin : min(self._content_end(closing), begin + MOST_CHARS + 1)]
        if len(content) > MOST_CHARS or not self._spare:
            return False
        self._spare = max(0, self._spare - len(content) - PARSE)
        return Snippet(content).tree is not None


def strings_and_fences(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the (begin, end) of the comments and strings of a Python program, and of the fences outside of them. A
    triple-quoted string that is never closed ends at `end`."""
    while token := _TOKEN.search(text, begin, end):
        begin = token.end()
        if token[0] in _STRING_ENDS:
            closed = _STRING_ENDS[token[0]].match(text, begin, end)
            begin = closed.end() if closed else end
        yield token.start(), begin


def _split_language(line: str) -> tuple[str, str]:
    """Splits the text after an opening fence into (language, code)."""
    word, _, code = line.strip().partition(" ")
    if word.lower() in _TAGS and code:
        return word.lower(), code.strip()
    return "", line.strip()


def _dedented(content: str, width: int) -> str:
    """Removes up to `width` blanks from each line, but no more than the first non-empty line has."""
    first = next((line for line in content.split("\n") if line.strip()), "")
    width = min(width, len(first) - len(first.lstrip(" \t")))
    return re.sub(rf"(?m)^[ \t]{{1,{width}}}", "", content) if width else content


def _marks(text: str) -> Iterator[_Mark]:
    line_start = line_end = -1
    for line in text.split("\n"):
        line_start, line_end = line_end + 1, line_end + 1 + len(line)
        if "```" not in line and "~~~" not in line:
            continue
        begin = _LEAD.match(line).end()  # type: ignore[union-attr]
        found = [mark for mark in _FENCE.finditer(line) if mark[0][0] == "`" or mark.start() == begin]
        for i, mark in enumerate(found):
            paired = i + 1 < len(found)
            yield _Mark(
                fence=mark[0],
                start=line_start + mark.start(),
                end=line_start + mark.end(),
                line_start=line_start,
                line_end=line_end,
                leads=mark.start() == begin,
                rest=line[mark.end() : found[i + 1].start() if paired else None].strip(),
                paired=paired,
            )
