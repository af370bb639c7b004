"""The man page: what its builder makes is what is committed, complete, and readable by man."""

import re
import shutil
import subprocess
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.cli.options import ROWS, SHORT_HELP
from man.build import PAGE, README, _text, page
from tests.support.paths import ROOT

READERS = {
    "groff": ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"],
    "mandoc": ["mandoc", "-Tlint", "-Werror"],
}


def rendered(text: str) -> str:
    """What a reader sees, on lines of any length; no word of warning may be said."""
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    wide = f".ll 1000n\n{text}".encode()
    done = subprocess.run([*READERS["groff"], "-rLL=1000n"], input=wide, capture_output=True, check=True)
    assert not done.stderr, done.stderr.decode()
    return done.stdout.decode()


def test_the_committed_page_is_what_make_man_writes() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make man`"


def test_the_page_renders_without_a_warning() -> None:
    reader = next((argv for name, argv in READERS.items() if shutil.which(name)), None)
    if reader is None:
        pytest.skip("neither groff nor mandoc is installed")
    done = subprocess.run([*reader, PAGE], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_page_has_every_section_option_variable_and_example() -> None:
    shown = rendered(page())
    assert re.findall(r"^[A-Z][A-Z ]+$", shown, re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SESSION REFERENCES", "EXIT STATUS", "ENVIRONMENT", "FILES",
        "EXAMPLES",
    ]  # fmt: skip
    for row in ROWS:
        heads = [line for line in shown.splitlines() if re.match(rf" +(-\w, )?{row.names[0]}\b", line)]
        assert heads, row.names
        assert row.help in shown
    source = "".join(path.read_text() for path in (ROOT / "gptsh").rglob("*.py"))
    assert set(re.findall(r"\bGPTSH_[A-Z_]+", source)) == set(re.findall(r"\bGPTSH_[A-Z_]+", shown))
    for example in re.findall(r"^  (\S.*?)  ", SHORT_HELP, re.MULTILINE):
        assert f" {example}\n" in shown


def test_exit_codes_are_those_of_the_readme() -> None:
    shown = rendered(page()).split("EXIT STATUS")[1].split("ENVIRONMENT")[0]
    codes = re.findall(r"^\| ([\d, ]+) \|", README.read_text(), re.MULTILINE)
    assert len(codes) > 4
    assert re.findall(r"^ {7}(\d[\d, ]*\d|\d)\b", shown, re.MULTILINE) == codes


printable = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"], exclude_characters="`"), min_size=1)


@given(word=printable)
def test_no_text_is_read_as_a_request_or_changed(word: str) -> None:
    line = _text(word)
    assert not line.startswith((".", "'"))
    plain = re.sub(r"\\&", "", line)
    for escape, character in {r"\(rs": "\\", r"\-": "-", r"\(aq": "'", r"\(ha": "^", r"\(ti": "~"}.items():
        plain = plain.replace(escape, "\0" if character == "\\" else character)
    assert plain.replace("\0", "\\") == word


def test_awkward_texts_are_shown_as_they_are() -> None:
    awkward = [".TH is no request", "'nor this", r"a\fBb \-c \(aq", "it's ~/.x -- `$(y)` ^ …", "-x .y", '"q" "']
    shown = rendered(".TH X 1\n" + "".join(f".PP\n{_text(text)}\n" for text in awkward))
    for text in awkward:
        assert text.replace("`", "") in shown


def test_the_page_is_installed_with_the_package() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["shared-data"] == {str(PAGE.relative_to(ROOT)): "share/man/man1/gptsh.1"}
    assert "man" in targets["sdist"]["include"]
