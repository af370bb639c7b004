"""The pictures of README and docs/: ``python -m man.screenshot``, or ``make screenshot``. It takes tmux.

gptsh runs in a terminal, real keys go in, a scripted model on loopback answers, and what the screen shows then is
written as SVG. Nothing of the machine that it runs on is in it.
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

FOLDER = Path(__file__).parent.parent / "docs"
COLUMNS = 88
ID = "7x2m"  # stands for the session's own, which is random

_MODEL, _SMALL = "gpt-4.1-mini", "gpt-4.1-nano"
_CONFIG = f'[agents.default]\nmodel = "openai/{_MODEL}"\nmodel_small = "openai/{_SMALL}"\n'
_TITLE = "The Lost Page"

_CODE = '''def pages(items, size):
    """The items in lists of this size."""
    return [items[at : at + size] for at in range(0, len(items) - size, size)]
'''
_REVIEW = f"""## The last page is lost

The loop ends too early: of 5 items and a `size` of 2, the fifth is on no page. It has to go up to the end:

```python
{_CODE.replace(" - size,", ",")}```

- `range` stops **before** its end by itself, so nothing has to be taken off.
- A `size` of 0 raises a `ValueError`. That is right, and could be said in the docstring.
"""
_TEST = """```python
def test_the_last_page_may_be_short():
    assert pages([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
```
"""

# Days since it was used, title, turns, model; what belongs to another project comes last.
_SESSIONS = (
    (0.0174, "The Lost Page", 2, "openai/gpt-4.1-mini"),
    (0.1, "Why the Build Is Slow", 7, "anthropic/claude-sonnet-4-5"),
    (0.3, "A Name for the New Option", 3, "mistral/mistral-large-latest"),
    (1.2, "SQLite or Plain Files", 12, "openai/gpt-4.1"),
    (3.5, "Release Notes for 2.4", 4, "ollama/qwen3"),
    (9.5, "Flaky Test of the Lock", 9, "anthropic/claude-sonnet-4-5"),
    (2.2, "Nginx in Front of Two Apps", 5, "openai/gpt-4.1"),
    (40.0, "Trip to Lisbon, Four Days", 14, "mistral/mistral-large-latest"),
)
_HERE = 6  # of them are of this project

_NARROW = 0.6  # the width of a character, as a part of its height
_TEXT, _PAPER = "c9d1d9", "0d1117"
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


def make(folder: Path) -> None:
    """Write each picture into the folder."""
    for name, screen in PICTURES.items():
        (folder / name).write_text(_svg(screen()), "utf-8")


# ---- what is shown


def _session() -> list[Text]:
    """A review that is piped in, a question more, and the commands."""
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
            tmux.until(f"{_TITLE}.* USD$")
            tmux.say("a test for it, please")
            tmux.until(f"^> *\n+.*{_TITLE}.* USD$")
            tmux.write("/s")
            tmux.until("^ +/session rename")
            tmux.keys("Down", "Down")
            tmux.until("^> /search$")
            return _seen(tmux, (f"{home.doc()['id']} · {_TITLE}", f"{ID} · {_TITLE}"))


def _picker() -> list[Text]:
    """The list that ``-r`` shows."""
    with _home() as home:
        (home.cwd / ".git").mkdir()
        for at, (days, title, turns, model) in enumerate(_SESSIONS):
            path = put(
                home, f"aaa{at}", days, title=title, agent={"name": "default", "model": model},
                meta={"tags": [], "project": str(home.cwd) if at < _HERE else "/src/website"},
            )  # fmt: skip
            doc = json.loads(path.read_bytes())
            doc["messages"] = [{**doc["messages"][0], "id": f"{at}-{turn}"} for turn in range(turns)]
            path.write_text(json.dumps(doc))
        with _shell(home, 12) as tmux:
            tmux.say("gptsh -r")
            tmux.until(rf"^Filter: +{len(_SESSIONS)}$")
            tmux.keys("Down")
            tmux.until(f"^> .*{_SESSIONS[1][1]}")
            return _seen(tmux)


PICTURES: dict[str, Callable[[], list[Text]]] = {"session.svg": _session, "picker.svg": _picker}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@contextlib.contextmanager
def _home() -> Iterator[Home]:
    """A home of its own, whose shell finds this gptsh and has a short prompt."""
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


def _seen(tmux: Tmux, *written: tuple[str, str]) -> list[Text]:
    """The lines of the screen, once it is at rest, with its cursor; ``written``: texts, and what stands for each."""
    screen, before = tmux.screen(styles=True), ""
    while screen != before:
        time.sleep(0.2)
        screen, before = tmux.screen(styles=True), screen
    for text, instead in written:
        screen = screen.replace(text, instead)
    lines = list(AnsiDecoder().decode(screen.rstrip()))
    column, row, is_shown = tmux.cursor
    if is_shown:
        lines[row].pad_right(max(0, column + 1 - len(lines[row])))
        lines[row].stylize("reverse", column, column + 1)
    return lines


# ---- how it is drawn


def _svg(lines: list[Text]) -> str:
    """The lines in a window of their own colours, so that they look the same on a light page and on a dark one."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), color_system="truecolor", _environ={})
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(
        title="", theme=_theme(), code_format=_FORMAT, font_aspect_ratio=_NARROW, unique_id="gptsh"
    )
    return re.sub(r' clip-path="[^"]*"|(?m: +$)', "", svg)


def _theme() -> TerminalTheme:
    """The colours of GitHub Dark."""
    return TerminalTheme(_rgb(_PAPER), _rgb(_TEXT), [*map(_rgb, _COLORS)], [*map(_rgb, _BRIGHT)])


def _rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(color)
    return red, green, blue


if __name__ == "__main__":
    if not shutil.which("tmux"):
        raise SystemExit("tmux is not installed")
    make(FOLDER)
