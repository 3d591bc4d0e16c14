"""The command that makes the embedded problem files, or checks that they are what would be made."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def make_or_check(
    texts: Mapping[Path, Callable[[], str]], command: str, arguments: Sequence[str] | None = None
) -> int:
    """Exit status of `command`: 1 where --check finds that a file differs.

    texts: what belongs into each file.
    """
    parser = argparse.ArgumentParser(description="Make the embedded problem files from their fixed seed.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    check = parser.parse_args(arguments).check
    stale = []
    for path, make in texts.items():
        text = make()
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    if stale:
        print(f"{' and '.join(stale)} differ from what would be made: run {command}", file=sys.stderr)
    return 1 if stale else 0
