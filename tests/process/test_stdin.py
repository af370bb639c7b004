"""What is piped in and attached: pipes that stay silent, bytes that are no UTF-8, data that is no text, large text."""

import contextlib
import gzip
import io
import json
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gptsh.content.attachments import detect_type
from tests.support.attached import make_pdf
from tests.support.home import COMMAND, Home, lab_config, read_until, wait_for_exit, wait_until
from tests.support.programs import needs
from tests.support.server import ModelServer
from tests.support.stages import unread_bytes

WAITING = b"gptsh: still waiting for piped input; --no-stdin skips it\n"

# ---- errors of the command line come before the pipe is read: its input may be a long build, and is lost then

WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "session": (["-s", "wrogn", "explain"], {}, "wrogn"),
    "key": (["-m", "openai/gpt-4.1", "explain"], {}, "OPENAI_API_KEY"),
    "schema": (["--schema", "{", "explain"], {}, "schema"),
    "file": (["-f", "nowhere.txt", "explain"], {}, "nowhere.txt"),
    "data": (["-f", sys.executable, "explain"], {}, "can be sent"),
    "snapshot": (["--snapshot", "start", "explain"], {}, "snapshot"),
    "compaction": (["--apply", "explain"], {}, "--compact"),
    "environment": (["explain"], {"GPTSH_SESSION": "wrogn"}, "wrogn"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_reported_while_the_pipe_is_still_open(lab: Home, wrong: str) -> None:
    args, env, word = WRONG[wrong]
    process = lab.start(*args, env=env, stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(b"a long build\n")
    process.stdin.flush()
    assert process.wait(timeout=30) == 2  # though the pipe has no end
    assert word in process.communicate()[1].decode()


@needs("bash")
def test_a_dash_as_a_file_needs_a_stdin(lab: Home) -> None:
    line = f"{shlex.join([*COMMAND, '-f', '-', 'go'])} <&-"
    done = subprocess.run(
        ["bash", "-c", line], env=lab.env, cwd=lab.cwd, capture_output=True, text=True, check=False
    )
    assert done.stderr == "gptsh: -f - reads standard input, which is closed\n"
    assert done.returncode == 2
    assert not lab.files()


# ---- a pipe that stays silent


@pytest.mark.slow
def test_a_silent_pipe_beside_a_prompt_is_worth_one_note_and_is_waited_for(lab: Home) -> None:
    process = lab.start("go", stdin=subprocess.PIPE)
    assert read_until(process.stderr, b"\n") == WAITING
    assert process.communicate(b"late text", timeout=30) == (b"You said: go\n\nlate text\n", b"")


@pytest.mark.parametrize("piped", [b"", b" \n"])
def test_an_empty_pipe_beside_a_prompt_is_one_note(lab: Home, piped: bytes) -> None:
    process = lab.start("go", stdin=subprocess.PIPE)
    note = b"gptsh: nothing was piped in: only the prompt is sent\n"
    assert process.communicate(piped, timeout=30) == (b"You said: go\n", note)
    assert process.returncode == 0
    assert lab.run("go").stderr == ""  # /dev/null


@needs("bash")
@pytest.mark.parametrize("redirect", ["</dev/null", "< empty", "0>&1 | cat"])
def test_what_cannot_keep_anyone_waiting_is_no_reason_for_a_note(lab: Home, redirect: str) -> None:
    (lab.cwd / "empty").touch()
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(COMMAND)} go {redirect}"],
        env=lab.env, cwd=lab.cwd, capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.stdout == b"You said: go\n"
    assert done.stderr == b""


# ---- bytes that are no UTF-8


ODD = {
    "latin-1": "Käse für alle\n".encode("latin-1"),
    "cut": "cut: 😀".encode()[:-1],
    "none at all": b"\xff\xfd\xff",
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
@pytest.mark.parametrize("how", ["stdin", "odd.txt"])
def test_bytes_that_are_no_utf8_are_kept(
    lab: Home, model: ModelServer, data: bytes, how: str
) -> None:
    (lab.cwd / "odd.txt").write_bytes(data)
    run = lab.run("look", stdin=data) if how == "stdin" else lab.run("-f", how, "look")
    assert run.code == 0
    assert run.stderr == (
        f"gptsh: not valid UTF-8: {how} (invalid bytes are saved, but sent as U+FFFD); "
        "iconv -f ENCODING -t utf-8 converts the text\n"
    )
    stored = json.loads(lab.files()[0].read_bytes())["messages"][0]["content"][1]["text"]
    assert stored.encode("utf-8", "surrogateescape") == data
    assert (
        "\ufffd".encode() in model.sent[0]["messages"][0]["content"].encode()
    )  # nothing else that is no text


# ---- data that is no text


def an_archive(*names: str, content: bytes = b"text") -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ELF = "application/x-executable"
ONLY = "only text, PNG, JPEG, GIF, WebP, PDF, WAV, MP3, MP4, WebM and MPEG can be sent"
TEXT = "Grüße an alle, это обычный текст.\n" * 20
NOT_TEXT = [
    (
        b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n",
        "application/pdf",
    ),  # without a NUL byte
    (
        b"junk" * 255 + make_pdf(),
        "application/pdf",
    ),  # readers look for its header in the first 1,024 bytes
    (b"HTTP/1.1 200 OK\r\n\r\n%PDF-1.4\n%\xe2\xe3\xcf\xd3\n%%EOF\n", "application/pdf"),
    (b"\0" * 128 + make_pdf(), "application/pdf"),  # MacBinary
    (an_archive("a.pdf", content=make_pdf()), "application/zip"),
    (b"\0\0\0\x20ftypqt  \0\0\2\0qt  \0\0\0\0\0\0\0\0\0\0\0\x08free", "video/quicktime"),
    (an_archive("a.txt"), "application/zip"),
    (an_archive("[Content_Types].xml", "_rels/.rels", "word/document.xml"), WORD),
    (gzip.compress(TEXT.encode(), mtime=0), "application/gzip"),
    (b"SQLite format 3\0\x10\0\1\1\0\x40\x20\x20", "application/x-sqlite3"),
    (Path(sys.executable).read_bytes()[:5000], ELF if sys.platform == "linux" else "binary data"),
    (b"\xfe\xff" + TEXT.encode("utf-16be"), "UTF-16 text"),
    ("only ASCII\r\n".encode("utf-16le"), "binary data"),
    # what no signature names for sure
    (bytes(3000), "binary data"),
    (bytes(range(1, 256)), "binary data"),
]
IS_TEXT = [
    TEXT.encode(),
    b"",
    b"\xef\xbb\xbfwith a byte order mark\n",
    "日本語のテキスト\n".encode("shift-jis"),
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07" + b"a line\n" * 9,
    b"N\x08NA\x08AM\x08ME\x08E\n" * 9,  # a man page
    b"ab\0" * 9,  # names, as find -print0 parts them
    b'PDF = b"""\n%PDF-1.4\n%%EOF\n"""\n',
    b"junk" * 256 + make_pdf(),
    b"%PDF-1.4 is how a PDF document begins, and %%EOF how it ends. " + b"This is no end. " * 99,
    "ÿû hieß der Käse\n".encode("latin-1"),  # its first two bytes begin a frame of MP3
]


@pytest.mark.parametrize(("data", "name"), [*NOT_TEXT, *((text, None) for text in IS_TEXT)])
def test_data_is_named_and_text_of_any_encoding_and_dress_is_text(
    data: bytes, name: str | None
) -> None:
    assert detect_type(data) == name


UNSENDABLE: list[tuple[bytes, str]] = [  # how it begins, what it is
    (b"II*\0\x08\0\0\0\1\0", "image/tiff"),
    (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "image/heic"),
    (b"fLaC\0\0\0\x22\x10\0\x10\0", "audio/x-flac"),
    (gzip.compress(b"", mtime=0), "application/gzip"),
    (b"x" * 20_000, "binary data"),  # its NUL bytes are far behind
]


def test_what_cannot_be_sent_is_exit_2_with_its_kind_its_size_and_a_way(
    lab: Home, model: ModelServer
) -> None:
    for start, what in UNSENDABLE:
        data = start + bytes(34_100 - len(start))
        (lab.cwd / "scan").write_bytes(data)
        assert lab.run("what?", stdin=data) == (
            "",
            f"gptsh: stdin is {what} (34.1 kB): {ONLY}\n",
            2,
        )
        assert lab.run("-f", "scan", "what?") == (
            "",
            f"gptsh: scan is {what} (34.1 kB): {ONLY}\n",
            2,
        )
    assert not model.requests
    assert not lab.state.exists()


@needs("iconv")
def test_utf_16_is_told_how_to_become_utf8(lab: Home) -> None:
    data = "some text\nof two lines\n".encode("utf-16")
    run = lab.run(stdin=data)
    assert run.stdout == ""
    assert run.code == 2
    told, remedy = run.stderr.removesuffix(" converts it to text that can be sent\n").split("): ")
    assert told == f"gptsh: stdin is UTF-16 text ({len(data)} bytes"
    converted = subprocess.run(remedy.split(), input=data, capture_output=True, check=True).stdout
    assert converted == b"some text\nof two lines\n"
    assert not lab.state.exists()


# ---- large text


def test_a_large_text_arrives_whole(lab: Home, model: ModelServer) -> None:
    text = ("line 😀\n" * 300_000) + "end"
    model.say("read", usage=None)
    process = lab.start("--no-save", stdin=subprocess.PIPE)
    assert process.communicate(text.encode(), timeout=60) == (b"read\n", b"")
    assert wait_for_exit(process) == 0
    assert model.sent[-1]["messages"][0]["content"] == text


ENDLESS = {
    "bytes": ("gptsh -m echo hi < /dev/zero", "standard input"),
    "text": ("yes | gptsh -m echo", "standard input"),
    "text beside a prompt": ("yes | gptsh -m echo hi", "standard input"),
    "a file": ("gptsh -m echo -f <(yes) hi", "/dev/fd/63"),
    "an import": ("yes | gptsh --import-session -", "standard input"),
}


@needs("bash")
@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_stream_ends_in_a_line_and_takes_no_memory(home: Home, name: str) -> None:
    command, source = ENDLESS[name]
    gptsh = shlex.join([sys.executable, "-m", "gptsh"])
    limit = "ulimit -v 600000\n"  # kB of address space
    process = subprocess.run(
        ["bash", "-c", limit + command.replace("gptsh", gptsh)], env=home.env, cwd=home.cwd, capture_output=True,
        check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stdout == b""
    assert (
        process.stderr
        == f"gptsh: {source} is larger than 100.0 MB: tail -c 1000000 gives its end\n".encode()
    )
    assert not home.files()


def test_text_that_no_window_could_hold_is_refused_while_it_is_read(
    lab: Home, model: ModelServer
) -> None:
    lab.configure(
        lab.config.read_text().replace(
            "[providers.lab]\n", "[providers.lab]\ncontext_window = 8000\n"
        )
    )
    process = lab.start("sum it up", stdin=subprocess.PIPE)
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        while True:  # the pipe is never closed
            process.stdin.write(b"some words\n" * 1000)
    assert wait_for_exit(process) == 6
    assert model.requests == []
    assert lab.files() == []
    assert process.stderr
    error = process.stderr.read().decode()
    assert re.fullmatch(
        r"gptsh: stdin has more than 1\.\d MB, but the window is 8,000 tokens: --truncate .*\n",
        error,
    )
    (lab.cwd / "long.txt").write_text("some words\n" * 500_000)
    assert lab.run("-f", "long.txt", "sum it up").stderr.startswith(
        "gptsh: long.txt has more than 1."
    )
    model.say("cut", model="m")
    assert lab.run("-f", "long.txt", "--truncate", "head", "sum it up").code == 0


def test_words_that_are_no_utf_8_are_said_to_be_none(lab: Home) -> None:
    command = [*COMMAND, b"caf\xe9"]
    done = subprocess.run(
        command, env=lab.env, cwd=lab.cwd, capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 0
    assert done.stderr.startswith(b"gptsh: not valid UTF-8: the prompt (")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_import_that_waits_for_a_silent_pipe_ends_by_a_signal(home: Home, signum: int) -> None:
    process = home.start("--import-session", "-", stdin=subprocess.PIPE)
    process.stdin.write(b"[")
    process.stdin.flush()
    wait_until(lambda: not unread_bytes(process.stdin))
    process.send_signal(signum)
    assert process.wait(timeout=5) == -signum
    assert process.stderr.read() == b""


def test_a_run_that_waits_for_its_pipe_knows_what_another_run_has_saved_meanwhile(
    home: Home, model: ModelServer, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    command = f"touch {begun}; sleep 1; echo key"
    home.configure(
        lab_config(model).replace(
            "[providers.lab]", f"[providers.lab]\napi_key_command = {command!r}"
        )
    )
    home.run("-m", "echo", "-s", "@plan", "first")
    process = home.start("-s", "@plan", "-m", "lab/m", "third", stdin=subprocess.PIPE)
    wait_until(begun.exists)
    home.run("-m", "echo", "-s", "@plan", "second")
    process.communicate(b"piped")
    asked = [
        message["content"] for message in model.sent[-1]["messages"] if message["role"] == "user"
    ]
    assert asked[:2] == ["first", "second"]


@pytest.mark.slow
def test_a_run_that_waits_for_its_pipe_uses_the_agent_that_another_run_has_chosen(
    lab: Home,
) -> None:
    lab.configure('[agents.default]\nmodel = "echo"\n[agents.b]\nmodel = "echo/b"\n')
    lab.run("-s", "@plan", "first")
    process = lab.start("-s", "@plan", "third", stdin=subprocess.PIPE)
    assert process.stderr
    read_until(process.stderr, WAITING)
    lab.run("-s", "@plan", "-a", "b", "second")
    process.communicate(b"piped")
    [doc] = lab.docs()
    assert doc["agent"]["name"] == "b"
    assert doc["messages"][-1]["model"] == "echo/b"
