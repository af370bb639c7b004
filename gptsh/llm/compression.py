"""Decompress a body in gzip or deflate: gptsh asks for neither, but some gateways compress every response."""

import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

from gptsh.errors import ConnectionLost, ModelError

ENCODINGS = ("gzip", "x-gzip", "deflate")
_MAX_PIECE = 1 << 16  # bytes that are decompressed at once: a few bytes may expand to gigabytes
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS  # forms of ``zlib.decompressobj``
_GZIP_START = b"\x1f\x8b"
_DEFLATE = 8  # the method in the first byte of zlib's form


def decompress(chunks: Iterator[bytes], host: str) -> Iterator[bytes]:
    """Yield the decompressed body in pieces, each as soon as its bytes have arrived; errors name ``host``.

    Raises ConnectionLost if the body ends too early, ModelError if it is damaged, and what ``chunks`` raises.
    """
    start = b""
    while len(start) < len(_GZIP_START) and (chunk := next(chunks, b"")):
        start += chunk
    form = _form(start)
    stream = zlib.decompressobj(form)
    try:
        for data in chain([start], chunks):
            while data:
                if stream.eof:  # gzip may consist of several streams
                    stream = zlib.decompressobj(form)
                yield from _pieces(stream, data)
                data = stream.unused_data
    except zlib.error as err:
        raise ModelError(f"{host} sent an answer that cannot be decompressed: {err}") from err
    if start and not stream.eof:
        raise ConnectionLost(f"the connection to {host} broke off")


def _pieces(stream: Any, data: bytes) -> Iterator[bytes]:
    """Yield what a decompressor makes of all these bytes."""
    while piece := stream.decompress(data, _MAX_PIECE):
        yield piece
        data = stream.unconsumed_tail


def _form(start: bytes) -> int:
    """The form of a compressed body by its first bytes: some servers call raw deflate what should be zlib's."""
    if start.startswith(_GZIP_START):
        return _GZIP
    is_zlib = len(start) > 1 and start[0] & 15 == _DEFLATE and int.from_bytes(start[:2]) % 31 == 0  # RFC 1950
    return _ZLIB if is_zlib else _RAW
