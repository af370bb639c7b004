"""Images, PDF documents and audio: recognised, kept, counted, shown, sent in OpenAI's shape, or refused."""

import base64
import io
import json
import struct
import tracemalloc
import wave
import zlib
from typing import Any

import pytest
from gptsh.core.context import build, room_for
from gptsh.core.cuts import as_sent
from gptsh.core.tokens import Asked, Count, count, of_media, of_message, was_cut
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.document import stats
from gptsh.core.kinds import kind_of
from gptsh.core.measures import Encoded, frame_at, pages, pixels, seconds
from gptsh.core.media import Media, gist_of, media_of, media_part, without
from gptsh.core.messages import Message, user_message
from gptsh.core.providers import OWN, PROVIDERS
from gptsh.core.turn import Request
from gptsh.llm.chat_completions import body
from tests.support.attached import a_pdf, a_png
from tests.support.home import Home, lab_config
from tests.support.server import ModelServer, answer

KEYS = {"OPENAI_API_KEY": "sk-very-secret", "ANTHROPIC_API_KEY": "sk-ant-secret", "GEMINI_API_KEY": "g-very-secret"}

# ---- small valid files


def a_gif(width: int = 1, height: int = 1) -> bytes:
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0\xff\xff\xff\0\0\0" + frame


def a_jpeg(width: int = 1, height: int = 1, preview: int = 0) -> bytes:
    """The segments up to the size of the frame; ``preview`` bytes stand before it."""
    app0 = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    app1 = b"\xff\xe1" + struct.pack(">H", preview + 2) + bytes(preview)
    return b"\xff\xd8" + app0 + app1 + b"\xff\xc0\0\x0b\x08" + struct.pack(">HH", height, width) + b"\1\1\x11\0\xff\xd9"


def a_webp(form: str = "VP8L", width: int = 1, height: int = 1) -> bytes:
    inside = {
        "VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
        "VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\x10\x07",
        "VP8X": b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[form]
    chunk = form.encode() + struct.pack("<I", len(inside)) + inside
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def a_wav(length: float = 0.1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(8000)
        recording.writeframes(bytes(int(16_000 * length)))
    return file.getvalue()


FRAME = b"\xff\xfb\x90\x64" + bytes(413)  # 128 kbit/s, 44,100 Hz: 417 bytes, 26 ms


def an_mp3(frames: int = 3, tag: bytes = b"") -> bytes:
    size = bytes(len(tag) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return (b"ID3\4\0\0" + size + tag if tag else b"") + FRAME * frames


def an_apng() -> bytes:
    plain = a_png()
    control = b"acTL" + bytes(8)
    return plain[:33] + struct.pack(">I", 8) + control + struct.pack(">I", zlib.crc32(control)) + plain[33:]


FILES = {
    "a.png": (a_png(), "image/png"),
    "animated.png": (an_apng(), "image/png"),
    "a.jpg": (a_jpeg(), "image/jpeg"),
    "a.gif": (a_gif(), "image/gif"),
    "a.webp": (a_webp(), "image/webp"),
    "a.pdf": (a_pdf(), "application/pdf"),
    "binary.pdf": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n", "application/pdf"),
    "behind-a-mark.pdf": (b"\xef\xbb\xbf" + a_pdf() + bytes(9), "application/pdf"),
    "behind-headers.pdf": (b"Content-Type: x\r\n\r\n" * 40 + a_pdf() + b"\1\2\3" * 99, "application/pdf"),
    "a.wav": (a_wav(), "audio/wav"),
    "a.mp3": (an_mp3(tag=b"TSSE\0\0\0\3\0\0\3Lav"), "audio/mpeg"),
    "bare.mp3": (an_mp3(), "audio/mpeg"),
    "one-frame.mp3": (FRAME, "audio/mpeg"),
}


@pytest.mark.parametrize(("data", "media_type"), FILES.values(), ids=FILES)
def test_what_models_take_is_told_by_its_signature(data: bytes, media_type: str) -> None:
    kind = kind_of(data)
    assert kind is not None
    assert kind.media_type == media_type


@pytest.mark.parametrize(
    "data",
    [
        b"II*\0\x08\0\0\0\1\0", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", b"BM\0\0\0 \1\2",
        b"\0\0\0\x20ftypM4A \0\0\2\0", FRAME[:9], b"\xff\xfb\xf0\x64" + bytes(900), FRAME + b"\0" * 9, bytes(99),
        bytes(1024) + a_pdf(),
    ],
)  # fmt: skip
def test_what_is_another_kind_or_not_certain_is_not_sent(data: bytes) -> None:
    kind = kind_of(data)
    assert kind is not None
    assert kind.media_type is None
    assert kind.todo


@given(st.sampled_from([data for data, _ in FILES.values()]), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_text_that_begins_like_data_is_text(data: bytes, text: str) -> None:
    start = bytes(byte for byte in data[:12] if 32 <= byte < 127)
    assert kind_of(start + text.encode()) is None


def test_a_text_about_pdf_is_text() -> None:
    assert kind_of(b"It begins with %PDF-1.7 and, said the caf\xe9, ends with %%EOF") is None


# ---- measures

PACKED = b"\n1 0 obj << /Type /ObjStm /Length 9 >> stream\n"


def encoded(data: bytes) -> Encoded:
    return Encoded(base64.b64encode(data).decode())


@given(st.binary(max_size=99), st.integers(0, 110), st.integers(0, 110))
def test_a_piece_of_what_is_encoded_is_that_piece(data: bytes, start: int, length: int) -> None:
    assert encoded(data).at(start, length) == data[start : start + length]
    assert encoded(data).size == len(data)


@pytest.mark.parametrize(
    "data",
    [
        a_png(640, 480), a_gif(640, 480), a_jpeg(640, 480), a_jpeg(640, 480, preview=60_000),
        a_webp("VP8 ", 640, 480), a_webp("VP8L", 640, 480), a_webp("VP8X", 640, 480),
    ],
)  # fmt: skip
def test_pixels(data: bytes) -> None:
    assert pixels(encoded(data)) == (640, 480)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", a_png(0, 5), a_jpeg()[:30], b"RIFF\0\0\0\0WEBPVP9 ", a_pdf()])
def test_no_pixels(data: bytes) -> None:
    assert pixels(encoded(data)) is None


XING = FRAME[:36] + b"Xing\0\0\0\1" + struct.pack(">I", 1000) + FRAME[48:]


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (a_wav(2.5), 2.5), (an_mp3(383), 10), (an_mp3(383, tag=b"x" * 5000), 10), (XING * 30, 26.1),
        (a_wav()[:20], None), (a_pdf(), None), (b"", None),
    ],
)  # fmt: skip
def test_seconds(data: bytes, length: float | None) -> None:
    assert seconds(encoded(data)) == (length if length is None else pytest.approx(length, rel=0.03))


@given(st.binary(max_size=200))
def test_no_bytes_make_a_measure_fail(data: bytes) -> None:
    for start in (
        b"",
        b"\xff\xd8",
        b"RIFF....WAVEfmt ",
        b"RIFF....WEBPVP8 ",
        b"ID3\4\0\0\0\0\0\0",
        b"\x89PNG\r\n\x1a\n",
    ):
        found = encoded(start + data)
        assert pages(found) >= 1
        assert (pixels(found) or (1, 1)) > (0, 0)
        assert (seconds(found) or 0) >= 0
    assert frame_at(data, 0) is None or frame_at(data, 0).length > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "=", "AAAAA", "ü" * 9, "!!!!", "iVBOR"])
def test_what_is_no_base64_has_no_measure(text: str) -> None:
    assert pixels(Encoded(text)) is None
    assert of_media(Media("image", "image/png", data=text)) == 1600


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (a_pdf(12, more=20_000), 12), (a_pdf(12, compressed=True, more=20_000), 12), (a_pdf(12, more=300_000), 12),
        (b"%PDF-1.4\n1 0 obj\n<< /Linearized 1 /L 9 /N 7 /T 5 >>\n" + bytes(9000), 7),
        (a_pdf(10**6), 1),  # more than fit into the file
        (b"%PDF-1.4\n" + bytes(120_000), 3), (b"%PDF-1.4\n" + bytes(9_000_000), 50),
    ],
)  # fmt: skip
def test_pages(data: bytes, number: int) -> None:
    assert pages(encoded(data)) == number


@pytest.mark.parametrize(
    "inside",
    [
        b"/Count 1 " * 7000,
        PACKED + zlib.compress(b"/Count 1 " * 110_000),
        (PACKED + zlib.compress(bytes(1_000_000))) * 60,
        PACKED + zlib.compress(b">/Type /Pages " * 70_000),
    ],
    ids=["open", "compressed", "many", "trees"],
)
def test_a_small_document_that_says_much_of_nothing_does_not_hang(home: Home, inside: bytes) -> None:
    run = home.run("-m", "echo", "--no-save", "hi", stdin=b"%PDF-1.7\n%\xff\xfe\0\n" + inside + b"\n%%EOF\n")
    assert (run.code, run.stdout[:12]) == (0, "You said: hi")


def test_a_page_tree_counts_wherever_its_object_stands() -> None:
    trees = b"".join(PACKED + zlib.compress(b"x" * 900_000 + tree) for tree in (b"", b"", b"/Count 7 /Type /Pages"))
    assert pages(encoded(b"%PDF-1.7\n" + trees + bytes(9000))) == 7
    counts = b"<</Type/Pages/Count 3>><</Type/Catalog/Count 9>><</Count 4/Kids[]/Type/Pages>>/Type/Pages/Count 5"
    assert pages(encoded(counts + bytes(9000))) == 5


# ---- tokens


def of_file(data: bytes, media_type: str) -> int:
    media = media_of(media_part("a", media_type, data))
    assert media
    return of_media(media)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((1, 1), 255), ((512, 512), 350), ((1024, 1024), 1399), ((1568, 1176), 2459), ((4000, 3000), 4800),
     ((1, 10_000), 765), ((60_000, 1), 765)],
)  # fmt: skip
def test_tokens_of_an_image_are_those_of_the_table(size: tuple[int, int], tokens: int) -> None:
    assert of_file(a_gif(*size), "image/gif") == tokens


def test_tokens_of_a_recording_and_a_document() -> None:
    assert of_file(a_wav(10), "audio/wav") == pytest.approx(320, abs=2)
    assert of_file(a_pdf(3, more=9000), "application/pdf") == 6000
    assert of_media(Media("image", None, url="https://x/y.png")) == 1600
    assert of_media(Media("document", "text/plain", text="word", title="T")) == 3


def test_a_large_attachment_is_counted_without_decoding_it() -> None:
    media = Media("document", "application/pdf", data="A" * 40_000_000)
    tracemalloc.start()
    try:
        of_media(media)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


M = {"model": "lab/m", "provider": "lab"}


def asked(*parts: Any, words: str = "look") -> Message:
    return user_message(words, parts)


def answered(prompt: int, then: int) -> Any:
    usage = {"prompt": prompt, "completion": 5}
    return {"role": "assistant", "content": "fine", "usage": usage, "estimated": then, **M}


def test_a_provider_to_whom_a_document_is_cheap_anchors_the_next_count() -> None:
    question = asked(media_part("a.pdf", "application/pdf", a_pdf(50, more=90_000)))
    then = of_message(question)
    assert then > 100_000
    told = count([question, answered(13_000, then), asked(words="and?")], None, asked=Asked(**M))  # type: ignore[arg-type]
    assert told.anchored
    assert told.safe < 13_100


def test_what_an_attachment_was_expected_to_take_is_no_sign_of_a_cut() -> None:
    large = asked(media_part("a.gif", "image/gif", a_gif(4000, 3000)))
    assert not was_cut(5300, Count(9800, 9800, 9800, anchored=True), [large])
    assert was_cut(3900, Count(9800, 9800, 9800, anchored=True), [large])


# ---- a question


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
    assert [part.get("source") for part in stored] == [None, "a.pdf", "notes.txt", "a.png", "a.mp3", "stdin"]
    shown = lab.run("--show-session", "0").stdout
    for name in ("a.png", "a.pdf", "a.mp3"):
        assert f"\n`[{name}, {FILES[name][1]}, " in shown
    assert f"`[stdin, audio/wav, {len(a_wav()) / 1000:.1f} kB]`\n" in shown
    assert data["a.pdf"][:20] not in shown
    assert json.loads(lab.run("--show-session", "0", "-o", "json").stdout) == lab.doc()


def test_a_resume_sends_what_the_session_has_though_the_file_is_gone(lab: Home, model: ModelServer) -> None:
    model.say("one")
    model.say("two")
    shot = lab.cwd / "a.png"
    shot.write_bytes(a_png())
    lab.run("-f", "a.png", "look")
    shot.unlink()
    assert lab.run("-s", "0", "again") == ("two\n", "", 0)
    first, second = model.sent
    assert second["messages"][0] == first["messages"][0]
    assert second["messages"][-1] == {"role": "user", "content": "again"}


def test_an_attachment_alone_is_a_question_with_a_preview_and_no_title(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, more=""))
    model.say("a dot")
    assert home.run(stdin=a_png()) == ("a dot\n", "", 0)
    assert len(model.asked) == 1  # no title was asked for
    assert home.doc()["title"] is None
    assert home.doc()["stats"]["preview"] == f"[image/png, {len(a_png())} bytes]"


def test_a_title_is_asked_for_from_the_words_alone(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, more=""))
    model.say("a dot")
    model.say("A Dot")
    home.run("what is this", stdin=a_png())
    assert model.sent[1]["messages"][1] == {"role": "user", "content": "what is this"}


def test_echo_says_what_it_was_given(home: Home) -> None:
    assert home.run("-m", "echo", "hi", stdin=a_gif()).stdout == f"You said: hi\n\n[image/gif, {len(a_gif())} bytes]\n"


def test_an_empty_file_alone_is_no_prompt(lab: Home, model: ModelServer) -> None:
    for name, data in (("empty.txt", ""), ("blank.txt", " \n")):
        (lab.cwd / name).write_text(data)
    line = "gptsh: no prompt: give words or pipe text in; gptsh -h shows how\n"
    assert lab.run("-f", "empty.txt", "-f", "blank.txt", " ", stdin="\n") == ("", line, 2)
    assert not lab.state.exists()
    model.say("fine")
    assert lab.run("-f", "empty.txt", "is it empty?").stdout == "fine\n"
    assert lab.run("-f", "empty.txt", "-s", "0").code == 2
    assert len(model.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "\n", [], [{"type": "text", "text": " ", "source": "empty.txt"}]])
@pytest.mark.parametrize("name", ["lab/m", "anthropic/claude-sonnet-4-5", "ollama/m"])
def test_a_question_of_a_session_that_says_nothing_is_not_sent(home: Home, name: str, content: Any) -> None:
    home.run("-m", "echo", "hi")
    path, doc = home.files()[0], home.doc()
    home.configure('[providers.lab]\nbase_url = "http://127.0.0.1:9"\n')
    asked = {"role": "user", "content": content}
    line = "gptsh: the question says nothing: give words or pipe text in\n"
    for messages in ([asked], [*doc["messages"], asked, asked]):
        path.write_text(json.dumps({**doc, "messages": messages}))
        assert home.run("-s", "0", "-m", name, "--dry-run", env=KEYS) == ("", line, 2)


def test_more_than_can_be_sent_is_one_line(lab: Home, model: ModelServer) -> None:
    for name in ("a.png", "b.png"):
        with open(lab.cwd / name, "wb") as file:
            file.write(a_png())
            file.truncate(30_000_000)
    line = "gptsh: with b.png the attachments are 60.0 MB: 50.0 MB of images, PDF and audio can be sent at most\n"
    assert lab.run("-f", "a.png", "-f", "b.png", "hi") == ("", line, 2)
    with open(lab.cwd / "a.png", "r+b") as file:
        file.truncate(200_000_000)
    assert "a.png the attachments are more than 100.0 MB: " in lab.run("-f", "a.png", "hi").stderr
    assert not lab.state.exists()
    assert not model.asked


def test_a_dry_run_tells_attachments_by_size_and_the_request_whole(lab: Home) -> None:
    (lab.cwd / "a.png").write_bytes(a_png())
    run = lab.run("--dry-run", "-f", "a.png", "look")
    assert run.stdout.endswith(f"\nattached    a.png [image/png, {len(a_png())} bytes]\n")
    told = json.loads(lab.run("--dry-run", "-o", "json", "-f", "a.png", "look").stdout)
    url = told["body"]["messages"][0]["content"][1]["image_url"]["url"]
    assert base64.b64decode(url.partition(",")[2]) == a_png()


def test_a_cut_touches_text_alone(lab: Home, model: ModelServer) -> None:
    lab.configure(lab_config(model).replace("[sessions]", "context_window = 1000\n[sessions]"))
    model.say("seen")
    (lab.cwd / "a.png").write_bytes(a_png())
    run = lab.run("--truncate", "tail", "-f", "a.png", "look", stdin="a line of a log\n" * 500)
    assert (run.code, run.stderr.count("cut from its tail")) == (0, 1)
    _, image, text = model.sent[0]["messages"][0]["content"]
    assert image["type"] == "image_url"
    assert "characters are left out here" in text["text"]


# ---- what a model does not take


def test_a_model_that_is_known_not_to_take_it_is_not_asked(home: Home) -> None:
    (home.cwd / "a.png").write_bytes(a_png())
    run = home.run("-m", "openai/o3-mini", "-f", "a.png", "look", stdin=a_wav(), env=KEYS)
    assert run == ("", "gptsh: openai/o3-mini takes no images: choose another model with -m\n", 2)
    for model, data, what in (
        ("anthropic/claude-sonnet-4-5", a_wav(), "audio"),
        ("ollama/qwen3", an_mp3(), "audio"),
        ("ollama/qwen3", a_pdf(), "PDF documents"),
    ):
        run = home.run("-m", model, "look", stdin=data, env=KEYS)
        assert run == ("", f"gptsh: {model} takes no {what}: choose another model with -m\n", 2)
    assert not home.state.exists()


def test_what_an_older_question_carries_is_kept_and_told_in_words(home: Home, model: ModelServer) -> None:
    config = lab_config(model).replace("[sessions]", f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]')
    home.configure(config)
    for said in ("one", "two", "three"):
        model.say(said)
    home.run("look", stdin=a_png())
    home.run("-s", "0", "listen", stdin=a_wav())
    before = home.doc()["messages"]
    run = home.run("-s", "0", "-m", "openai/o3-mini", "and?", env=KEYS)
    line = "gptsh: 1 attachment of the session not sent: openai/o3-mini takes no images\n"
    assert run == ("three\n", line, 0)
    image, _, sound, _, question = model.sent[2]["messages"]
    place = f"[gptsh: image/png, {len(a_png())} bytes, not sent: this model takes no images]"
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
        ("anthropic/claude-sonnet-4-5", "2 attachments {}anthropic/claude-sonnet-4-5 takes no images of that form"),
        ("ollama/m", "2 attachments {}ollama/m takes no PDF documents, no images of that form"),
        ("lab/m", "1 attachment {}lab/m takes no PDF documents of that form"),
        ("mistral/m", ""),
        ("echo", ""),
    ],
)
def test_what_cannot_be_said_to_a_model_is_noted(home: Home, name: str, told: str) -> None:
    home.configure('[providers.lab]\nbase_url = "http://127.0.0.1:9"\n')
    home.run("-m", "echo", "hi")
    path, doc = home.files()[0], home.doc()
    doc["messages"][0]["content"] = [{"type": "text", "text": "hi"}, URL, TIFF, PDF_BY_URL]
    path.write_text(json.dumps(doc))
    env = KEYS | {"MISTRAL_API_KEY": "m-very-secret", "OLLAMA_API_BASE": "http://127.0.0.1:9"}
    run = home.run("-s", "0", "-m", name, "--dry-run", "-o", "json", "and?", env=env)
    assert run.stderr == (f"gptsh: {told.format('of the session not sent: ')}\n" if told else "")
    assert run.code == 0


def test_the_place_of_an_attachment_has_its_name() -> None:
    message = asked(media_part("a.png", "image/png", a_png()), media_part("b.wav", "audio/wav", a_wav()))
    told = as_sent(message, {"image"})
    assert told["content"][1] == {  # type: ignore[index]
        "type": "text",
        "text": f"[gptsh: image/png, {len(a_png())} bytes, not sent: this model takes no images]",
        "source": "a.png",
    }
    assert told["content"][2] is message["content"][2]  # type: ignore[index]
    assert as_sent(message) is message
    size = Count(1, 1, 1, anchored=False)
    assert build([told], None, size, room_for(None, {}, 0)).messages == [told]


DATA = base64.b64encode(a_png()).decode()
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
PNG_URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}


def test_attachments_inside_a_result_of_another_tools_dress_are_seen_too() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}, PNG]}
    message: Message = {"role": "user", "content": [result]}
    place = without(message, {"image"})["content"][0]["content"][1]  # type: ignore[index]
    assert place["text"].endswith("this model takes no images]")
    assert gist_of(message) == f"[image/png, {len(a_png())} bytes]"
    assert stats([message])["preview"] == ""


# ---- the shape of chat completions


def sent(*messages: Any, provider: str = "lab") -> list[Any]:
    request = Request(f"{provider}/m", list(messages), {})
    endpoint = PROVIDERS.get(provider, OWN)
    return body(request, "m", endpoint, provider=provider, stream_options=False)["messages"]  # type: ignore[no-any-return]


def parts(*content: Any, provider: str = "lab") -> Any:
    (message,) = sent({"role": "user", "content": list(content), "id": "1"}, provider=provider)
    return message["content"]


TEXT = {"type": "text", "text": "look"}
PDF_DATA = base64.b64encode(a_pdf()).decode()
PDF_URL = f"data:application/pdf;base64,{PDF_DATA}"
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA}}
WAV_DATA = base64.b64encode(a_wav()).decode()
WAV = {"type": "input_audio", "input_audio": {"data": WAV_DATA, "format": "wav"}}


@pytest.mark.parametrize(
    ("part", "shape"),
    [
        ({**PNG_URL, "source": "a.png"}, PNG_URL),
        ({"type": "image_url", "image_url": "https://x/y.png"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        ({"type": "image_url", "image_url": {"url": "https://x/y", "detail": "low"}, "source": "s"},
         {"type": "image_url", "image_url": {"url": "https://x/y", "detail": "low"}}),
        (PNG, PNG_URL),
        ({**PNG, "source": {"type": "url", "url": "https://x/y.png"}},
         {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        (PDF, {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF_URL}}),
        ({**PDF, "title": "A report", "context": "of 2026"},
         {"type": "file", "file": {"filename": "A report.pdf", "file_data": PDF_URL}}),
        ({**WAV, "source": "stdin"}, WAV),
        ({"type": "audio", "source": {"type": "base64", "media_type": "audio/mpeg", "data": "AAAA"}},
         {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ({"type": "video_url", "video_url": {"url": "https://x/y.mp4"}, "source": "s", "cut": [0, 1]},
         {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}),
        ({"type": "file", "file": {"file_id": "f1"}, "source": "s"}, {"type": "file", "file": {"file_id": "f1"}}),
    ],
)  # fmt: skip
def test_a_part_as_openai_has_it(part: Any, shape: Any) -> None:
    assert parts(TEXT, part) == [TEXT, shape]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}, "words"),
        (
            {"type": "document", "source": {"type": "text", "data": "words"}, "title": "T", "context": "C"},
            "T:\nC\nwords",
        ),
        ({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}, "[document, https://x/y.pdf]"),
        ({"type": "audio", "source": {"type": "url", "url": "https://x/y"}, "title": "T"}, "T:\n[audio, https://x/y]"),
    ],
)
def test_a_part_that_becomes_text_goes_as_text_does(part: Any, text: str) -> None:
    assert parts(TEXT, part) == f"look\n\n{text}"
    assert parts(part, PNG) == [{"type": "text", "text": text}, PNG_URL]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"x": 1}, "a part"),
        ({"type": ""}, "a part"),
        ({"type": ["x"], "source": "a.png"}, "a part"),
        ({"type": "text", "text": 5}, "text"),
        ({"type": "text"}, "text"),
        ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, "image"),
        ({"type": "document"}, "document"),
        ({"type": "image_url"}, "image_url"),
        ({"type": "input_audio", "input_audio": {}}, "input_audio"),
        ({"type": "file", "file": {}}, "file"),
        ({"type": "thinking", "thinking": "hm", "signature": "s"}, "thinking"),
        ({"type": "redacted_thinking", "data": "x"}, "redacted_thinking"),
        ({"type": "reasoning.encrypted", "data": "x"}, "reasoning.encrypted"),
        ({"type": "tool_use", "id": "x"}, "tool_use"),
        ({"type": "web_search_tool_result"}, "web_search_tool_result"),
        ({"type": "function_call"}, "function_call"),
    ],
)
def test_a_part_that_no_server_takes_becomes_a_line_of_text(part: Any, text: str) -> None:
    label = "a.png:\n" if part.get("source") == "a.png" else ""
    why = "nobody knows its type" if text == "a part" else "this API does not take it"
    assert parts(TEXT, part) == f"look\n\n{label}[gptsh: {text}, not sent: {why}]"
    assert parts(part, PNG) == [{"type": "text", "text": f"{label}[gptsh: {text}, not sent: {why}]"}, PNG_URL]


def test_text_beside_an_image_keeps_its_label_and_nothing_of_ours() -> None:
    content = [
        {"type": "text", "text": ""},
        {"type": "text", "text": "A", "source": "a.txt"},
        {"type": "text", "text": "log", "source": "stdin", "cut": [0, 0], "cache_control": {"type": "ephemeral"}},
        PNG,
    ]
    said = [{"type": "text", "text": "a.txt:\nA"}, {"type": "text", "text": "log"}]
    assert parts(*content) == [*said, PNG_URL]


def test_mistral_has_a_shape_of_its_own_for_documents_and_audio() -> None:
    assert parts(PDF, PNG, WAV, provider="mistral") == [
        {"type": "document_url", "document_url": PDF_URL},
        PNG_URL,
        {"type": "input_audio", "input_audio": WAV_DATA},
    ]


ODD = {"type": "server_tool_use", "id": "x"}


def test_an_answer_goes_back_as_one_string_that_names_what_is_no_text() -> None:
    said: Any = {"role": "assistant", "content": [TEXT, ODD], "provider": "lab"}
    assert sent(said)[0]["content"] == "look\n\n[server_tool_use]"
    image = {"role": "assistant", "content": [TEXT, PNG], "provider": "other"}
    assert sent(image)[0]["content"] == f"look\n\n[image/png, {len(a_png())} bytes]"


CALLS: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": key, "type": "function", "function": {"name": "shot", "arguments": "{}"}} for key in "ab"],
}
SHOT: Any = {"role": "tool", "tool_call_id": "a", "name": "shot", "content": [TEXT, PNG], "is_error": False, "raw": {}}
PLAIN: Any = {"role": "tool", "tool_call_id": "b", "content": "fine"}
LABEL = {"type": "text", "text": "image of the tool result above (shot):"}
AS_TEXT = {"role": "tool", "tool_call_id": "a", "name": "shot", "content": f"look\n[image/png, {len(a_png())} bytes]"}


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ([], [{"role": "user", "content": [LABEL, PNG_URL]}]),
        ([{"role": "assistant", "content": "ok"}],
         [{"role": "user", "content": [LABEL, PNG_URL]}, {"role": "assistant", "content": "ok"}]),
        ([{"role": "user", "content": "and?"}],
         [{"role": "user", "content": [LABEL, PNG_URL, {"type": "text", "text": "and?"}]}]),
    ],
    ids=["last", "answered", "joined"],
)  # fmt: skip
def test_an_image_that_a_tool_gave_goes_behind_the_results(behind: list[Any], expected: list[Any]) -> None:
    messages = sent({"role": "user", "content": "go"}, CALLS, SHOT, PLAIN, *behind)
    assert messages[2:4] == [AS_TEXT, {"role": "tool", "tool_call_id": "b", "content": "fine"}]
    assert messages[4:] == expected


def test_an_image_that_a_tool_gave_is_text_for_a_model_that_takes_none() -> None:
    messages = sent({"role": "user", "content": "go"}, CALLS, as_sent(SHOT, {"image"}), PLAIN)
    assert len(messages) == 4
    assert messages[2]["content"].endswith("not sent: this model takes no images]")


@pytest.mark.parametrize("result", [[TEXT, TEXT], [], None, "text"])
def test_a_result_of_text_alone_is_as_it_was(result: Any) -> None:
    messages = sent({"role": "user", "content": "go"}, CALLS, {**SHOT, "content": result}, PLAIN)
    assert len(messages) == 4
    assert isinstance(messages[2]["content"], str)


def test_a_transcript_tells_what_a_tool_gave(home: Home) -> None:
    home.run("-m", "echo", "hi")
    doc = home.doc()
    doc["messages"] += [CALLS, SHOT, PLAIN, {"role": "user", "content": [{**PDF, "title": "A report"}, ODD]}]
    home.files()[0].write_text(json.dumps(doc))
    shown = home.run("--show-session", "0").stdout
    assert f"\n`look [image/png, {len(a_png())} bytes]`\n" in shown
    assert f"\n`[A report, application/pdf, {len(a_pdf())} bytes]`\n\n`[server_tool_use]`\n" in shown


# ---- through litellm


@pytest.fixture
def far(home: Home, model: ModelServer) -> Home:
    """A home whose Gemini and OpenAI are the loopback server."""
    bare = model.base_url.removesuffix("/v1")
    home.configure(
        f'[providers.gemini]\nbase_url = "{bare}/v1beta"\n'
        f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )
    home.env |= KEYS
    for name in ("a.png", "a.pdf", "a.mp3"):
        (home.cwd / name).write_bytes(FILES[name][0])
    return home


@pytest.mark.slow
def test_gemini_gets_images_documents_and_audio(far: Home, model: ModelServer) -> None:
    reply = {"candidates": [{"content": {"parts": [{"text": "seen"}], "role": "model"}, "finishReason": "STOP"}]}
    model.script(b"data: " + json.dumps(reply).encode() + b"\r\n\r\n")
    run = far.process("-m", "gemini/gemini-2.5-flash", "-f", "a.png", "-f", "a.pdf", "-f", "a.mp3", "look")
    assert (run.stdout, run.code) == ("seen\n", 0)
    (content,) = model.sent[0]["contents"]
    inline = [part.get("inline_data") or part.get("inlineData") for part in content["parts"]]
    found = [(part.get("mime_type") or part.get("mimeType"), base64.b64decode(part["data"])) for part in inline if part]
    mp3 = ("audio/mp3", FILES["a.mp3"][0])
    expected = [("image/png", a_png()), ("application/pdf", a_pdf()), mp3]
    assert [(kind.replace("mpeg", "mp3"), data) for kind, data in found] == expected


@pytest.mark.slow
def test_the_responses_api_gets_images_and_documents(far: Home, model: ModelServer) -> None:
    model.refuse(400, {"error": {"message": "enough"}})
    far.process("-m", "openai/gpt-5.3-codex", "-f", "a.png", "-f", "a.pdf", "look")
    assert model.asked[-1].path == "/v1/responses"
    (question,) = model.sent[-1]["input"]
    _, image, document = question["content"]
    assert (image["type"], image["image_url"]) == ("input_image", PNG_URL["image_url"]["url"])  # type: ignore[index]
    assert (document["type"], document["filename"], document["file_data"]) == ("input_file", "a.pdf", PDF_URL)


# ---- the store


@pytest.mark.slow
def test_a_list_reads_the_head_of_a_session_with_large_attachments(lab: Home, model: ModelServer) -> None:
    model.script(*answer("seen"))
    (lab.cwd / "a.png").write_bytes(a_png() + bytes(20_000_000))
    assert lab.run("-f", "a.png", "look") == ("seen\n", "", 0)
    path = lab.files()[0]
    with open(path, "r+b") as file:  # torn in the middle, which only a reader of the whole would notice
        file.seek(10_000_000)
        file.write(b'"' * 9)
    listed = lab.run("--list-sessions", "-o", "json")
    assert json.loads(listed.stdout)[0]["preview"] == "look"
    assert listed.stderr == ""
