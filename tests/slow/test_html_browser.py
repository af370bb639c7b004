"""The export as HTML in a real browser: no script of a message runs, nothing is loaded, nothing is complained of."""

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.attached import HOSTILE, make_pdf, make_png
from tests.support.histories import put, session
from tests.support.home import Home
from tests.support.server import ModelServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


def look(page: Path) -> tuple[str, str]:
    """What the browser gives for a page, and what it says of it: the lines of its console."""
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={page.parent}/profile",
             "--virtual-time-budget=2000", "--enable-logging=stderr"]  # fmt: skip
    env = {**os.environ, "HOME": str(page.parent)}
    command = [str(CHROMIUM), *quiet, "--dump-dom", page.as_uri()]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def attacks(url: str) -> list[str]:
    """Words that, were they obeyed, would ask the server for something or change the title."""
    return [
        f"<script>document.title='ran'; fetch('{url}/script')</script>",
        f"<img src='{url}/img' onerror=\"document.title='ran'\">",
        f"![i]({url}/markdown)",
        f"<link rel=stylesheet href='{url}/css'><style>@import '{url}/import';</style>",
        f"<style>body {{ background: url({url}/bg) }}</style><p style='background: url({url}/style)'>",
        f"<iframe src='{url}/frame'></iframe><object data='{url}/object'></object><base href='{url}/'>",
        f'<meta http-equiv=refresh content="0;url={url}/refresh">',
        f"</code></pre></details></div></article><script>document.title='ran'; fetch('{url}/closed')</script>",
    ]


def a_page(home: Home, said: list[str]) -> Path:
    """A session in which these words stand wherever words can, as a page."""
    image = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(make_png()).decode()}"},
    }
    pdf = {
        "type": "file",
        "file": {
            "file_data": f"data:application/pdf;base64,{base64.b64encode(make_pdf()).decode()}"
        },
    }
    messages: list[Any] = [{"role": "user", "content": [image, pdf]}]
    for text in said:
        call = {"id": "c", "type": "function", "function": {"name": text, "arguments": text}}
        far = {"type": "image_url", "image_url": {"url": text}}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": text, "source": text}, far]},
            {"role": "assistant", "content": text, "tool_calls": [call], "model": text,
             "thinking": [{"type": "thinking", "thinking": text}]},
            {"role": "tool", "content": text},
            {"role": "assistant", "content": f"```html\n{text}\n```"},
        ]  # fmt: skip
    named = [{"id": f"m{at}", **message} for at, message in enumerate(messages)]
    put(home, session(title="A Talk", messages=named))
    path = home.folder / "page.html"
    path.write_text(home.run("--export-session", "7x2m", "--format", "html").stdout, "utf-8")
    return path


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
def test_nothing_of_a_session_runs_or_is_loaded(home: Home, model: ModelServer) -> None:
    """The same words in a page that obeys them come first: without that nothing would be proved."""
    url = model.base_url.removesuffix("/v1")
    bare = home.folder / "bare.html"
    bare.write_text(
        f"<title>A Talk</title>{attacks(url)[0]}{attacks(url)[1]}<script>console.error('heard')</script>"
    )
    seen, said = look(bare)
    assert "<title>ran</title>" in seen
    assert {"/script", "/img"} <= {asked.path for asked in model.requests}
    assert "heard" in said
    model.requests.clear()
    seen, said = look(a_page(home, [*attacks(url), *HOSTILE]))
    assert "<title>A Talk</title>" in seen
    assert "document.title='ran'" in seen  # shown as text
    assert model.requests == []
    assert said == ""
