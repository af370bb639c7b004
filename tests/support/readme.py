"""The pages of docs/, and values in their tables."""

import re

from tests.support.paths import ROOT

SCRIPTING = (ROOT / "docs" / "scripting.md").read_text()
EXCHANGE = (ROOT / "docs" / "import-export.md").read_text()


def keys_in(heading: str) -> list[str]:
    """The names in the first column of the table under a heading of the page on scripting."""
    table = SCRIPTING.partition(f"| {heading} | what |\n|---|---|\n")[2].partition("\n\n")[0]
    return [
        name
        for line in table.splitlines()
        for name in re.findall("`([a-z_]+)`", line.split("|")[1])
    ]


def exit_codes(page: str) -> list[str]:
    """The first column of a page's table of exit codes."""
    table = page.partition("| exit | means |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()]
