"""Images, PDF documents and audio: recognised, kept, shown, sent in each provider's shape, or refused."""

import base64
import io
import json
import struct
import wave
from typing import Any

import pytest

from tests.support.attached import make_pdf, make_png
from tests.support.dry import KEYS, dry_run
from tests.support.home import Home, lab_config
from tests.support.messages import text
from tests.support.server import ModelServer


def a_gif(width: int = 1, height: int = 1) -> bytes:
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0\xff\xff\xff\0\0\0" + frame


def a_wav(length: float = 0.1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(8000)
        recording.writeframes(bytes(int(16_000 * length)))
    return file.getvalue()


FRAME = b"\xff\xfb\x90\x64" + bytes(413)  # 128 kbit/s, 44,100 Hz: 417 bytes, 26 ms
MP3 = b"ID3\4\0\0\0\0\0\5TSSE\0" + FRAME * 3
WEBP = (
    b"RIFF" + struct.pack("<I", 19) + b"WEBPVP8L" + struct.pack("<I", 7) + b"\x2f\0\0\0\0\x10\x07"
)
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xc0\0\x0b\x08\0\1\0\1\1\1\x11\0\xff\xd9"
FILES: dict[str, tuple[bytes, str]] = {
    "a.png": (make_png(), "image/png"),
    "a.jpg": (JPEG, "image/jpeg"),
    "a.gif": (a_gif(), "image/gif"),
    "a.webp": (WEBP, "image/webp"),
    "a.pdf": (make_pdf(), "application/pdf"),
    "behind-a-mark.pdf": (b"\xef\xbb\xbf" + make_pdf() + bytes(9), "application/pdf"),
    "a.wav": (a_wav(), "audio/wav"),
    "a.mp3": (MP3, "audio/mpeg"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_first_bytes_tell_what_a_file_is(home: Home, name: str) -> None:
    data, media_type = FILES[name]
    run = home.run("-m", "echo", "--no-save", "hi", stdin=data)
    assert run.stdout.startswith(f"You said: hi\n\n[{media_type}, ")


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        (make_png(), 1500, 1700),
        (make_pdf(3, more=9000), 2000, 2200),
        (make_pdf(3, more=120_000), 6000, 6200),
    ],
    ids=["an image", "a short document", "a longer one"],
)
def test_an_attachment_is_counted_with_a_flat_figure(
    home: Home, data: bytes, least: int, most: int
) -> None:
    run = home.run("-m", "echo", "--dry-run", "-o", "json", "look", stdin=data)
    assert least <= json.loads(run.stdout)["context"]["tokens"] <= most


def test_words_then_files_in_their_order_then_stdin(lab: Home, model: ModelServer) -> None:
    model.say("seen")
    for name in ("a.png", "a.pdf", "a.mp3"):
        (lab.cwd / name).write_bytes(FILES[name][0])
    (lab.cwd / "notes.txt").write_text("some notes\n")
    args = [arg for name in ("a.pdf", "notes.txt", "a.png", "a.mp3") for arg in ("-f", name)]
    assert lab.run(*args, "what", "is this", stdin=a_wav()) == ("seen\n", "", 0)
    data = {name: base64.b64encode(found).decode() for name, (found, _) in FILES.items()}
    pdf = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data['a.pdf']}"}
    assert model.sent[-1]["messages"] == [{"role": "user", "content": [
        {"type": "text", "text": "what is this"},
        {"type": "file", "file": pdf},
        {"type": "text", "text": "notes.txt:\nsome notes\n"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data['a.png']}"}},
        {"type": "input_audio", "input_audio": {"data": data["a.mp3"], "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": data["a.wav"], "format": "wav"}},
    ]}]  # fmt: skip
    stored = lab.doc()["messages"][0]["content"]
    assert [part.get("source") for part in stored] == [
        None,
        "a.pdf",
        "notes.txt",
        "a.png",
        "a.mp3",
        "stdin",
    ]
    assert lab.doc()["stats"]["preview"] == "what is this: notes.txt"
    shown = lab.run("--show-session", "0").stdout
    for name in ("a.png", "a.pdf", "a.mp3"):
        assert f"\n`[{name}, {FILES[name][1]}, " in shown
    assert f"`[stdin, audio/wav, {len(a_wav()) / 1000:.1f} kB]`\n" in shown
    assert data["a.pdf"][:20] not in shown
    assert (
        json.loads(lab.run("--show-session", "0", "-o", "json").stdout)["messages"]
        == lab.doc()["messages"]
    )


def test_a_byte_order_mark_before_a_text_is_not_sent(home: Home) -> None:
    (home.cwd / "a.txt").write_bytes(b"\xef\xbb\xbfone\xef\xbb\xbf")
    run = home.run("-m", "echo", "--no-save", "-f", "a.txt", stdin=b"\xef\xbb\xbftwo")
    assert run.stdout == "You said: a.txt:\none\ufeff\n\ntwo\n"


def test_an_attachment_alone_is_a_question_with_a_preview_and_no_title(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, more=""))
    model.say("a dot")
    assert home.run(stdin=make_png()) == ("a dot\n", "", 0)
    assert len(model.requests) == 1  # no title was asked for
    assert home.doc()["title"] is None
    assert home.doc()["stats"]["preview"] == f"[image/png, {len(make_png())} bytes]"


def test_an_empty_file_alone_is_no_prompt(lab: Home, model: ModelServer) -> None:
    for name, data in (("empty.txt", ""), ("blank.txt", " \n")):
        (lab.cwd / name).write_text(data)
    line = "gptsh: no prompt: add a prompt, or pipe text in; gptsh -h shows how\n"
    assert lab.run("-f", "empty.txt", "-f", "blank.txt", " ", stdin="\n") == ("", line, 2)
    assert not lab.state.exists()
    model.say("fine")
    assert lab.run("-f", "empty.txt", "is it empty?").stdout == "fine\n"
    assert lab.run("-f", "empty.txt", "-s", "0").code == 2
    assert len(model.requests) == 1


def test_more_than_can_be_sent_is_one_line(lab: Home, model: ModelServer) -> None:
    for name in ("a.png", "b.png"):
        with open(lab.cwd / name, "wb") as file:
            file.write(make_png())
            file.truncate(30_000_000)
    line = "gptsh: with b.png the attachments are 60.0 MB: "
    line += "at most 50.0 MB of images, PDF, audio and video can be sent\n"
    assert lab.run("-f", "a.png", "-f", "b.png", "hi") == ("", line, 2)
    with open(lab.cwd / "a.png", "r+b") as file:
        file.truncate(200_000_000)
    assert "gptsh: a.png is larger than 100.0 MB: " in lab.run("-f", "a.png", "hi").stderr
    assert not lab.state.exists()
    assert not model.requests


def test_a_model_that_is_known_not_to_take_it_is_not_asked(home: Home) -> None:
    (home.cwd / "a.png").write_bytes(make_png())
    run = home.run("-m", "openai/o3-mini", "-f", "a.png", "look", stdin=a_wav(), env=KEYS)
    gone = "gptsh: nothing was saved: pipe the input in again\n"
    assert run == (
        "",
        f"gptsh: openai/o3-mini does not accept images: choose another model with -m\n{gone}",
        2,
    )
    for model, data, what in (
        ("anthropic/claude-sonnet-4-5", a_wav(), "audio"),
        ("ollama/qwen3", make_pdf(), "PDF documents"),
    ):
        run = home.run("-m", model, "look", stdin=data, env=KEYS)
        assert run == (
            "",
            f"gptsh: {model} does not accept {what}: choose another model with -m\n{gone}",
            2,
        )
    assert not home.state.exists()


def test_what_an_older_question_carries_is_kept_and_told_in_words(
    home: Home, model: ModelServer
) -> None:
    config = lab_config(model).replace(
        "[sessions]", f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]'
    )
    home.configure(config)
    for said in ("one", "two", "three"):
        model.say(said)
    home.run("look", stdin=make_png())
    home.run("-s", "0", "listen", stdin=a_wav())
    before = home.doc()["messages"]
    run = home.run("-s", "0", "-m", "openai/o3-mini", "and?", env=KEYS)
    line = "gptsh: 1 attachment not sent: openai/o3-mini does not accept images\n"
    assert run == ("three\n", line, 0)
    image, _, sound, _, question = model.sent[2]["messages"]
    place = (
        f"[gptsh: image/png, {len(make_png())} bytes, not sent: this model does not accept images]"
    )
    assert image == {"role": "user", "content": f"look\n\n{place}"}
    assert sound["content"][1]["type"] == "input_audio"
    assert question["content"] == "and?"
    assert home.doc()["messages"][:4] == before


URL = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
TIFF = {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "SUkq"}}
PDF_BY_URL = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "anthropic/claude-sonnet-4-5",
            "2 attachments {}anthropic/claude-sonnet-4-5 does not accept images in that form",
        ),
        (
            "ollama/m",
            "2 attachments {}ollama/m does not accept PDF documents or images in that form",
        ),
        ("lab/m", "1 attachment {}lab/m does not accept PDF documents in that form"),
        ("mistral/m", ""),
    ],
)
def test_what_cannot_be_said_to_a_model_is_noted(home: Home, name: str, told: str) -> None:
    asked = dry_run(
        home, name, {"role": "user", "content": [text("hi"), URL, TIFF, PDF_BY_URL]}, SAID
    )
    assert asked.stderr == (f"gptsh: {told.format('not sent: ')}\n" if told else "")


DATA = base64.b64encode(make_png()).decode()
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
PNG_URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
TEXT = {"type": "text", "text": "look"}
PDF_DATA = base64.b64encode(make_pdf()).decode()
PDF_URL = f"data:application/pdf;base64,{PDF_DATA}"
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA},
}
WAV_DATA = base64.b64encode(a_wav()).decode()
WAV = {"type": "input_audio", "input_audio": {"data": WAV_DATA, "format": "wav"}}
SAID = {"role": "assistant", "content": "ok"}


def unsent(what: str, why: str = "this API does not accept it") -> str:
    return f"[gptsh: {what}, not sent: {why}]"


@pytest.mark.parametrize(
    ("part", "shape"),
    [
        ({**PNG_URL, "source": "a.png"}, PNG_URL),
        (PNG, PNG_URL),
        ({**PNG, "source": {"type": "url", "url": "https://x/y.png"}},
         {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        (PDF, {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF_URL}}),
        ({**PDF, "title": "A report", "context": "of 2026"},
         {"type": "file", "file": {"filename": "A report.pdf", "file_data": PDF_URL}}),
    ],
)  # fmt: skip
def test_a_part_as_openai_has_it(home: Home, part: Any, shape: Any) -> None:
    asked = {"role": "user", "content": [TEXT, part]}
    assert dry_run(home, "lab/m", asked, SAID).messages[0]["content"] == [TEXT, shape]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "document", "source": {"type": "text", "data": "words"}, "title": "T"}, "T:\nwords"),
        ({"type": "text", "text": "A", "source": "a.txt"}, "a.txt:\nA"),
        ({"x": 1}, unsent("a part")),
        *(({"type": kind}, unsent(kind)) for kind in ("text", "document", "image_url", "file", "audio", "thinking")),
        ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, unsent("image")),
    ],
)  # fmt: skip
def test_a_part_that_becomes_text_goes_as_text_does(home: Home, part: Any, words: str) -> None:
    alone = {"role": "user", "content": [TEXT, part]}
    beside = {"role": "user", "content": [part, PNG]}
    messages = dry_run(home, "lab/m", alone, SAID, beside, SAID).messages
    assert messages[0]["content"] == f"look\n\n{words}"
    assert messages[2]["content"] == [text(words), PNG_URL]


def test_mistral_has_a_shape_of_its_own_for_documents_and_audio(home: Home) -> None:
    pdf = {"type": "document_url", "document_url": PDF_URL}
    sound = {"type": "input_audio", "input_audio": WAV_DATA}
    asked = {"role": "user", "content": [PDF, PNG, WAV]}
    assert dry_run(home, "mistral/m", asked, SAID).messages[0]["content"] == [pdf, PNG_URL, sound]


SHOOT = {"name": "shot", "arguments": "{}"}
CALLS: Any = {"role": "assistant", "content": None,
              "tool_calls": [{"id": key, "type": "function", "function": SHOOT} for key in "ab"]}  # fmt: skip
SHOT: Any = {
    "role": "tool",
    "tool_call_id": "a",
    "name": "shot",
    "content": [TEXT, PNG],
    "is_error": False,
    "raw": {},
}
PLAIN: Any = {"role": "tool", "tool_call_id": "b", "content": "fine"}
LABEL = text("image of the tool result above (shot):")


def test_an_image_that_a_tool_gave_goes_behind_the_results(home: Home) -> None:
    go = {"role": "user", "content": "go"}
    in_words = f"look\n[image/png, {len(make_png())} bytes]"
    messages = dry_run(home, "lab/m", go, CALLS, SHOT, PLAIN, SAID).messages
    assert [m["content"] for m in messages[2:5]] == [in_words, "fine", [LABEL, PNG_URL]]
    joined = dry_run(home, "lab/m", go, CALLS, SHOT, PLAIN).messages[4]
    assert joined["content"] == [LABEL, PNG_URL, text("and now?")]
    to_one_that_takes_none = dry_run(home, "deepseek/deepseek-v4-pro", go, CALLS, SHOT, PLAIN)
    assert to_one_that_takes_none.messages[2]["content"].endswith(
        "not sent: this model does not accept images]"
    )
    assert to_one_that_takes_none.messages[4]["content"] == "and now?"
