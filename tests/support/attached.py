"""Files to attach, and texts that attack the program that shows them."""

import contextlib
import os
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path


def make_png(width: int = 1, height: int = 1) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = zlib.compress((b"\0" + bytes(width)) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def make_pdf(count: int = 1, *, more: int = 0) -> bytes:
    """A PDF of ``count`` pages, with ``more`` bytes before its page tree."""
    tree = b"<< /Type /Pages /Kids [ 3 0 R ] /Count %d >>" % count
    filler = (
        b"4 0 obj\n<< /Length %d >> stream\n%s\nendstream endobj\n" % (more, b"x" * more)
        if more
        else b""
    )
    return b"%PDF-1.5\n" + filler + b"2 0 obj\n" + tree + b"\nendobj\nstartxref\n0\n%%EOF\n"


@contextlib.contextmanager
def nested_folders(parent: Path, depth: int = 1500) -> Iterator[None]:
    """A folder in a folder in a folder: its path is too long for the system. pytest could not remove it."""
    folder = os.open(parent, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=folder)
        inner = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        yield
    finally:
        subprocess.run(["rm", "-r", parent / "deep"], check=True)


HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "</style></title></main>",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html;base64,PHNjcmlwdD4=)", "<javascript:x>",
    "[a](vbscript:x)", "![i](https://evil.example/track.png)", "![i](data:image/svg+xml;base64,PHN2Zz4=)",
    "[![i](https://a.example/i.png)](https://b.example)", '[a](https://x.example/"onmouseover=alert(1) "t")',
    "<!-- c -->", "<!-- ", "<![CDATA[x]]>", "<?php x ?>", "<iframe src=//evil.example></iframe>", "&lt;script&gt;",
    "&#27;[31m", "&#13;x&#8238;y", "\x1b]0;x\x07", "\ud800", "\0", "\u202e", "`<b>`", "<b", "~~x~~ **y** *z*",
    "```<script>\n</code></pre><script>\n```", "| a | b |\n|--|--|\n| <i> | x |\n", "| a |\n|--|\n| 1 | lost |\n",
    "[x]: javascript:alert(1)\n[x]", "1) a\n7. b\n999999999. c\n", "# h\n###### h6\n", "> " * 25 + "deep",
    "- " * 40 + "x", "![" * 300, "*a **b " * 100, "http://\\\"><script>", "<https://a.example/'><script>'>",
    "a\r\nb\rc", "[a](file:///etc)", "[a](https://evil.example/<script>)", "```py onload=x\nx = '</script>'\n```",
    "~~~\"><script>\nx\n~~~", "$<b>$",
]  # fmt: skip
