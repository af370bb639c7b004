"""The man page and the page of config keys: what their builder makes is what is committed, complete, readable."""

import re
import subprocess
import tomllib

from dev.man import configuration
from dev.man.build import PAGE, page
from gptsh.cli.options import ROWS, SHORT_HELP
from tests.support.paths import ROOT
from tests.support.programs import needs
from tests.support.readme import SCRIPTING, exit_codes

GROFF = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=1000n"]


def test_the_committed_page_is_what_make_man_writes_and_is_installed() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make man`"
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert targets["wheel"]["shared-data"] == {
        str(PAGE.relative_to(ROOT)): "share/man/man1/gptsh.1"
    }


def test_the_page_of_config_keys_is_what_make_man_writes() -> None:
    assert configuration.PAGE.read_text("utf-8") == configuration.page(), "run `make man`"


@needs("groff")
def test_the_page_has_every_section_option_variable_code_and_example() -> None:
    done = subprocess.run(
        GROFF, input=f".ll 1000n\n{page()}".encode(), capture_output=True, check=True
    )
    assert not done.stderr, done.stderr.decode()  # no word of warning
    shown = done.stdout.decode()
    assert re.findall(r"^[A-Z][A-Z ]+$", shown, re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SESSION REFERENCES", "CONFIGURATION", "EXIT STATUS",
        "ENVIRONMENT", "FILES", "EXAMPLES",
    ]  # fmt: skip
    for row in ROWS:
        assert re.search(rf"^ +(-\w, )?{row.names[0]}\b", shown, re.MULTILINE), row.names
        assert row.help in shown
    source = "".join(path.read_text() for path in (ROOT / "gptsh").rglob("*.py"))
    assert set(re.findall(r"\bGPTSH_[A-Z_]+", source)) == set(re.findall(r"\bGPTSH_[A-Z_]+", shown))
    for example in re.findall(r"^  (\S.*?)  ", SHORT_HELP, re.MULTILINE):
        assert f" {example}\n" in shown
    listed = shown.split("\nEXIT STATUS")[1].split("\nENVIRONMENT")[0]
    assert re.findall(r"^ {7}(\d[\d, ]*\d|\d)\b", listed, re.MULTILINE) == exit_codes(SCRIPTING)
