"""The documentation as a site: every link of it leads somewhere in it, and it asks no other host for anything."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\b(?:href|src)=(?:\"([^\"]*)\"|([^\s\">]+))")
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:href|src)=\"?(https?:[^\"\s>]+)")
ID = re.compile(r"\bid=\"?([^\"\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(place)))
    return place


def test_links_lead_to_a_page_and_a_place_in_it(site: Path) -> None:
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 30
    for page, text in pages.items():
        for link in (quoted or bare for quoted, bare in LINK.findall(text)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.name}: {link}"
            assert not anchor or anchor == "__toc" or anchor in ID.findall(pages[target]), (
                f"{page.name}: {link}"
            )


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADED.findall(page.read_text("utf-8")), page.name


def test_links_to_files_that_are_no_pages_are_text(site: Path) -> None:
    page = (ROOT / "docs" / "use_the_judge_elsewhere.md").read_text("utf-8")
    assert "](../sandbox_workers/reward.py)" in page
    shown = (site / "use_the_judge_elsewhere.html").read_text("utf-8")
    assert "sandbox_workers/reward.py" in shown and "../sandbox_workers" not in shown
