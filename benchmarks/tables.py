"""Write the benchmarks' results into the pages.

    python -m benchmarks.tables            rewrite the marked parts of README.md and docs/
    python -m benchmarks.tables --check    write nothing; exit 1 if a page differs from what would be written

A marked part is the text between the lines `<!-- table: NAME -->` and `<!-- end -->`. It becomes
benchmarks/results/NAME.md with the values of benchmarks/results/NAME.json put in, and a line with the command, the
date, the machine and the commit.

If the code that a result measures (paths in catalogue.py) has changed since the result's commit, the line says so. The
working tree is compared, so that the commit which changes the code can also contain the page that says it. The page
does not say by how many commits, since it would then be stale after each commit; the command prints the number. If git
does not know the commit (a shallow clone, a copy without history), the statement on the page stays as it is.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from benchmarks.catalogue import BENCHMARKS
from benchmarks.report import ROOT, git, read

BEGIN = re.compile(r"^<!-- table: ", re.MULTILINE)
PART = re.compile(r"(^<!-- table: (\S+) -->\n)(.*?)(^<!-- end -->)", re.MULTILINE | re.DOTALL)
OLD = "; **older than the code**"
_FAILED = "_failed"
"""End of the name of a figure that says why something could not be measured, such as trl_vllm_failed."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is stale")
    options = parser.parse_args()
    try:
        stale = update(ROOT, write=not options.check)
    except ValueError as error:
        sys.exit(f"error: {error}")
    if options.check and stale:
        sys.exit(f"stale: {', '.join(stale)}: run python -m benchmarks.tables")
    print(f"written: {', '.join(stale)}" if stale else "every page shows the results that there are")


def update(root: Path, write: bool) -> list[str]:
    """Returns the stale pages, and rewrites them if `write`. Prints which results are older than their code."""
    stale = []
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text()
        new = filled(page, text, root)
        if new != text:
            stale.append(str(page.relative_to(root)))
            if write:
                page.write_text(new)
    return stale


def filled(page: Path, text: str, root: Path) -> str:
    """Returns the page's text with its marked parts up to date. Raises ValueError if a part cannot be made."""
    if len(PART.findall(text)) != len(BEGIN.findall(text)):
        raise ValueError(f"{page}: not every <!-- table: NAME --> has its <!-- end -->")
    return PART.sub(lambda part: part[1] + table(part[2], part[3], root) + part[4], text)


def table(name: str, before: str, root: Path) -> str:
    """Returns a result as Markdown; `before` is the current text of the part."""
    if name not in BENCHMARKS:
        raise ValueError(f"no benchmark is called {name}: there are {', '.join(BENCHMARKS)}")
    source, template = (root / "benchmarks" / "results" / f"{name}.{kind}" for kind in ("json", "md"))
    for file in (source, template):
        if not file.is_file():
            raise ValueError(f"{file} is missing: a page shows its table")
    result = read(source)
    if "--quick" in result["command"].split():
        raise ValueError(f"{source} is of a --quick run, which measures nothing: run it in full")
    failed = {
        key.removesuffix(_FAILED): why
        for key, why in result["figures"].items()
        if key.endswith(_FAILED) and isinstance(why, str)
    }
    shown = {name: _Measured(result.get(name, {}), failed) for name in ("figures", "ratios")}
    try:
        body = template.read_text().format_map(result | shown)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{template} asks for what {source} does not have: {error!r}") from None
    told = "".join(f"`{what}` failed: {shorten(why, 200)}.\n\n" for what, why in failed.items())
    return f"{body.rstrip()}\n\n{told}{origin(result)}{age(name, result['commit'], OLD in before, root)}.\n"


class _Measured(dict[str, Any]):
    """Figures or ratios. One that is missing since what it measures failed is shown as such, and the others are shown."""

    def __init__(self, values: Mapping[str, Any], failed: Iterable[str]) -> None:
        super().__init__(values)
        self._failed = list(failed)

    def __missing__(self, key: str) -> "_Failure":
        if any(what in key for what in self._failed):
            return _Failure()
        raise KeyError(key)


class _Failure:
    def __format__(self, _: str) -> str:
        return "failed"


def origin(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:.0f} GiB"
    where += f", {machine['gpu']}" if "gpu" in machine else ""
    return f"`{result['command']}`, {result['date']}, {where}, commit {result['commit']}"


def age(name: str, commit: str, said: bool, root: Path) -> str:
    """Returns OLD if the code has changed since the commit, otherwise an empty text. Prints the number of commits.

    Args:
        said: whether the page says OLD now; this decides if git does not know the commit.
    """
    clean, paths = commit.removesuffix("-dirty"), BENCHMARKS[name].speaks_of
    try:
        changed = git("diff", "--name-only", clean, "--", *paths, root=root)
        commits = git("rev-list", "--count", f"{clean}..HEAD", "--", *paths, root=root).strip()
    except (OSError, subprocess.CalledProcessError):
        return OLD if said else ""
    if changed:
        print(f"{name}: {commits} commits to {', '.join(paths)} since its figures of {commit}")
    return OLD if changed else ""


if __name__ == "__main__":
    main()
