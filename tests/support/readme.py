"""The pages of docs/, and values in their tables."""

import re

from tests.support.paths import ROOT

SCRIPTING = (ROOT / "docs" / "scripting.md").read_text()
EXCHANGE = (ROOT / "docs" / "import-export.md").read_text()


def keys_of(job: str) -> list[str]:
    """The names in the row of a job in the table of other jobs, but not those in parentheses."""
    table = SCRIPTING.partition("| other job | its keys |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = (line.strip("| ").split(" | ") for line in table.splitlines())
    keys = next(keys for jobs, keys in rows if job in jobs)
    return re.findall("`([a-z_]+)`", re.sub(r"\([^)]*\)| in the event .*", "", keys))


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
