"""How large an image is, how long a recording, how many pages a document: read from a few bytes of the data."""

import binascii
import contextlib
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_END = 1 << 16  # bytes of a document that are looked at, at either end of it
_SEGMENTS = 100  # of a JPEG file before its size
_INFLATED = 1 << 20  # bytes of a compressed part of a document
_ALL_INFLATED, _MOST_INFLATED = 4 << 20, 50  # bytes of all such parts at one end of it, and their number
_LEAST_PAGE, _USUAL_PAGE = 200, 50_000  # bytes
_MOST_GUESSED = 50  # pages: no more are taken for certain from a file's size alone
_BYTE_RATES = range(500, 4_000_000)  # bytes of a second of sound
_LINEARIZED = re.compile(rb"/Linearized\b[^>]*?/N\s+(\d{1,6})")
# What is looked for takes time that grows with the text alone, whoever wrote it: no gap is without a bound.
_PAGES, _COUNT = re.compile(rb"/Type\s{0,9}/Pages\b"), re.compile(rb"/Count\s{1,9}(\d{1,6})\b")
_COMPRESSED = re.compile(rb"/Type\s{0,9}/ObjStm\b.{0,200}?>>\s{0,9}stream\r?\n", re.DOTALL)
# MP3: kbit/s by index and samples a second by index, of version 1 and of versions 2 and 2.5.
_BIT_RATES = (
    (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_SAMPLE_RATES = (44_100, 48_000, 32_000)


class Encoded:
    """Bytes that stand in base64, of which only those are decoded that are asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.size = (len(text) - text[-2:].count("=")) * 3 // 4

    def at(self, start: int, length: int) -> bytes:
        """``length`` bytes from ``start`` on, as far as there are so many; none of what is no base64."""
        first, behind = start // 3, -(-(start + length) // 3)
        try:
            found = binascii.a2b_base64(self._text[4 * first : 4 * behind])
        except ValueError:
            return b""
        return found[start - 3 * first :][:length]


# ---- images


def pixels(data: Encoded) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG image; None for anything else."""
    head = data.at(0, 30)
    size = None
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _number(head[16:20], "big"), _number(head[20:24], "big")
    elif head.startswith((b"GIF87a", b"GIF89a")):
        size = _number(head[6:8]), _number(head[8:10])
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _of_webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _of_jpeg(data)
    return size if size and min(size) > 0 else None


def _of_webp(head: bytes) -> tuple[int, int] | None:
    """By the first chunk: lossy, lossless or extended."""
    if head[12:16] == b"VP8 ":
        return _number(head[26:28]) & 0x3FFF, _number(head[28:30]) & 0x3FFF
    if head[12:16] == b"VP8L":
        bits = _number(head[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if head[12:16] == b"VP8X":
        return _number(head[24:27]) + 1, _number(head[27:30]) + 1
    return None


def _of_jpeg(data: Encoded) -> tuple[int, int] | None:
    """From the segment that begins a frame; before it stand others, such as a preview."""
    at = 2
    for _ in range(_SEGMENTS):
        segment = data.at(at, 9)
        if len(segment) < 9 or segment[0] != 0xFF:  # as far as the size; how each begins
            return None
        if segment[1] in (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)):
            return _number(segment[7:9], "big"), _number(segment[5:7], "big")
        at += 2 + _number(segment[2:4], "big")
    return None


def _number(raw: bytes, order: str = "little") -> int:
    return int.from_bytes(raw, "big" if order == "big" else "little")


# ---- recordings


class Frame(NamedTuple):
    """The beginning of a frame of MP3: bits a second, samples a second, samples and bytes of the frame."""

    bit_rate: int
    sample_rate: int
    samples: int
    length: int


def frame_at(head: bytes, at: int) -> Frame | None:
    """The frame of MP3 that begins there; None where none does."""
    raw = _number(head[at : at + 4], "big")
    version, layer, bit_rate, sample_rate = raw >> 19 & 3, raw >> 17 & 3, raw >> 12 & 15, raw >> 10 & 3
    sound = raw >> 21 == 0x7FF and version != 1 and layer == 1  # the bits that begin each
    if not (sound and 0 < bit_rate < 15 and sample_rate < 3):  # free and reserved ones
        return None
    old = version != 3  # version 1
    bits = 1000 * _BIT_RATES[old][bit_rate - 1]
    rate = _SAMPLE_RATES[sample_rate] // {3: 1, 2: 2, 0: 4}[version]
    samples = 576 if old else 1152
    return Frame(bits, rate, samples, samples // 8 * bits // rate + (raw >> 9 & 1))


def seconds(data: Encoded) -> float | None:
    """How long a WAV or MP3 recording is, as its first bytes say; None for anything else."""
    head = data.at(0, 64)
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        at = head.find(b"fmt ")
        rate = _number(head[at + 16 : at + 20]) if at > 0 else 0
        return data.size / rate if rate in _BYTE_RATES else None
    start = 10 + _syncsafe(head[6:10]) if head.startswith(b"ID3") else 0  # tags stand before the sound
    sound = data.at(start, 64)
    frame = frame_at(sound, 0)
    return _length(frame, sound, data.size - start) if frame else None


def _syncsafe(raw: bytes) -> int:
    size = 0
    for byte in raw:
        size = size << 7 | byte & 0x7F
    return size


def _length(frame: Frame, sound: bytes, size: int) -> float:
    """Of so many bytes: by the number of frames, where the first one tells it, else by its bit rate."""
    at = max(sound.find(b"Xing"), sound.find(b"Info"))
    if at > 0 and sound[at + 7 : at + 8] and sound[at + 7] & 1:
        frames = min(_number(sound[at + 8 : at + 12], "big"), size)
        return frames * frame.samples / frame.sample_rate
    return 8 * size / frame.bit_rate


# ---- documents


def pages(data: Encoded) -> int:
    """Pages of a PDF document as it says where that is found at either end, else a guess by its size."""
    head, tail = data.at(0, _END), data.at(max(0, data.size - _END), _END)
    told = [int(count) for count in _LINEARIZED.findall(head[:2048])]
    for text in (head, tail, *_inflated(head), *_inflated(tail)):
        told += _told(text)
    if told:
        return max(1, min(max(told), data.size // _LEAST_PAGE))
    return min(1 + data.size // _USUAL_PAGE, _MOST_GUESSED)


def _told(text: bytes) -> Iterator[int]:
    """What the page trees there count, as far as it stands beside them with no end of a dictionary between."""
    end = 0
    for tree in _PAGES.finditer(text):
        if tree.start() >= end:
            start, behind = text.rfind(b">", end, tree.start()) + 1, text.find(b">", tree.end())
            start, end = max(start, end), len(text) if behind < 0 else behind
            yield from map(int, _COUNT.findall(text, start, end))


def _inflated(text: bytes) -> Iterator[bytes]:
    """The objects that are compressed there, as far as they have room."""
    room = _ALL_INFLATED
    for found in islice(_COMPRESSED.finditer(text), _MOST_INFLATED):
        with contextlib.suppress(zlib.error):
            inflated = zlib.decompressobj().decompress(text[found.end() :], min(room, _INFLATED))
            yield inflated
            room -= len(inflated)
        if room <= 0:  # 0 would mean: all of it
            return
