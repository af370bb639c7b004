"""Write the pictures of README and docs/: ``python -m dev.man.screenshot``, or ``make screenshot``. Needs tmux.

gptsh runs in a terminal and gets real keys. A scripted model on loopback answers. The final screen is written as SVG,
without any data of this machine.
"""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.support.home import Home
from tests.support.screens import Tmux
from tests.support.server import ModelServer
from tests.support.sessions import put

FOLDER = Path(__file__).parent.parent.parent / "docs"
COLUMNS = 88
ID = "7x2m"  # replaces the random id of the session

_MODEL, _SMALL = "gpt-4.1-mini", "gpt-4.1-nano"
_CONFIG = f'[agents.default]\nmodel = "openai/{_MODEL}"\nmodel_small = "openai/{_SMALL}"\n'
_TITLE = "The Lost Page"

_CODE = '''def pages(items, size):
    """Split the items into pages of this size."""
    return [items[at : at + size] for at in range(0, len(items) - size, size)]
'''
_REVIEW = f"""## Off by one: the last page is dropped

With 5 items and a page size of 2, item 5 is never returned. Iterate to the end:

```python
{_CODE.replace(" - size,", ",")}```

- `range` already **excludes** its end, so nothing needs subtracting.
- `size=0` raises `ValueError`, which is right; document it.
"""
_TEST = """```python
def test_last_page_may_be_short():
    assert pages([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
```
"""

# Days since the last use, title, turns, model. The sessions of other projects come last.
_SESSIONS = (
    (0.0174, "The Lost Page", 2, "openai/gpt-4.1-mini"),
    (0.1, "Why the Build Is Slow", 7, "anthropic/claude-sonnet-4-5"),
    (0.3, "A Name for the New Option", 3, "mistral/mistral-large-latest"),
    (1.2, "SQLite or Plain Files", 12, "openai/gpt-4.1"),
    (3.5, "Release Notes for 2.4", 4, "ollama/qwen3"),
    (9.5, "Flaky Test of the Lock", 9, "anthropic/claude-sonnet-4-5"),
    (16.0, "Nginx in Front of Two Apps", 5, "openai/gpt-4.1"),
    (40.0, "Trip to Lisbon, Four Days", 14, "mistral/mistral-large-latest"),
)
_IN_PROJECT = 6  # of these sessions

_ASPECT = 0.6  # width of a character / its height
_FOREGROUND, _BACKGROUND = "c9d1d9", "0d1117"
_COLORS = ("484f58", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "b1bac4")
_BRIGHT = ("6e7681", "ffa198", "56d364", "e3b341", "79c0ff", "d2a8ff", "56d4dd", "ffffff")
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
{matrix}
</g>
</svg>
"""


def write_pictures(folder: Path) -> None:
    """Write each picture to the folder."""
    for name, screen in PICTURES.items():
        (folder / name).write_text(_svg(screen()), "utf-8")


# ---- scenes


def _session() -> list[Text]:
    """A review of piped input, a second question, and the list of commands."""
    with _home() as home, contextlib.closing(ModelServer()) as model:
        home.configure(_CONFIG)
        home.env |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
        (home.cwd / "pages.py").write_text(_CODE)
        for args in (("init", "-q"), ("add", ".")):
            subprocess.run(["git", *args], cwd=home.cwd, env=home.env, check=True)
        model.say(_REVIEW, usage=_usage(182, 134), model=_MODEL)
        model.say(_TITLE, model=_SMALL)
        model.say(_TEST, usage=_usage(331, 41), model=_MODEL)
        with _shell(home, 40) as tmux:
            tmux.say('git diff --cached | gptsh -i "review this"')
            tmux.until(f"{_TITLE}.* \\$[0-9.]+$")
            tmux.say("a test for it, please")
            tmux.until(f"^> *\n+.*{_TITLE}.* \\$[0-9.]+$")
            tmux.write("/se")
            tmux.until("^ +/session rename")
            tmux.keys("Down", "Down")
            tmux.until("^> /search$")
            return _screen(tmux, (f"{home.doc()['id']} · {_TITLE}", f"{ID} · {_TITLE}"))


def _picker() -> list[Text]:
    """The list of sessions of ``-r``."""
    with _home() as home:
        (home.cwd / ".git").mkdir()
        for at, (days, title, turns, model) in enumerate(_SESSIONS):
            path = put(
                home, f"aaa{at}", days, title=title, agent={"name": "default", "model": model},
                meta={"tags": [], "project": str(home.cwd) if at < _IN_PROJECT else "/src/website"},
            )  # fmt: skip
            doc = json.loads(path.read_bytes())
            doc["messages"] = [
                {**doc["messages"][0], "id": f"{at}-{turn}"} for turn in range(turns)
            ]
            path.write_text(json.dumps(doc))
        with _shell(home, 12) as tmux:
            tmux.say("gptsh -r")
            tmux.until(rf"^Filter: +{len(_SESSIONS)}$")
            tmux.keys("Down")
            tmux.until(f"^> .*{_SESSIONS[1][1]}")
            return _screen(tmux)


PICTURES: dict[str, Callable[[], list[Text]]] = {"session.svg": _session, "picker.svg": _picker}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


@contextlib.contextmanager
def _home() -> Iterator[Home]:
    """A temporary home; its shell has a short prompt and this gptsh in PATH."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        rc = home.folder / "rc"
        rc.write_text("PS1='$ '\n")
        path = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        home.env |= {"PATH": path, "ENV": str(rc), "GIT_CONFIG_NOSYSTEM": "1"}
        yield home


@contextlib.contextmanager
def _shell(home: Home, rows: int) -> Iterator[Tmux]:
    with Tmux(home, size=(COLUMNS, rows), shell="sh -i") as tmux:
        tmux.until(r"\A\$")
        yield tmux


def _screen(tmux: Tmux, *replacements: tuple[str, str]) -> list[Text]:
    """The lines of the screen with its cursor, once the output has stopped; ``replacements``: old and new texts."""
    screen, before = tmux.screen(styles=True), ""
    while screen != before:
        time.sleep(0.2)
        screen, before = tmux.screen(styles=True), screen
    for old, new in replacements:
        screen = screen.replace(old, new)
    lines = list(AnsiDecoder().decode(screen.rstrip()))
    column, row, is_shown = tmux.cursor
    if is_shown:
        lines[row].pad_right(max(0, column + 1 - len(lines[row])))
        lines[row].stylize("reverse", column, column + 1)
    return lines


# ---- drawing


def _svg(lines: list[Text]) -> str:
    """The lines as SVG with their own background, so that they look the same on a light and on a dark page."""
    console = Console(
        width=COLUMNS, record=True, file=io.StringIO(), color_system="truecolor", _environ={}
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(
        title="", theme=_theme(), code_format=_FORMAT, font_aspect_ratio=_ASPECT, unique_id="gptsh"
    )
    return re.sub(r' clip-path="[^"]*"|(?m: +$)', "", svg)


def _theme() -> TerminalTheme:
    """The colours of GitHub Dark."""
    return TerminalTheme(
        _rgb(_BACKGROUND), _rgb(_FOREGROUND), [*map(_rgb, _COLORS)], [*map(_rgb, _BRIGHT)]
    )


def _rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(color)
    return red, green, blue


if __name__ == "__main__":
    if not shutil.which("tmux"):
        raise SystemExit("tmux is not installed")
    write_pictures(FOLDER)
