"""The README, and what stands in its tables."""

import re

from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
SCRIPTING = README.partition("\n## For scripts\n")[2].partition("\n## ")[0]


def keys_in(heading: str) -> list[str]:
    """The names in the first column of the table under a heading."""
    table = SCRIPTING.partition(f"| {heading} | what |\n|---|---|\n")[2].partition("\n\n")[0]
    return [name for line in table.splitlines() for name in re.findall("`([a-z_]+)`", line.split("|")[1])]
