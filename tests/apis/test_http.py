"""The way to a server: statuses, retries, timeouts, keys, proxies, certificates."""

import base64
import contextlib
import gzip
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
import zlib
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme

from gptsh.llm.tls import proxy_for
from gptsh.llm.wordings import retry_after
from tests.support.home import Home, lab_config, read_until, texts, wait_for_exit, wait_until
from tests.support.programs import needs
from tests.support.server import Cut, Hold, ModelServer, Script, answer, chunk, event
from tests.support.terminal import Terminal
from tests.support.tools import call, calling, configure

SECRET = "sk-very-secret-4711"


@pytest.mark.parametrize(
    ("status", "payload", "line"),
    [
        (401, {"error": {"message": f"bad key {SECRET}."}}, "lab refused the key (401): bad key ***: check LAB_KEY"),
        (403, {"detail": "no access for this key"}, "lab refused the key (403): no access for this key: check LAB_KEY"),
        (404, {"error": {"message": "no such model"}}, "does not know 'm' (404): no such model: check -m and base_url"),
        (422, {"detail": [{"msg": "extra", "loc": ["x"]}]}, "lab refused the request (422): extra"),
        (400, [{"error": {"code": 400, "message": "google", "status": "X"}}], "lab refused the request (400): google"),
        (418, b"<html>teapot</html>", "lab refused the request (418): <html>teapot</html>"),
        (307, b"", "redirects to https://elsewhere.test/: change base_url"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_exit_1_and_asked_once(
    home: Home, model: ModelServer, status: int, payload: object, line: str
) -> None:
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\n'))
    model.refuse(status, payload, {"Location": "https://elsewhere.test/"})
    run = home.run("hi", env={"LAB_KEY": SECRET})
    assert run.code == 1
    assert run.stdout == ""
    assert line in run.stderr.splitlines()[0]
    assert len(run.stderr.splitlines()) == 2
    assert SECRET not in run.stderr
    assert len(model.requests) == 1
    assert texts(home.doc()) == ["user: hi"]


@pytest.mark.parametrize(
    "spelled", ["SK-A/B+0123", "sk-a%2Fb%2b0123", "sk-a\\/b+0123", "sk-a\\u002fb\\u002B0123"]
)
@pytest.mark.parametrize("args", [(), ("-o", "jsonl"), ("--debug",)])
def test_a_key_that_a_server_repeats_in_another_spelling_is_masked(
    home: Home, model: ModelServer, spelled: str, args: tuple[str, ...]
) -> None:
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\n'))
    for given, env in (
        ((), {"LAB_KEY": "sk-a/b+0123"}),
        (("-p", "api_key=sk-a/b+0123"), {"LAB_KEY": "another"}),
    ):
        model.refuse(401, {"error": {"message": f"bad key {spelled}."}})
        run = home.run(*args, *given, "hi", env=env)
        assert run.code == 1
        assert spelled not in run.stdout + run.stderr
        assert "bad key ***: check" in run.stderr


BUSY = {"error": {"message": "slow down"}}
TOLD_NOT_TO = {"Retry-After": "0", "x-should-retry": "false"}
TOLD_TO = {"Retry-After": "0", "x-should-retry": "true"}


@pytest.mark.parametrize(
    ("refusals", "asked", "code"),
    [
        *(([(status, {"Retry-After": "0.01"}), (status, {"retry-after-ms": "5"})], 3, 0)
          for status in (408, 429, 500, 502, 503, 529)),
        ([(429, {"Retry-After": "0"})] * 3, 3, 1),
        ([(429, {"Retry-After": "31"})], 1, 1),
        ([(429, TOLD_NOT_TO)], 1, 1),
        ([(400, TOLD_TO)], 2, 0),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(
    lab: Home, model: ModelServer, refusals: list[tuple[int, dict[str, str]]], asked: int, code: int
) -> None:
    for status, headers in refusals:
        model.refuse(status, BUSY, headers)
    run = lab.run("hi")
    assert run.code == code
    assert len(model.requests) == asked
    assert run.stdout == ("" if code else "You said: hi\n")
    assert (f"({refusals[0][0]}): slow down" in run.stderr) == bool(code)


@pytest.mark.parametrize(
    "error", [{"code": 503, "message": "no"}, {"type": "overloaded_error", "message": "no"}]
)
def test_an_overload_inside_a_stream_is_tried_again_before_anything_was_shown(
    lab: Home, model: ModelServer, error: dict[str, Any]
) -> None:
    model.script(event({"error": error}))
    assert lab.run("hi").stdout == "You said: hi\n"
    assert len(model.requests) == 2
    model.script(event(chunk({"content": "half"})), event({"error": error}))
    assert lab.run("hi").code == 1
    assert len(model.requests) == 3


def test_a_refused_field_is_left_out_by_the_next_run_too(lab: Home, model: ModelServer) -> None:
    model.refuse(400, {"error": {"message": "extra fields not permitted: stream_options"}})
    for asked in (2, 3):
        assert lab.run("hi").code == 0
        assert len(model.requests) == asked
        assert "stream_options" not in model.sent[-1]
    assert "stream_options" in model.sent[0]


def test_retry_after_in_each_of_its_forms() -> None:
    assert retry_after({"retry-after": "2"}) == 2
    assert retry_after({"retry-after": "0.5", "retry-after-ms": "120"}) == pytest.approx(0.12)
    assert retry_after({"retry-after": formatdate(time.time() + 20, usegmt=True)}) == pytest.approx(
        20, abs=2
    )
    assert retry_after({"retry-after": formatdate(0)}) == 0
    for junk in ("soon", "", "²", "-1"):
        assert retry_after({"retry-after": junk}) is None
    assert retry_after({}) is None


@pytest.mark.parametrize(
    ("framing", "line"),
    [("chunked", "was lost"), ("close", "the stream ended before the answer was complete")],
)
def test_a_stream_cut_off_keeps_what_arrived_and_is_not_tried_again(
    lab: Home, model: ModelServer, framing: str, line: str
) -> None:
    model.script(event(chunk({"content": "half an "})), Cut, framing=framing)
    run = lab.run("go")
    assert run.stdout == "half an \n"
    assert run.code == 1
    assert line in run.stderr
    ident = lab.doc()["id"]
    assert f"the partial answer is saved: continue with 'gptsh -s {ident} PROMPT'" in run.stderr
    assert texts(lab.doc())[1] == "assistant: half an "
    assert lab.doc()["messages"][1]["finish_reason"] == "error"
    assert len(model.requests) == 1
    assert lab.run("-s", "0", "go on").code == 0
    assert [m["content"] for m in model.sent[1]["messages"]] == ["go", "half an ", "go on"]


WHOLE = [event(chunk({"content": "whole"})), event(chunk({}, "stop"))]
LIMITS: dict[str, tuple[str, list[Any], str, int, str]] = {
    "no first byte": ("first_byte_timeout = 0.2", [5.0], "", 124, "the question is saved"),
    "silence": (
        "idle_timeout = 0.2",
        [event(chunk({"content": "and "})), 5.0],
        "and \n",
        124,
        "timed out waiting for",
    ),
    "a slow beginning": ("idle_timeout = 0.2", [0.5, *WHOLE], "whole\n", 0, ""),
    "comments": ("idle_timeout = 1", [*[b": ping\n\n", 0.3] * 4, *WHOLE], "whole\n", 0, ""),
}


@pytest.mark.parametrize("framing", ["chunked", pytest.param("close", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_waiting(home: Home, model: ModelServer, name: str, framing: str) -> None:
    limit, steps, out, code, line = LIMITS[name]
    home.configure(
        lab_config(model, f'[sessions]\ntitles = "off"\n[network]\nretries = 0\n{limit}\n')
    )
    model.script(*steps, framing=framing)
    run = home.run("go")
    assert run.stdout == out
    assert run.code == code
    assert line in run.stderr
    kept = home.doc()["messages"][1:]
    assert [reply["finish_reason"] for reply in kept] == (
        [] if not out else ["timeout" if code else "stop"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("behind", [[25.0], [b": ping\n\n", 0.5] * 50], ids=["silence", "pings"])
def test_nothing_behind_a_whole_answer_is_waited_for(
    lab: Home, model: ModelServer, behind: list[Any]
) -> None:
    end = Hold()
    model.script(*WHOLE, *behind, end)
    assert lab.run("go") == ("whole\n", "", 0)
    assert not end.reached.is_set()
    assert lab.doc()["messages"][1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("more", "env", "header"),
    [
        ('api_key_env = "LAB_KEY"\n', {"LAB_KEY": SECRET}, "authorization"),
        (f"api_key_command = \"printf '{SECRET}\\\\nsecond line'\"\n", {}, "authorization"),
        (f'headers = {{ authorization = "Bearer {SECRET}" }}\n', {}, "authorization"),
        (f'headers = {{ Api-Key = "{SECRET}" }}\n', {}, "api-key"),
    ],
    ids=["api_key_env", "api_key_command", "authorization header", "custom header"],
)
def test_keys_reach_the_server_and_nothing_else(
    home: Home, model: ModelServer, more: str, env: dict[str, str], header: str
) -> None:
    home.configure(lab_config(model, more))
    echoed = {"error": {"message": f"{'x' * 380} key {SECRET} is bad"}}
    for status in (401, 400, 200):
        model.refuse(status, echoed)
    model.refuse(307, {}, {"Location": f"https://elsewhere.test/?key={SECRET}"})
    model.refuse(200, f"<html>{SECRET}</html>".encode())
    model.script(event(echoed))
    model.script(event(chunk({"content": "partial"})), event(SECRET.encode()))
    for _ in range(8):
        run = home.run("--debug", "-n", "hi", env=env)
        assert SECRET[:8] not in run.stdout + run.stderr
    assert {asked.headers[header].removeprefix("Bearer ") for asked in model.requests} == {SECRET}
    kept = b"".join(path.read_bytes() for path in home.state.rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert b"uthorization" not in kept


def test_ids_that_repeat_the_key_are_masked(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\n'))
    named = {
        "id": f"chatcmpl-{SECRET}",
        "model": f"m-{SECRET}",
        "choices": [{"delta": {"content": "Hi"}}],
    }
    events = [event(named), event(chunk({}, "stop")), event(b"[DONE]")]
    model.script(*events, headers={"X-Request-Id": f"req-{SECRET}"})
    run = home.run("-o", "json", "hi", env={"LAB_KEY": SECRET})
    assert run.code == 0
    assert SECRET not in run.stdout
    assert SECRET not in json.dumps(home.doc())
    assert home.doc()["messages"][1]["request_id"] == "req-***"


def test_an_id_that_repeats_the_key_is_masked_though_the_reader_has_left(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\n'))
    late = {"id": SECRET, "model": SECRET, "choices": [{"delta": {"content": "two\n" * 20_000}}]}
    hold = threading.Event()
    first = {"choices": [{"delta": {"content": "one\n"}}]}
    model.script(event(first), hold, event(late), event(b"[DONE]"))
    process = home.start("hi", env={"LAB_KEY": SECRET})
    assert process.stdout
    assert process.stdout.read(4) == b"one\n"
    process.stdout.close()
    hold.set()
    assert wait_for_exit(process) == 0
    assert home.doc()["messages"][1]["response_id"] == "***"
    assert home.doc()["messages"][1]["resolved_model"] == "***"


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"extra_body": {"api_key": SECRET}}, ""),
        ({"extra_headers": {"x-auth": f"Bearer {SECRET}"}}, ""),
        ({}, f"/{SECRET}"),
    ],
    ids=["extra_body", "extra_headers", "path"],
)
def test_secrets_nested_in_parameters_or_in_the_base_are_masked_in_errors(
    home: Home, model: ModelServer, params: dict[str, Any], path: str
) -> None:
    home.configure(lab_config(model, "").replace(model.base_url, f"{model.base_url}{path}"))
    given = [arg for key, value in params.items() for arg in ("-p", f"{key}={json.dumps(value)}")]
    model.refuse(404, {"error": {"message": f"bad {SECRET}"}})
    run = home.run("--debug", *given, "hi")
    assert run.code == 1
    assert SECRET not in run.stderr
    assert "***" in run.stderr


def test_an_error_that_repeats_one_word_takes_no_time(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    model.script(event({"error": {"message": "exceed" * 20_000}}))
    started = time.process_time()
    assert home.run("hi").code == 1
    assert time.process_time() - started < 3  # it was 23


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("exit 3", "exited with 3"),
        ("true", "printed no key"),
        ("printf 'a\\\\tb'", "characters that an HTTP header cannot"),
        ("yes key", "api_key_command of lab printed more than 65,536 bytes: run it by hand"),
    ],
)
def test_a_key_command_that_fails_is_exit_2(
    home: Home, model: ModelServer, command: str, line: str
) -> None:
    home.configure(lab_config(model, f'api_key_command = "{command}"\n'))
    run = home.run("hi")
    assert run.code == 2
    assert run.stdout == ""
    assert line in run.stderr
    assert not model.requests
    assert not home.state.exists()


@pytest.mark.parametrize("signum", [None, signal.SIGTERM])
def test_a_key_command_ends_with_the_run(
    home: Home, model: ModelServer, signum: int | None
) -> None:
    # A signal in the millisecond in which it is started would leave it running.
    command = "sleep 0.1; touch runs; sleep 60; echo x"
    home.configure(lab_config(model, f'api_key_command = "{command}"\n'))
    process = home.start(*([] if signum else ["--timeout", "1"]), "hi")
    wait_until((home.cwd / "runs").exists)
    if signum:
        process.send_signal(signum)
    process.communicate(timeout=10)  # its stderr ends with the last process that has it
    assert process.returncode == (-signum if signum else 124)


def test_a_key_command_may_ask_on_the_terminal(home: Home, model: ModelServer) -> None:
    command = "read -r key < /dev/tty; echo $key"
    home.configure(lab_config(model, f'api_key_command = "printf PIN: >&2; {command}"\n'))
    terminal = Terminal(home, "-o", "text", "hi")
    terminal.until(b"PIN:")
    terminal.write("sesame\n")
    assert terminal.until(b"You said: hi")
    assert terminal.close()[1] == 0
    assert model.requests[-1].headers["authorization"] == "Bearer sesame"


def test_a_dry_run_runs_no_key_command(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, 'api_key_command = "touch ran; echo key"\n'))
    run = home.run("--dry-run", "-o", "json", "hi")
    assert json.loads(run.stdout)["headers"]["authorization"] == "Bearer ***"
    assert not (home.cwd / "ran").exists()


def test_a_key_command_is_not_waited_for_in_the_background(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, 'api_key_command = "sleep 20 & echo $! > pid; printf key"\n'))
    started = time.monotonic()
    assert home.run("hi").stdout == "You said: hi\n"
    assert time.monotonic() - started < 10
    assert model.requests[-1].headers["authorization"] == "Bearer key"
    os.kill(int((home.cwd / "pid").read_text()), signal.SIGKILL)


def test_a_key_command_runs_once_and_leaves_stdin_alone(hosted: Home, model: ModelServer) -> None:
    command = '[providers.openai]\napi_key_command = "cat; echo x >> ran; echo key"\n'
    hosted.configure(hosted.config.read_text() + command)
    assert (
        hosted.run("with title", stdin="the prompt").stdout
        == "You said: with title\n\nthe prompt\n"
    )
    assert (hosted.cwd / "ran").read_text() == "x\n"
    wait_until(lambda: len(model.requests) == 2)


def test_a_list_of_one_providers_models_runs_no_other_key_command(
    home: Home, model: ModelServer
) -> None:
    tables = [
        f'[providers.{name}]\nbase_url = "{model.base_url}"\napi_key_command = "echo {name} >> ran; echo key"\n'
        for name in ("lab", "other")
    ]
    home.configure("".join(tables))
    model.pages["/v1/models"] = {"data": [{"id": "m"}, {"id": "lab/m"}]}
    listed = home.run("--list-models", "-m", "lab/").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["lab/m", "lab/lab/m"]
    assert (home.cwd / "ran").read_text() == "lab\n"
    assert "other/lab/m" in home.run("--list-models", "-m", "b/m").stdout


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("http://a.test/v1", {}, None),
        ("https://a.test/v1", {"HTTP_PROXY": "http://p:1"}, None),
        (
            "https://a.test/v1",
            {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"},
            "http://low:1",
        ),
        ("https://a.test/v1", {"ALL_PROXY": "p:1"}, "http://p:1"),
        ("https://a.test/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("https://a.test/v1", {"ALL_PROXY": "http://p:1", "no_proxy": "b.test, .test"}, None),
        ("https://a.test:8000/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "A.test:8000"}, None),
        ("http://10.1.2.3:8000", {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://localhost:11434/v1", {"ALL_PROXY": "http://p:1"}, None),
        ("http://[::1]:1/v1", {"ALL_PROXY": "http://p:1"}, None),
        (
            "http://[2001:db8::5]:8000",
            {"ALL_PROXY": "http://p:1", "NO_PROXY": "[2001:db8::5]:8000"},
            None,
        ),
        ("http://a.test", {"ALL_PROXY": "SOCKS5://p:1"}, "SOCKS5://p:1"),
    ],
)
def test_proxies_from_the_environment(url: str, env: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, env) == proxy


def test_a_request_goes_through_the_proxy(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace(model.base_url, "http://model.test/v1"))
    env = {"HTTP_PROXY": f"http://us%40er:p%3Aw@127.0.0.1:{model.port}", "GPTSH_NO_SAVE": "1"}
    assert home.run("hi", env=env) == ("You said: hi\n", "", 0)
    (asked,) = model.requests
    assert asked.path == "http://model.test/v1/chat/completions"
    assert (
        base64.b64decode(asked.headers["proxy-authorization"].removeprefix("Basic "))
        == b"us@er:p:w"
    )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def secure(model: ModelServer, authority: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    model.secure(context)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_server_is_believed_by_the_bundle_of_the_environment(
    home: Home, model: ModelServer, authority: trustme.CA, tmp_path: Path, variable: str
) -> None:
    secure(model, authority)
    home.configure(lab_config(model))
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    assert home.run("hi", env={variable: str(bundle)}) == ("You said: hi\n", "", 0)
    other = home.run("hi")
    assert other.code == 1
    assert "the TLS connection to localhost" in other.stderr
    missing = home.run("hi", env={variable: "/nowhere.pem"})
    assert missing.code == 2
    assert "/nowhere.pem" in missing.stderr


@needs("openssl")
@pytest.mark.parametrize("is_in", ["folder", "file"])
def test_the_systems_folder_of_certificates_is_read_before_its_file(
    home: Home,
    model: ModelServer,
    authority: trustme.CA,
    tmp_path: Path,
    is_in: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secure(model, authority)
    home.configure(lab_config(model))
    other = trustme.CA()
    folder = tmp_path / "certs"
    file = tmp_path / "certs.pem"
    folder.mkdir()
    (authority if is_in == "folder" else other).cert_pem.write_to_path(str(folder / "ca.pem"))
    subprocess.run(["openssl", "rehash", str(folder)], check=True)
    if is_in == "folder":
        file.write_text("reading this would fail")
    else:
        authority.cert_pem.write_to_path(str(file))
    system = ssl.get_default_verify_paths()._replace(cafile=str(file), capath=str(folder))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: system)
    assert home.run("hi") == ("You said: hi\n", "", 0)


@pytest.mark.parametrize(("framing", "connections"), [("chunked", 1), ("length", 1), ("close", 4)])
def test_the_rounds_of_a_turn_share_a_connection_if_the_server_allows_it(
    home: Home, model: ModelServer, authority: trustme.CA, framing: str, connections: int
) -> None:
    secure(model, authority)
    configure(home, model)
    authority.cert_pem.write_to_path(str(home.folder / "ca.pem"))
    home.env["SSL_CERT_FILE"] = str(home.folder / "ca.pem")
    for number in range(3):
        model.script(*calling(call("add", a=number, b=1)), framing=framing)
    model.script(*answer("Done."), framing=framing)
    assert home.run("add").stdout == "Done.\n"
    assert len(model.requests) == 4
    assert model.connections == connections


def test_a_kept_connection_that_the_server_has_closed_is_replaced(
    home: Home, model: ModelServer, authority: trustme.CA, tmp_path: Path
) -> None:
    secure(model, authority)
    model.idle_timeout = 0.05
    configure(home, model)
    authority.cert_pem.write_to_path(str(home.folder / "ca.pem"))
    home.env["SSL_CERT_FILE"] = str(home.folder / "ca.pem")
    model.script(*calling(call("hang", path=str(tmp_path / "hangs"))))
    model.script(*answer("Done."))
    process = home.start("wait")
    wait_until((tmp_path / "hangs").exists)
    time.sleep(0.2)
    (tmp_path / "hangs").unlink()
    assert process.communicate()[0] == b"Done.\n"
    assert len(model.requests) == 2
    # A third one, if the first was closed while the tool server started.
    assert model.connections in (2, 3)


@pytest.mark.parametrize("idle_timeout", [None, 0.05], ids=["kept", "closed by the server"])
def test_a_connection_is_open_before_the_question_is_complete(
    home: Home, model: ModelServer, authority: trustme.CA, idle_timeout: float | None
) -> None:
    secure(model, authority)
    model.idle_timeout = idle_timeout
    authority.cert_pem.write_to_path(str(home.folder / "ca.pem"))
    home.configure(lab_config(model))
    home.env["SSL_CERT_FILE"] = str(home.folder / "ca.pem")
    process = home.start("hi", stdin=subprocess.PIPE)
    wait_until(lambda: model.connections == 1)
    time.sleep(2 * (idle_timeout or 0))
    out, err = process.communicate(b"more")
    assert out.startswith(b"You said: hi")
    assert err == b""
    assert process.returncode == 0
    assert model.connections == (2 if idle_timeout else 1)
    assert len(model.requests) == 1


NO_WAY: dict[str, tuple[str, dict[str, str], str]] = {
    "no scheme": ("localhost:8000/v1", {}, "base_url"),
    "empty": ("", {}, "base_url"),
    "a port beyond all": ("http://model.test:99999/v1", {}, ""),
    "a CA bundle that is none": (
        "https://model.test/v1",
        {"SSL_CERT_FILE": "/etc/passwd"},
        "/etc/passwd",
    ),
    "a proxy without a host": ("http://model.test/v1", {"HTTP_PROXY": "http://u:s3cret@"}, ""),
    "a proxy of another kind": (
        "http://model.test/v1",
        {"HTTP_PROXY": "ftp://127.0.0.1:9"},
        "model.test",
    ),
    "SOCKS": ("http://model.test/v1", {"ALL_PROXY": "socks5://127.0.0.1:9"}, "SOCKS"),
    "a proxy by TLS": ("http://model.test/v1", {"ALL_PROXY": "https://127.0.0.1:9"}, "http://"),
}


@pytest.mark.parametrize("name", NO_WAY)
def test_a_way_that_cannot_work_is_exit_2_before_anything_is_saved(home: Home, name: str) -> None:
    base, env, named = NO_WAY[name]
    home.configure(f'[providers.lab]\nbase_url = "{base}"\n')
    for args in ([], ["--debug"]):
        run = home.run("-m", "lab/m", *args, "hi", env=env)
        assert run.code == 2
        assert run.stdout == ""
        assert named in run.stderr
        assert "s3cret" not in run.stderr
        assert args or run.stderr.count("\n") == 1
    assert not home.state.exists()


@pytest.mark.parametrize(
    ("base", "proxy", "line"),
    [
        (
            "http://127.0.0.1:9/v1",
            "",
            "gptsh: cannot connect to 127.0.0.1:9: is the server running",
        ),
        ("http://no-such-host.invalid/v1", "", "no-such-host.invalid"),
        (
            "http://model.test/v1",
            "http://127.0.0.1:9",
            "the proxy for model.test cannot be reached",
        ),
    ],
)
def test_where_nobody_is_the_question_is_kept_and_the_line_says_where(
    home: Home, base: str, proxy: str, line: str
) -> None:
    home.configure(f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{base}"\n')
    run = home.run("hi", env={"ALL_PROXY": proxy})
    assert run.code == 1
    assert run.stdout == ""
    assert line in run.stderr.splitlines()[0]
    assert texts(home.doc()) == ["user: hi"]


@pytest.mark.parametrize(
    "tail", [[Cut], [b"data: {garb", Cut], []], ids=["reset", "cut in the usage", "left out"]
)
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_lost_tail_takes_nothing_from_a_complete_answer(
    lab: Home, model: ModelServer, tail: list[object], framing: str
) -> None:
    usage = event(
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    )
    model.script(
        event(chunk({"content": "whole"})), event(chunk({}, "stop")), usage, *tail, framing=framing
    )
    assert lab.run("go") == ("whole\n", "", 0)
    assert lab.doc()["messages"][1]["usage"]["total"] == 7


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nx",
        b"HTTP/9.9 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 429 No\r\nRetry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_no_bytes_of_a_server_end_in_a_traceback(home: Home, head: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_all, args=(listener, head), daemon=True).start()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        home.configure(f'[providers.lab]\nbase_url = "{base}"\n[network]\nretries = 1\n')
        run = home.run("-m", "lab/m", "hi")
    assert run.code == 1
    assert "Traceback" not in run.stderr
    assert texts(home.doc()) == ["user: hi"]


def _answer_all(listener: socket.socket, head: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(head)


def test_a_proxy_that_says_back_its_login_shows_none(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace(model.base_url, "http://model.test/v1"))
    login = base64.b64encode(b"bobby:pw@SECRET").decode()
    model.refuse(407, {"error": f"proxy-authorization: Basic {login}"})
    env = {"HTTP_PROXY": f"http://bobby:pw%40SECRET@127.0.0.1:{model.port}"}
    run = home.run("--no-save", "--debug", "hi", env=env)
    assert run.code == 1
    assert "Basic ***" in run.stderr
    assert login not in run.stderr


def test_a_dry_run_masks_a_key_of_any_length_and_secret_parameters(
    home: Home, model: ModelServer
) -> None:
    own = 'api_key_env = "LAB_KEY"\nheaders = { X-Team = "ab", User-Agent = "mine" }\n'
    home.configure(lab_config(model, own))
    headers = '{"Authorization": "secret-value", "x-api-key": "secret-value"}'
    args = ["-p", "api_key=secret-value", "-p", f"extra_headers={headers}", "-p", "max_tokens=7"]
    run = home.run("--dry-run", "-o", "json", *args, "hi", env={"LAB_KEY": "k1"})
    assert "secret-value" not in run.stdout
    told = json.loads(run.stdout)
    assert told["headers"] == {
        "content-type": "application/json", "user-agent": "***", "x-team": "***", "authorization": "Bearer ***",
    }  # fmt: skip
    body = told["body"]
    assert body["api_key"] == "***"
    assert body["max_tokens"] == 7
    assert body["extra_headers"] == {"Authorization": "***", "x-api-key": "***"}


def test_a_refusal_that_comes_before_all_of_a_large_request_was_read_is_shown_once(
    home: Home, tmp_path: Path
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def refuse() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the test is over
                return
            with connection:
                seen.append(connection.recv(1000))
                body = b'{"error": {"message": "request too large"}}'
                head = b"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                connection.sendall(head % len(body) + body)
                connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=refuse, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    home.configure(f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{url}"\n')
    large = tmp_path / "large.txt"
    large.write_text("a line of words\n" * 1_000_000)
    run = home.run("-f", str(large), "sum up")
    listener.close()
    assert "request too large" in run.stderr
    assert len([head for head in seen if head.startswith(b"POST /v1/chat")]) == 1


# ---- compression, which gptsh does not ask for


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def compressed(form: int, *events: bytes) -> list[bytes]:
    """Events as a gateway compresses them: each is flushed as it comes. ``form`` as in ``zlib.compressobj``."""
    stream = zlib.compressobj(wbits=form)
    flushed = [stream.compress(event) + stream.flush(zlib.Z_SYNC_FLUSH) for event in events]
    return [*flushed, stream.flush()]


FORMS = {
    "gzip": ("gzip", 31),
    "deflate": ("deflate", 15),
    "raw deflate": ("deflate", -15),
    "x-gzip": ("X-GZIP", 31),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 1000])
def test_an_answer_that_a_gateway_compresses_unasked_is_decompressed(
    lab: Home, model: ModelServer, form: str, size: int
) -> None:
    encoding, bits = FORMS[form]
    body = b"".join(compressed(bits, *answer("first ", "secönd")))
    model.script(*pieces(body, size), headers={"Content-Encoding": encoding})
    run = lab.run("hi")
    assert run.stdout == "first secönd\n"
    assert run.stderr == ""
    assert run.code == 0


def test_a_compressed_answer_is_shown_as_it_arrives(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    events = compressed(31, *answer("first ", "second"))
    model.script(*events[:2], hold, *events[2:], headers={"Content-Encoding": "gzip"})
    process = lab.start("hi")
    read_until(process.stdout, b"first ")
    hold.set()
    assert process.communicate() == (b"second\n", b"")


def test_gzip_of_several_streams_is_one_body(lab: Home, model: ModelServer) -> None:
    body = b"".join(map(gzip.compress, answer("whole")))
    model.script(body, headers={"Content-Encoding": "gzip"}, framing="length")
    assert lab.run("hi").stdout == "whole\n"


def test_a_compressed_refusal_and_a_compressed_list_are_read(lab: Home, model: ModelServer) -> None:
    packed = {"Content-Encoding": "gzip"}
    model.refuse(400, gzip.compress(b'{"error":{"message":"no such thing"}}'), packed)
    assert "lab refused the request (400): no such thing" in lab.run("hi").stderr
    model.pages["/v1/models"] = Script(
        200, packed, (gzip.compress(b'{"data":[{"id":"big"}]}'),), "length"
    )
    assert "lab/big" in lab.run("--list-models").stdout


@pytest.mark.parametrize(
    ("encoding", "body", "line"),
    [
        ("gzip", b"".join(compressed(31, *answer("gone"))[:2]), "was lost"),
        ("gzip", b"no gzip at all", "cannot decompress the response of "),
        ("br", b"\x0b\x02\x80", "compressed its response with br, which is not supported"),
    ],
)
def test_a_compressed_answer_that_cannot_be_read_is_exit_1(
    lab: Home, model: ModelServer, encoding: str, body: bytes, line: str
) -> None:
    for _ in range(2):
        model.script(body, headers={"Content-Encoding": encoding}, framing="length")
    run = lab.run("hi")
    assert run.code == 1
    assert line in run.stderr.splitlines()[0]


def test_a_small_list_that_expands_to_gigabytes_is_read_up_to_its_limit(
    lab: Home, model: ModelServer
) -> None:
    stream = zlib.compressobj(wbits=31)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(300)) + stream.flush()
    model.pages["/v1/models"] = Script(200, {"Content-Encoding": "gzip"}, (bomb,), "length")
    tracemalloc.start()
    run = lab.run("--list-models")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "lab: lab does not list its models" in run.stderr
    assert peak < 200_000_000  # the limit of a list is 32 MB
