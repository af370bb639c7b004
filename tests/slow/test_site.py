"""docs/ as a site: it builds without a warning, loads nothing from elsewhere, and leads to each page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-q",
        "-f",
        str(ROOT / "dev" / "mkdocs.yml"),
        "-d",
        str(folder),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return folder


def test_no_page_loads_a_script_a_style_or_a_font_from_elsewhere(site: Path) -> None:
    pages = list(site.glob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text()
        loads = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"' >]+)", text)
        loads += re.findall(r"<link\b[^>]*\bhref=[\"']?([^\"' >]+)", text)
        assert [url for url in loads if re.match("(https?:)?//", url)] == [], page.name
        assert loads, page.name
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), (
            style.name
        )


def test_each_page_is_in_the_navigation_and_the_search(site: Path) -> None:
    start = (site / "index.html").read_text()
    index = (site / "search" / "search_index.json").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f'href="{page.stem}.html"' in start or page.stem == "index", page.name
        assert f'"location":"{page.stem}.html' in index, page.name


def test_no_key_in_a_table_is_broken_into_lines(site: Path) -> None:
    assert re.search(
        r"\.md-typeset td code[^{]*\{[^}]*white-space: nowrap", (site / "site.css").read_text()
    )
    assert 'href="site.css"' in (site / "configuration.html").read_text()


def test_code_is_highlighted_and_can_be_copied_and_there_is_a_dark_theme(site: Path) -> None:
    text = (site / "asking.html").read_text()
    assert re.search('<div class="[^"]*highlight">.*<span class="s2">', text)
    assert '"content.code.copy"' in text
    assert 'data-md-color-scheme="slate"' in text
