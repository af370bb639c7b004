"""The type of attached or piped data by its bytes: text, an image, PDF, audio, video (WebM, MP4); what can be sent."""

PDF = "application/pdf"
_SENT = {  # the registered MIME types, by those that ``filetype`` returns
    **{kind: kind for kind in ("image/png", "image/jpeg", "image/gif", "image/webp", PDF, "audio/mpeg")},
    **{kind: kind for kind in ("video/mp4", "video/webm", "video/mpeg")},
    "image/apng": "image/png",  # a viewer without animation shows its first image
    "audio/x-wav": "audio/wav",
}
SENDABLE = frozenset(_SENT.values())
UTF_16, BINARY = "UTF-16 text", "binary data"

_HEAD = 1 << 16  # bytes that are examined; NUL bytes are searched everywhere
# Control characters that text does not use. It uses white space, backspace (man pages), ESC (colours), and the four
# separators of fields and records.
_CONTROLS = bytes([*range(0x01, 0x08), 0x0B, *range(0x0E, 0x1B), 0x7F])
_MAX_CONTROLS = 0.05  # share of the head; compressed or random bytes have more


def detect_type(data: bytes | bytearray) -> str | None:
    """Return the type of bytes: a MIME type, UTF_16 or BINARY; None for text. The types in SENDABLE can be sent.

    Text is UTF-8 or an older encoding with one byte per letter. Single NUL bytes may separate its fields, as in the
    output of ``find -print0``.
    """
    head = bytes(data[:_HEAD])
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return UTF_16
    if head.startswith(b"%PDF-") and b"%%EOF" in data[-1024:]:  # a PDF may be all ASCII
        return PDF
    controls = len(head) - len(head.translate(None, _CONTROLS))
    has_nul, is_utf8 = b"\0" in data, _is_utf8(head)
    is_odd = controls > _MAX_CONTROLS * len(head)
    if has_nul:  # more than a third are NUL: letters of two bytes
        is_odd = controls > 0 or not is_utf8 or b"\0\0" in data or 3 * head.count(0) > len(head)
    if is_utf8 and not is_odd:
        return None
    import filetype  # type: ignore[import-untyped]

    # Text in an older encoding may begin like a file signature, but has no control characters.
    mime_type = filetype.guess_mime(head) if controls or has_nul or head.startswith(b"%PDF-") else ""
    if mime_type:
        return _SENT.get(mime_type, mime_type)
    return BINARY if is_odd else None


def _is_utf8(head: bytes) -> bool:
    """Whether the bytes are UTF-8; the last character may be incomplete."""
    try:
        head.decode()
    except UnicodeDecodeError as err:
        return err.reason == "unexpected end of data"
    return True
