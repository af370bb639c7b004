"""The export as HTML in a real browser: no script of a message runs, nothing is loaded, nothing is complained of."""

import base64
import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gptsh.core import checks, document
from gptsh.render import html
from tests.support.attached import HOSTILE, a_pdf, a_png

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture
def browser(tmp_path: Path) -> str:
    """The path of a browser; where CI runs there must be one."""
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("has no Chromium")
    assert CHROMIUM, f"none of {', '.join(NAMES)} is there"
    return CHROMIUM


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A server's URL, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def look(browser: str, page: Path, *args: str) -> tuple[str, str]:
    """What the browser gives for a page, and what it says of it: the lines of its console."""
    folder = page.parent / "profile"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={folder}",
             "--virtual-time-budget=2000", "--enable-logging=stderr"]  # fmt: skip
    env = {**os.environ, "HOME": str(page.parent)}
    done = subprocess.run(
        [browser, *quiet, *args, page.as_uri()], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def attacks(url: str) -> list[str]:
    """Words that, were they obeyed, would ask the server for something or change the title."""
    return [
        f"<script>document.title='ran'; fetch('{url}/script')</script>",
        f"<img src='{url}/img' onerror=\"document.title='ran'\">",
        f"<svg onload=\"document.title='ran'\"><image href='{url}/svg'/></svg>",
        f"![i]({url}/markdown)",
        f"<link rel=stylesheet href='{url}/css'><style>@import '{url}/import';</style>",
        f"<style>body {{ background: url({url}/bg) }}</style><p style='background: url({url}/style)'>",
        f"<iframe src='{url}/frame'></iframe><object data='{url}/object'></object><base href='{url}/'>",
        f'<meta http-equiv=refresh content="0;url={url}/refresh">',
        f"</code></pre></details></div></article><script>document.title='ran'; fetch('{url}/closed')</script>",
    ]


def a_page(folder: Path, texts: list[str]) -> Path:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(a_png()).decode()}"}}
    pdf = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{base64.b64encode(a_pdf()).decode()}"}}
    messages: list[Any] = [{"role": "user", "content": [image, pdf]}]
    for text in texts:
        call = {"id": "c", "type": "function", "function": {"name": text, "arguments": text}}
        far = {"type": "image_url", "image_url": {"url": text}}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": text, "source": text}, far]},
            {"role": "assistant", "content": text, "tool_calls": [call], "model": text,
             "thinking": [{"type": "thinking", "thinking": text}]},
            {"role": "tool", "content": text},
            {"role": "assistant", "content": f"```html\n{text}\n```"},
        ]  # fmt: skip
    doc = {"version": 1, "id": "7x2m", "title": "A Talk", "messages": messages}
    path = folder / "page.html"
    path.write_text("".join(html.page(document.migrate(checks.check(doc)))), "utf-8")
    return path


def test_nothing_of_a_session_runs_or_is_loaded(browser: str, site: tuple[str, list[str]], tmp_path: Path) -> None:
    url, asked = site
    seen, said = look(browser, a_page(tmp_path, [*attacks(url), *HOSTILE]), "--dump-dom")
    assert "<title>A Talk</title>" in seen
    assert "A Talk</h1>" in seen
    assert "document.title='ran'" in seen  # shown as text
    assert asked == []
    assert said == ""


def test_such_words_would_run_where_they_are_obeyed(browser: str, site: tuple[str, list[str]], tmp_path: Path) -> None:
    url, asked = site
    bare = tmp_path / "bare.html"
    bare.write_text(f"<title>A Talk</title>{attacks(url)[0]}{attacks(url)[1]}<script>console.error('heard')</script>")
    seen, said = look(browser, bare, "--dump-dom")
    assert "<title>ran</title>" in seen
    assert {"/script", "/img"} <= set(asked)
    assert "heard" in said


def test_it_looks_otherwise_by_night(browser: str, tmp_path: Path) -> None:
    page, shots = a_page(tmp_path, ["# A heading\n\n```py\nx = 'code'\n```\n"]), []
    for scheme in ("0", "1"):  # dark, light
        shot = tmp_path / f"{scheme}.png"
        settings = f"--blink-settings=preferredColorScheme={scheme}"
        look(browser, page, settings, "--window-size=390,844", f"--screenshot={shot}")
        shots.append(shot.read_bytes())
    assert shots[0] != shots[1]
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(tmp_path / "profile")
