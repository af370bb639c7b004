"""Read a text file that the user or the configuration names: of at most 1 MB, as a rule."""

import errno
import os
import stat
from pathlib import Path

from gptsh.text import format_size

_MAX_BYTES = 1_000_000


def read_text(path: Path, *, max_bytes: int = _MAX_BYTES, may_be_pipe: bool = False) -> str:
    """Return the text of a file in UTF-8, without its byte order mark.

    ``may_be_pipe``: the user named it on the command line, as in ``--config <(…)``. Raises OSError,
    also for a file that is too large or no regular file, and UnicodeDecodeError.
    """
    if not may_be_pipe and not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe may wait
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {format_size(max_bytes)}")
    return data.decode("utf-8-sig")
