"""What bytes are: text, data that can be sent as an attachment, or a kind of data that can only be named.

Nothing is guessed: a kind has a name only where its signature cannot be text by chance.
"""

import codecs
import re
from collections.abc import Callable
from typing import NamedTuple

_HEAD = 1 << 16  # bytes that are looked at; a NUL byte is looked for everywhere
_MOST_ODD = 0.05  # of the head; bytes that are compressed or drawn at random have more
_FEWEST_LETTERS = 4  # that tell an encoding
_MOST_ASCII = 0.9  # of the letters of a text whose encoding nothing names
# Control characters that text has no use for. Of use are white space, backspace (man pages), ESC (colours), and the
# four separators of fields and records.
_NO_TEXT = bytes([*range(0x01, 0x08), 0x0B, *range(0x0E, 0x1B), 0x7F])
_PDF, _PNG, _GIF, _MP3 = "application/pdf", "image/png", "image/gif", "audio/mpeg"
_APNG = "image/apng"
_TAR = "application/x-tar"
# By media type; what is not here is not known well enough, such as kinds that two letters would give away.
_NAMES = {
    _PNG: "a PNG image",
    _APNG: "an animated PNG image",
    "image/jpeg": "a JPEG image",
    _GIF: "a GIF image",
    "image/webp": "a WebP image",
    "image/tiff": "a TIFF image",
    "image/heic": "a HEIC image",
    "image/avif": "an AVIF image",
    "image/vnd.adobe.photoshop": "a Photoshop image",
    _MP3: "MP3 audio",
    "audio/mp4": "M4A audio",
    "audio/x-flac": "FLAC audio",
    "audio/x-wav": "WAV audio",
    "audio/x-aiff": "AIFF audio",
    "audio/ogg": "an Ogg file",
    "audio/midi": "a MIDI file",
    "video/mp4": "an MP4 video",
    "video/quicktime": "a QuickTime video",
    "video/x-matroska": "a Matroska video",
    "video/webm": "a WebM video",
    "video/x-msvideo": "an AVI video",
    _PDF: "a PDF document",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "a Word document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "an Excel workbook",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "a PowerPoint presentation",
    "application/vnd.oasis.opendocument.text": "an OpenDocument text",
    "application/vnd.oasis.opendocument.spreadsheet": "an OpenDocument spreadsheet",
    "application/vnd.oasis.opendocument.presentation": "an OpenDocument presentation",
    "application/epub+zip": "an EPUB book",
    "application/zip": "a ZIP archive",
    _TAR: "a tar archive",
    "application/x-rar-compressed": "a RAR archive",
    "application/x-7z-compressed": "a 7z archive",
    "application/gzip": "gzip-compressed data",
    "application/x-bzip2": "bzip2-compressed data",
    "application/x-xz": "xz-compressed data",
    "application/zstd": "zstd-compressed data",
    "application/x-executable": "an ELF file",
    "application/x-sqlite3": "an SQLite database",
    "application/wasm": "a WebAssembly module",
}
# What models take, by the package's name for it: the registered one.
_SENT = {
    _PNG: _PNG,
    _APNG: _PNG,  # a PNG image for whoever knows no animation
    "image/jpeg": "image/jpeg",
    _GIF: _GIF,
    "image/webp": "image/webp",
    _PDF: _PDF,
    "audio/x-wav": "audio/wav",
    _MP3: _MP3,
}
SENDABLE = frozenset(_SENT.values())
# What can be made of the others, by the beginning of the media type.
_WAYS = {
    "image/": "convert it to PNG or JPEG",
    "audio/": "convert it to WAV or MP3",
    "application/vnd.": "convert it to PDF or to text",
    "application/epub": "convert it to PDF or to text",
}
_NO_WAY = "only text, PNG, JPEG, GIF, WebP, PDF, WAV and MP3 can be sent"
_PDF_BEGINS, _PDF_ENDS = re.compile(rb"%PDF-[12]\.[0-9]"), b"%%EOF"
_PDF_TAIL = 1024  # bytes at its end, in which a PDF document says so
_PDF_HEAD = 1024  # bytes at its beginning, within which readers look for how it begins
_TAGGED_MP3 = re.compile(rb"ID3[\x02-\x04]\0")
# By media type: whether it is more than the few letters by which the package knows it.
_CERTAIN: dict[str, Callable[[bytes], object]] = {
    _PDF: _PDF_BEGINS.match,
    **dict.fromkeys((_PNG, _APNG), re.compile(rb"\x89PNG\r\n\x1a\n").match),
    _GIF: re.compile(rb"GIF8[79]a").match,
    _MP3: lambda head: _TAGGED_MP3.match(head) or _is_mp3(head),
}
# By byte order mark, the longer ones first: the first two bytes of UTF-32 are those of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BIT_RATES = (  # of MP3
    (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_SAMPLE_RATES = (44_100, 48_000, 32_000)
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")  # how a letter of four bytes begins, such as an emoji
_LATE = 0.9  # of the bytes


class Kind(NamedTuple):
    """Data that cannot be sent as text.

    ``name`` goes behind "is", such as ``a PNG image``. ``media_type`` is that of data which can be sent as it is; None
    where it cannot, and ``todo`` is what the user can do about it.
    """

    name: str
    todo: str = _NO_WAY
    media_type: str | None = None


def kind_of(data: bytes | bytearray) -> Kind | None:
    """The kind of data that is no text; None for text, in UTF-8 or in an older encoding of one byte a letter."""
    head = bytes(data[:_HEAD])
    has_nul = b"\0" in data
    if encoding := _wide_encoding(head, is_all=len(data) == len(head)) if has_nul else _marked_encoding(head):
        return Kind(f"{encoding[:6].upper()} text", todo=f"iconv -f {encoding} -t utf-8 makes it text that can be sent")
    odd = len(head) - len(head.translate(None, _NO_TEXT))
    foreign = not _is_in(head, "utf-8")
    if has_nul and not odd and not foreign and b"\0\0" not in data:
        return None  # fields with NUL between them: find -print0, git status -z
    if has_nul:
        return _named(head, sure=bool(odd) or foreign) or _no_text(head)
    if foreign and (kind := _named(head, sure=bool(odd))):
        return kind
    if _PDF_BEGINS.match(head) and _PDF_ENDS in data[-_PDF_TAIL:]:  # it may be ASCII throughout
        return _of_type(_PDF)
    return _no_text(head) if odd > _MOST_ODD * len(head) else None


def _no_text(head: bytes) -> Kind:
    """The kind of what is no text and has no signature at its first byte."""
    return _of_type(_PDF) if _PDF_BEGINS.search(head, 0, _PDF_HEAD) else Kind("binary data")


def _marked_encoding(head: bytes) -> str | None:
    found = next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)
    return found if found and _is_in(head, found) else None


def _wide_encoding(head: bytes, *, is_all: bool) -> str | None:
    """The encoding of text that has NUL bytes because its letters take two or four bytes; None for any other data.

    ``is_all``: nothing follows the head, so that it must end with a whole letter.
    """
    if marked := _marked_encoding(head):
        return marked
    # Most letters of most texts are ASCII, and then all the other bytes are NUL.
    for encoding, width, at in (("utf-32le", 4, 0), ("utf-32be", 4, 3), ("utf-16le", 2, 0), ("utf-16be", 2, 1)):
        whole = head[: len(head) // width * width]
        letters = whole[at::width]
        others = len(whole) - len(letters)
        likely = others and not set(letters) & {0, *_NO_TEXT} and whole.count(0) >= _MOST_ASCII * others
        enough = len(letters) >= _FEWEST_LETTERS and not (is_all and len(whole) < len(head))
        if likely and enough and _is_in(whole, encoding):
            return encoding
    return None


def _is_in(head: bytes, encoding: str) -> bool:
    """Whether it can be read in that encoding; its end may be within a letter."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _named(head: bytes, *, sure: bool) -> Kind | None:
    """The kind by its signature; with ``sure`` False of those alone whose signature is long enough by itself."""
    import filetype  # type: ignore[import-untyped]  # noqa: PLC0415 - only for what is no UTF-8 or has NUL bytes

    media_type = filetype.guess_mime(head)
    known = media_type in _NAMES and (sure or media_type in (_PDF, _TAR))
    return _of_type(media_type) if known and _CERTAIN.get(media_type, bool)(head) else None


def _of_type(media_type: str) -> Kind:
    way = next((way for start, way in _WAYS.items() if media_type.startswith(start)), _NO_WAY)
    return Kind(_NAMES[media_type], way, _SENT.get(media_type))


def _is_mp3(head: bytes) -> bool:
    """Whether it begins with a whole frame of MP3 and, where it goes on, with another behind it."""
    first = _length_of_frame(head)
    if first is None or first > len(head):
        return False
    return len(head) - first < 4 or _length_of_frame(head[first:]) is not None  # how one begins


def _length_of_frame(head: bytes) -> int | None:
    """Bytes of the frame of MP3 that begins there; None where none does."""
    raw = int.from_bytes(head[:4], "big")
    version, layer, bit_rate, sample_rate = raw >> 19 & 3, raw >> 17 & 3, raw >> 12 & 15, raw >> 10 & 3
    sound = raw >> 21 == 0x7FF and version != 1 and layer == 1  # the bits that begin each
    if not (sound and 0 < bit_rate < 15 and sample_rate < 3):  # free and reserved ones
        return None
    old = version != 3  # version 1
    bits = 1000 * _BIT_RATES[old][bit_rate - 1]
    rate = _SAMPLE_RATES[sample_rate] // {3: 1, 2: 2, 0: 4}[version]
    return (72 if old else 144) * bits // rate + (raw >> 9 & 1)


def decoded(data: bytearray) -> str:
    """The bytes as text, and none are left. What is no UTF-8 survives as surrogates, one a byte.

    From its first emoji on a text takes four bytes a letter. Where that comes late, the decoder has the bytes, all of
    the narrow text and all of the wide one in memory; so the bytes go before the wide one is made.
    """
    first = _FOUR_BYTES.search(data)
    at = first.start() if first else len(data)
    del first  # it holds the bytes
    if not _LATE * len(data) < at < len(data):
        at = 0
    with memoryview(data) as view:
        narrow, rest = (str(piece, "utf-8", "surrogateescape") for piece in (view[:at], view[at:]))
    data.clear()
    return narrow + rest  # one of them where the other is empty: no copy
