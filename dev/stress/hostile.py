"""Attacks by session files, imports, configurations, answers and tool servers; escapes on a terminal; leaked keys."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from dev.stress.table import Row, Table
from tests.support.histories import put, session
from tests.support.home import COMMAND, Home, lab_config
from tests.support.server import ModelServer, chunk, event
from tests.support.sessions import in_lines
from tests.support.terminal import Terminal
from tests.support.tools import BAD

SECONDS, MIB = 15.0, 100  # the limits of each attack
_OUR_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[mKJAHlhGCDBdr]|\x1b[=>78]|\x1b\(B")  # that gptsh writes
_BAD = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;taken\x07\x1b[2J\x9b31m\u202eevil\u2066\x08\r"
KEY = "sk-Planted/Key+0123456789abcdef"


# The peak of a child includes the memory of its parent at the start, so a small process starts the child.
_LAUNCHER = """
import os, signal, sys
child = os.posix_spawn(sys.argv[3], sys.argv[3:], os.environ)
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
_, status, usage = os.wait4(child, 0)
os.write(int(sys.argv[1]), b"%d" % usage.ru_maxrss)
code = os.waitstatus_to_exitcode(status)
os._exit(code if code >= 0 else 128 - code)
"""


class Result(NamedTuple):
    """The exit code of a run, its output, its seconds and its peak memory in MiB."""

    code: int
    out: bytes
    err: bytes
    seconds: float
    memory: float


class Attack(NamedTuple):
    """One attack: its preparation, and the arguments of the command that is attacked.

    ``refusal``: the exit code that the command must have, with nothing on stdout; None: any code of gptsh.
    """

    name: str
    prepare: Callable[[Home, ModelServer], object]
    args: tuple[str, ...]
    refusal: int | None = None


def run(home: Home, args: tuple[str, ...], seconds: float = 3 * SECONDS) -> Result:
    """Run gptsh in a new process; kill it after so many seconds."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as peak,
    ):
        started = time.monotonic()
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _LAUNCHER,
            str(peak.fileno()),
            str(seconds),
            *COMMAND,
            *args,
        ]
        process = subprocess.Popen(
            command, env=home.env, cwd=home.cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            pass_fds=(peak.fileno(),),
        )  # fmt: skip
        process.wait()
        elapsed = time.monotonic() - started
        output = [os.pread(file.fileno(), 1 << 22, 0) for file in (out, err)]
        memory = int(os.pread(peak.fileno(), 100, 0))
    return Result(process.returncode, *output, elapsed, memory / 1024)


@contextlib.contextmanager
def world() -> Iterator[tuple[Home, ModelServer]]:
    """A temporary home and its model server."""
    folder = Path(tempfile.mkdtemp(prefix="gptsh-hostile-"))
    home, model = Home(folder), ModelServer()
    home.configure(lab_config(model))
    try:
        yield home, model
    finally:
        home.end()
        model.close()
        subprocess.run(["rm", "-rf", folder], check=False)  # rmtree recurses as deep as the folders


# ---- files


def _file(name: str, write: Callable[[Path], object]) -> Callable[[Home, ModelServer], object]:
    def prepare(home: Home, _model: ModelServer) -> None:
        put(home, session(messages=[{"id": "m", "role": "user", "content": "hi"}]))
        write(home.sessions / name)

    return prepare


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def _session_of(**keys: Any) -> Callable[[Path], object]:
    doc = session(messages=[{"id": "m", "role": "user", "content": "hi"}]) | {"id": "evil"} | keys
    return lambda path: path.write_text(json.dumps(doc))


_NAME = "20300101-000000-evil.json"
_FILES: dict[str, Callable[[Path], object]] = {
    "a session is a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a session is a sparse file of 3 GB": _sparse,
    "a session is a pipe without a writer": lambda path: os.mkfifo(path),
    "a session is a folder": lambda path: path.mkdir(),
    "a session is a link to itself": lambda path: path.symlink_to(path),
    "a session of 200,000 brackets": lambda path: path.write_text("[" * 200_000),
    "a session with an object 100,000 deep": lambda path: path.write_text(
        '{"version":1,"x":' * 100_000
    ),
    "a session that is not UTF-8": lambda path: path.write_bytes(b'{"version":1,"id":"\xff\xfe"}'),
    "a title of 100 MB": _session_of(title="x" * 100_000_000),
    "a million tags": _session_of(meta={"tags": [f"t{number}" for number in range(1_000_000)]}),
    "50,000 empty answers": _session_of(messages=[{"role": "assistant", "content": ""}] * 50_000),
    "a number of 5,000 digits": lambda path: path.write_text('{"version":' + "9" * 5000 + "}"),
}
_READS = (
    ("--list-sessions",),
    ("--search-sessions", "hi"),
    ("--usage",),
    ("--show-session", "evil"),
)


def _import(name: str, write: Callable[[Path], object]) -> Callable[[Home, ModelServer], object]:
    return lambda home, _model: write(home.cwd / name)


_IMPORTS: dict[str, Callable[[Path], object]] = {
    "an import from /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "an import of 200,000 brackets": lambda path: path.write_text("[" * 200_000),
    "an import of 100,000 lines": lambda path: path.write_text(
        '{"role":"user","content":"x"}\n' * 100_000
    ),
    "an import of a line of 100 MB": lambda path: path.write_text(
        '{"role":"user","content":"' + "x" * 10**8 + '"}'
    ),
    "an import of an invalid database": lambda path: path.write_bytes(
        b"SQLite format 3\0" + b"\xff" * 100_000
    ),
}
_CONFIGS = {
    "a configuration of 10 MB": "x = 1\n" + "# " + "y" * 10_000_000,
    "a configuration 3,000 deep": "a = " + "[" * 3000,
    "a configuration that is binary": "\x00\x01\x02",
    "a command for a key that never ends, `--timeout 3`": '[agents.default]\nmodel = "lab/m"\n[providers.lab]\n'
    'base_url = "http://127.0.0.1:9/v1"\napi_key_command = "sleep 600"\n',
}

# ---- answers


def _answers(*steps: Any, **more: Any) -> Callable[[Home, ModelServer], object]:
    def prepare(_home: Home, model: ModelServer) -> None:
        for _ in range(9):
            model.script(*steps, **more)

    return prepare


_DONE = event(chunk({}, "stop")) + event(b"[DONE]")
_CALLS = [
    {"index": at, "id": f"c{at}", "function": {"name": "x", "arguments": "{}"}}
    for at in range(5_000)
]
_ANSWERS: dict[str, Callable[[Home, ModelServer], object]] = {
    "an answer of 50 MB in one event": _answers(event(chunk({"content": "x" * 50_000_000})), _DONE),
    "an answer of 100,000 events": _answers(event(chunk({"content": "x"})) * 100_000, _DONE),
    "100 MB without an end of line": _answers(b"x" * 100_000_000),
    "a million comments before the answer": _answers(
        b": wait\n\n" * 1_000_000, event(chunk({"content": "x"})), _DONE
    ),
    "5,000 tool calls": _answers(event(chunk({"tool_calls": _CALLS})), _DONE),
    "the arguments of a call in 40,000 pieces": _answers(
        event(
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": "x", "arguments": "["}}
                    ]
                }
            )
        )
        + event(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1,"}}]})) * 40_000,
        _DONE,
    ),
    "a call with an index of a billion": _answers(
        event(
            chunk(
                {
                    "tool_calls": [
                        {"index": 10**9, "id": "c", "function": {"name": "x", "arguments": "{}"}}
                    ]
                }
            )
        ),
        _DONE,
    ),
    "an event 100,000 deep": _answers(b'data: {"choices":' + b"[" * 100_000 + b"\n\n", _DONE),
    "a header of 1 MB": _answers(_DONE, headers={"x-long": "x" * 1_000_000}),
    "2,000 headers": _answers(_DONE, headers={f"x-{number}": "x" for number in range(2000)}),
    "an error of 50 MB": _answers(b"x" * 50_000_000, status=500, framing="length"),
    "a redirect to itself": _answers(b"", status=308, headers={"Location": "/v1/chat/completions"}),
    "escapes in an error": _answers(
        json.dumps({"error": {"message": EVIL}}).encode(),
        status=400,
        headers={"Content-Type": "application/json"},
    ),
}


_DRAWN: dict[str, Callable[[Home, ModelServer], object]] = {
    "a line of 10,000 blanks": _answers(event(chunk({"content": "a" + " " * 10_000 + "b"})), _DONE),
    "a paragraph of 30 MB": _answers(event(chunk({"content": "word " * 6_000_000})), _DONE),
}

# ---- prompts and attachments

_LAUGHS = "\n".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)
)


def _prompt_file(text: str) -> Callable[[Home, ModelServer], object]:
    def prepare(home: Home, _model: ModelServer) -> None:
        folder = home.config.parent / "agents"
        folder.mkdir(parents=True)
        (folder / "evil.md").write_text(text)

    return prepare


def _deep_folder(home: Home, _model: ModelServer) -> None:
    """Folders 1,500 deep, whose path is longer than the system allows."""
    script = (
        "import os\nfor _ in range(1500):\n    os.mkdir('deep')\n    os.chdir('deep')\n"
        "open('a.txt', 'w').write('hi')"
    )
    subprocess.run([sys.executable, "-c", script], cwd=home.cwd, check=True)


_GIVEN: dict[str, tuple[Callable[[Home, ModelServer], object], tuple[str, ...]]] = {
    "an agent's name of 300 letters": (lambda _home, _model: None, ("-a", "x" * 300, "hi")),
    "front matter whose aliases multiply": (
        _prompt_file(f"---\na0: &a0 [x]\n{_LAUGHS}\n---\n{{input}}\n"),
        ("-a", "evil", "hi"),
    ),
    "folders 1,500 deep, `-f`": (_deep_folder, ("-f", "deep", "hi")),
    "folders 1,500 deep, `--import-session`": (_deep_folder, ("--import-session", "deep")),
}


def _endless(window: int | None) -> Callable[[Home, ModelServer], object]:
    def prepare(home: Home, model: ModelServer) -> None:
        config = lab_config(model)
        if window is not None:
            config = config.replace(
                "[providers.lab]\n", f"[providers.lab]\ncontext_window = {window}\n"
            )
        home.configure(config)
        os.mkfifo(home.cwd / "pipe")
        home.started.append(
            subprocess.Popen(
                ["sh", "-c", "exec yes > pipe"], cwd=home.cwd, stderr=subprocess.DEVNULL
            )
        )

    return prepare


_ENDLESS = {
    "text without an end, of which 100 MB are read": _endless(None),
    "text without an end, for a window of 8,000 tokens that is known": _endless(8_000),
}


_UNCLOSED = {
    "a code block without its end": "Run this:\n```sh\nrm -rf build/\nrm -rf /",
    "a code block with the end of another": "````sh\nrm -rf build/\n```\nrm -rf /",
    "a code block that ends in the middle of its end": "```sh\nrm -rf build/\n``",
}


def _unclosed(text: str) -> Callable[[Home, ModelServer], object]:
    return lambda _home, model: model.say(text)


_LINE = "Der Füchs Nummer 12345 springt → und geht heim.\n"


def _long_answer(home: Home, model: ModelServer) -> None:
    text = _LINE * (200_000_000 // len(_LINE.encode()))
    answer = {"id": "a", "role": "assistant", "content": text, "model": "lab/m", "provider": "lab"}
    path = put(
        home, doc := session(messages=[{"id": "m", "role": "user", "content": "hi"}, answer])
    )
    path.write_bytes(in_lines(doc))
    # Fewer tokens than a quarter of the bytes: gptsh counts whether the server has truncated the prompt.
    model.say(
        "Short.",
        usage={"prompt_tokens": 45_000_000, "completion_tokens": 2, "total_tokens": 45_000_002},
    )


def _many_calls(home: Home, _model: ModelServer) -> None:
    messages: list[Any] = [{"role": "user", "content": "look at all files"}]
    for number in range(16_000):
        function = {
            "name": "read_file",
            "arguments": json.dumps({"path": f"src/module_{number}.py", "offset": number}),
        }
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append(
            {"role": "assistant", "content": f"I read **file {number}** now.", "tool_calls": [call]}
        )
        result = f"def f{number}(x):\n    return x + {number}\n"
        messages.append(
            {"role": "tool", "tool_call_id": f"c{number}", "name": "read_file", "content": result}
        )
    put(
        home, session(messages=[{"id": f"m{at}", **message} for at, message in enumerate(messages)])
    )


_LARGE: dict[str, tuple[Callable[[Home, ModelServer], object], tuple[tuple[str, ...], ...]]] = {
    "an answer of 200 MB": (
        _long_answer,
        (("-m", "lab/m", "-s", "0", "hi"), ("--search-sessions", "heim")),
    ),
    "a session of 16,000 tool calls": (
        _many_calls,
        (("--show-session", "0"), ("--show-session", "0", "--full")),
    ),
}


def _tools(mode: str) -> Callable[[Home, ModelServer], object]:
    def prepare(home: Home, model: ModelServer) -> None:
        text = f'[mcp.servers.bad]\ncommand = "{sys.executable}"\nargs = ["{BAD}", "{mode}"]\ntimeout = 3\n'
        home.configure(lab_config(model, '[sessions]\ntitles = "off"\n' + text))

    return prepare


def attacks() -> Table:
    """A row for each attack: the exit code, time and memory of the command."""
    cases = [Attack(name, prepare, ("hi",)) for name, prepare in _ANSWERS.items()]
    cases += [
        Attack(f"{name}, `-o markdown`", prepare, ("-o", "markdown", "hi"))
        for name, prepare in _DRAWN.items()
    ]
    cases += [Attack(name, prepare, args) for name, (prepare, args) in _GIVEN.items()]
    cases += [Attack(name, prepare, ("-f", "pipe", "hi")) for name, prepare in _ENDLESS.items()]
    cases += [
        Attack(name, _import("in", write), ("--import-session", "in"))
        for name, write in _IMPORTS.items()
    ]
    cases += [
        Attack(name, _configured(text), ("--timeout", "3", "hi")) for name, text in _CONFIGS.items()
    ]
    cases += [
        Attack(f"{name}, `-x`", _unclosed(text), ("-x", "hi"), refusal=5)
        for name, text in _UNCLOSED.items()
    ]
    for name, (prepare, commands) in _LARGE.items():
        cases += [Attack(f"{name}, `{' '.join(args)}`", prepare, args) for args in commands]
    modes = re.findall(r'MODE == "(\w+)"', BAD.read_text()) + re.findall(
        r'MODE in \("(\w+)"', BAD.read_text()
    )
    cases += [
        Attack(f"a tool server in mode `{mode}`", _tools(mode), ("--list-tools",)) for mode in modes
    ]
    heads = ("Attack", "Exit code", "Seconds", "MiB")
    rows = [_row(attack) for attack in cases]
    for name, write in _FILES.items():
        rows.append(
            _joined(name, [_row(Attack(name, _file(_NAME, write), args)) for args in _READS])
        )
    return Table("Attacks", _TEXT, heads, rows)


def _joined(name: str, rows: list[Row]) -> Row:
    """One row for several commands: all exit codes, the longest time and the most memory."""
    _, codes, seconds, memory = zip(*(row.cells for row in rows), strict=True)
    longest, most = max(map(float, map(str, seconds))), max(int(str(mib)) for mib in memory)
    return Row(
        (name, ", ".join(map(str, codes)), f"{longest:.1f}", most), all(row.held for row in rows)
    )


def _configured(text: str) -> Callable[[Home, ModelServer], object]:
    return lambda home, _: home.configure(text)


def _row(attack: Attack) -> Row:
    with world() as (home, model):
        attack.prepare(home, model)
        result = run(home, attack.args)
        held = (
            b"Traceback" not in result.err
            and result.code in (*range(7), 124)
            and result.seconds <= SECONDS
        )
        held = held and result.memory <= MIB + _extra_memory(attack)
        held = (
            held and attack.refusal in (None, result.code) and not (attack.refusal and result.out)
        )
        cells = (attack.name, result.code, f"{result.seconds:.1f}", f"{result.memory:.0f}")
        if not held:
            print(*cells, result.err[-150:], file=sys.stderr)
        return Row(cells, held)


def _extra_memory(attack: Attack) -> int:
    """MiB for input that must be read completely, of which there can be several copies."""
    if "200 MB" in attack.name:
        return 900
    return (
        600
        if re.search("MB|million|,000", attack.name)
        else 200
        if "tool server" in attack.name
        else 0
    )


_TEXT = f"""\
Each attack runs one command in a new process. The command must end by itself within {SECONDS:.0f} s and {MIB} MiB,
with an exit code of gptsh and without a traceback. Megabytes of input or thousands of items may need 600 MiB more, an
answer of 200 MB 900 MiB, and the SDK of tool servers 200. `-x` must print nothing of a code block without its end, with
exit code 5. Of a damaged session, the exit codes are those of a list, a search, `--usage` and `--show-session`."""

# ---- escapes on a terminal


def escapes() -> Table:
    """A row for each command that shows text of others; every field has escapes and overrides."""
    rows = []
    with world() as (home, model):
        put(home, _evil_session())
        home.configure(lab_config(model, _EVIL_CONFIG))
        for args in _SHOWING_COMMANDS:
            model.refuse(400, {"error": {"message": EVIL}}, model="m")
            model.say(EVIL, model="echoes")
            terminal = Terminal(home, *args, env={"PAGER": "cat", "LESS": ""}, columns=200)
            if "-r" in args:
                terminal.until(b"evil")
                terminal.write("\x1b")
            output, _ = terminal.close()
            shown = _OUR_ESCAPES.sub("", output.decode("utf-8", "replace"))
            passed = _BAD.findall(shown.replace("\r\n", "\n"))
            is_shown = "evil" in shown
            command = " ".join("EVIL" if arg == EVIL else arg for arg in args)
            rows.append(
                Row(
                    (f"`gptsh {command}`", "yes" if is_shown else "no", len(passed)),
                    is_shown and not passed,
                )
            )
        for args in _PIPED_COMMANDS:
            model.refuse(400, {"error": {"message": EVIL}}, model="m")
            model.say("an answer", finish=EVIL, model="ends")
            result = home.run(*args)
            shown = result.stderr if "hi" in args else result.stdout + result.stderr
            passed, is_shown = _BAD.findall(shown), "evil" in shown
            command = f"`gptsh {' '.join(args)}` in a pipe"
            rows.append(
                Row((command, "yes" if is_shown else "no", len(passed)), is_shown and not passed)
            )
    return Table(
        "Escapes on a terminal",
        _ESCAPES,
        ("Command", "Shown", "Control characters that passed"),
        rows,
    )


def _evil_session() -> dict[str, Any]:
    call = {"id": EVIL, "type": "function", "function": {"name": EVIL, "arguments": EVIL}}
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": EVIL, "source": EVIL}, {"type": "text", "text": EVIL}]},
        {"role": "assistant", "content": EVIL, "tool_calls": [call], "model": EVIL, "agent": EVIL, "provider": EVIL,
         "resolved_model": EVIL, "finish_reason": EVIL, "thinking": [{"type": "thinking", "thinking": EVIL}]},
        {"role": "tool", "content": EVIL, "tool_call_id": EVIL, "name": EVIL},
        {"role": "assistant", "content": _EVIL_MARKDOWN},
    ]  # fmt: skip
    identified = [
        {"id": f"m{at}", "timestamp": "2025-10-27T09:15:30.120Z", **m}
        for at, m in enumerate(messages)
    ]
    snapshot = {"name": EVIL, "message": "m3", "created_at": "2025-10-27T09:15:30.120Z"}
    return session(
        title=EVIL, messages=identified, agent={"name": EVIL, "model": EVIL, "system": EVIL}, provider={"name": EVIL},
        meta={"cwd": EVIL, "project": EVIL, "tags": [EVIL], "forked_from": {"id": EVIL, "message": EVIL}},
        context={"summaries": [], "snapshots": [snapshot], "consolidated": None},
    )  # fmt: skip


_EVIL_MARKDOWN = (
    f"# {EVIL}\n\n```{EVIL}\n{EVIL}\n```\n\n| {EVIL} | b |\n|---|---|\n| {EVIL} | x |\n"
)
_QUOTED = json.dumps(EVIL)
_EVIL_CONFIG = f"""[sessions]
titles = "off"
[agents.{_QUOTED}]
model = "lab/m"
description = {_QUOTED}
[mcp.servers.evil]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(BAD))}, "evil"]
"""
_SHOWING_COMMANDS = (
    ("--list-sessions",), ("--show-session", "7x2m"), ("--show-session", "7x2m", "--full"), ("--list-agents",),
    ("--search-sessions", "evil"), ("--usage",), ("-r",), ("--export-session", "7x2m", "--format", "markdown"),
    ("hi",), ("-m", "lab/echoes", "hi"), ("-m", "lab/echoes", "-o", "text", "hi"), ("-m", EVIL, "evil"),
    ("-s", EVIL, "evil"), ("-p", EVIL, "evil"), ("-f", EVIL, "evil"), ("-a", EVIL, "--dry-run", "evil"),
)  # fmt: skip
_PIPED_COMMANDS = (
    ("--list-sessions",), ("--search-sessions", "evil"), ("--usage",), ("--show-session", "7x2m"),
    ("--show-session", "7x2m", "--full"), ("--list-agents",), ("hi",), ("-m", "lab/ends", "hi"),
)  # fmt: skip
_ESCAPES = """\
Every field of a session and of a configuration contains escape sequences, C1 controls and bidirectional overrides. A
server sends them as its answer and as its error. Commands show them on a pseudo-terminal and in a pipe. In a pipe an
answer has them as the model sent it; lists, transcripts and stderr must have none."""

# ---- keys


def keys() -> Table:
    """A row for each place of a key: where any spelling of the key is found afterwards."""
    rows = []
    for place, (config, env, args) in _PLACES.items():
        for status in (200, 401):
            with world() as (home, model):
                home.configure(config.format(base=model.base_url, key=KEY))
                home.config.chmod(0o600)
                home.env |= {
                    name: value.format(base=model.base_url, key=KEY) for name, value in env.items()
                }
                leaks = []
                for spelling in _spellings():
                    for options in ((), ("-o", "jsonl"), ("--debug",), ("--dry-run", "-o", "json")):
                        model.forget()
                        if status == 200:
                            model.say(f"the key is not {spelling[:4]}")
                        else:
                            for _ in range(3):
                                model.refuse(status, {"error": {"message": f"bad key {spelling}"}})
                        result = home.run(*options, *(arg.format(key=KEY) for arg in args), "hi")
                        leaks += (
                            [" ".join(options) or "text"]
                            if _has_key((result.stdout + result.stderr).encode())
                            else []
                        )
                leaks += [path.name for path in _written_files(home) if _has_key(path.read_bytes())]
                cells = (
                    place,
                    status,
                    len(model.requests),
                    ", ".join(sorted(set(leaks))) or "nowhere",
                )
                rows.append(Row(cells, not leaks and bool(model.requests)))
    return Table(
        "Keys", _KEYS, ("Place of the key", "The server's status", "Requests", "Found in"), rows
    )


def _spellings() -> list[str]:
    escaped = json.dumps(KEY)[1:-1].replace("/", "\\/")
    return [
        KEY,
        KEY.upper(),
        quote(KEY, safe=""),
        escaped,
        "".join(f"\\u{ord(char):04x}" for char in KEY),
    ]


def _has_key(data: bytes) -> bool:
    text = unquote(data.decode("utf-8", "replace")).replace("\\/", "/").lower()
    with contextlib.suppress(UnicodeDecodeError):
        text += re.sub(r"\\+u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)
    return KEY.lower() in text


def _written_files(home: Home) -> Iterator[Path]:
    for path in home.folder.rglob("*"):
        if path.is_file() and path != home.config:
            yield path


_LAB = '[agents.default]\nmodel = "lab/m"\n[sessions]\ntitles = "off"\n[providers.lab]\nbase_url = "{base}"\n'
_PLACES: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "a variable": (_LAB + 'api_key_env = "LAB_KEY"\n', {"LAB_KEY": "{key}"}, ()),
    "`api_key_command`": (_LAB + 'api_key_command = "echo {key}"\n', {}, ()),
    "a header in the configuration": (_LAB + '[providers.lab.headers]\nx-token = "Bearer {key}"\n', {}, ()),
    "a parameter, `-p api_key=`": (_LAB, {}, ("-p", "api_key={key}")),
    "a provider's own variable": (
        '[sessions]\ntitles = "off"\n', {"OPENAI_API_KEY": "{key}", "OPENAI_BASE_URL": "{base}"},
        ("-m", "openai/gpt-4.1"),
    ),
}  # fmt: skip
_KEYS = """\
A key is in one place. One server answers, and another repeats the key in an error, in five spellings. The test searches
all output (text, JSONL, `--debug`, `--dry-run`) and all written files for the key."""
