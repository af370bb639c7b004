"""Server-sent events, cut wherever a network may cut them."""

import time

import pytest

from gptsh.errors import ModelError
from gptsh.llm.stream import events

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n\r\n"
    b'data: {"text": "h\xc3\xa9 \xe2\x80\xa8 \xc2\x85"}\n\n'
    b"event: message_start\rdata:no space\r\r"
    b"id: 7\ndata: two\ndata: lines\r\n\r\n"
    b"data\n\n"
    b"retry: 10\n\n: ping\n\n"
    b"data:  [DONE]"
)
EVENTS = [
    ("", '{"text": "h\u00e9 \u2028 \u0085"}'.encode()),
    ("message_start", b"no space"),
    ("", b"two\nlines"),
    ("", b""),
    ("", b" [DONE]"),
]


def test_a_stream_in_two_pieces_has_the_same_events_wherever_it_is_cut() -> None:
    for cut in range(len(STREAM) + 1):
        assert list(events([STREAM[:cut], STREAM[cut:]])) == EVENTS, cut


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    seen: list[bytes] = []

    def chunks() -> object:
        yield b"data: one\n\n"
        seen.append(b"asked for more")
        yield b"data: two\n\n"

    parsed = events(chunks())  # type: ignore[arg-type]
    assert next(parsed) == ("", b"one")
    assert not seen


@pytest.mark.parametrize("line", [b"d\xe1ta: two", b"event: a\x8adata: two"])
def test_a_spoilt_line_is_not_passed_over(line: bytes) -> None:
    with pytest.raises(ModelError):
        list(events([b"data: one\n\n", line, b"\n\n"]))


def test_a_long_line_in_many_pieces_takes_time_in_proportion() -> None:
    """Four times the bytes once took sixteen times as long."""

    def seconds(pieces: int) -> float:
        started = time.process_time()
        ((_, data),) = events([b"data: ", *[b"x" * 1460] * pieces, b"\n\n"])
        assert len(data) == 1460 * pieces
        return time.process_time() - started

    assert seconds(8000) < 40 * max(seconds(500), 0.001)
