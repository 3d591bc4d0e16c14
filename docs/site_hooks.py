"""Hooks of the documentation site (mkdocs.yml). Pages link to each other as files of the repository; in the site a link to
a file that is no page becomes plain text."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "sandbox_workers/README.md": "judge.md",
    "benchmarks/results/phase_diagram.svg": "phase_diagram.svg",
}
"""Files outside of docs/ that are parts of the site, with their names there."""
SOURCES = {name: source for source, name in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_SOURCE = re.compile(r'(src|srcset|href)="([^"]+)"')


def on_files(files: Any, config: Any) -> Any:
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    name = page.file.src_uri

    def at_site(link: str) -> str | None:
        """Returns the link as the site has it; None if it leads to no part of the site."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        path, hash_sign, anchor = link.partition("#")
        source = SOURCES.get(name, f"docs/{name}")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = target.removeprefix("docs/") if target.startswith("docs/") else OUTSIDE.get(target)
        if inside is None:
            return None
        return posixpath.relpath(inside, posixpath.dirname(name) or ".") + hash_sign + anchor

    def of_markdown(match: re.Match[str]) -> str:
        link = at_site(match[3])
        return match[2] if link is None else f"{match[1]}[{match[2]}]({link})"

    def of_html(match: re.Match[str]) -> str:
        return f'{match[1]}="{at_site(match[2]) or match[2]}"'

    return _SOURCE.sub(of_html, _LINK.sub(of_markdown, markdown))
