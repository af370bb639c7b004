"""Build the message of a question from words, files, folders and piped text."""

import contextlib
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.config.agents import Agent
from gptsh.content import attachments
from gptsh.content.passages import question_gist
from gptsh.context.tokens import BYTES, MAX_BYTES
from gptsh.errors import TooLong, UsageError
from gptsh.messages import (
    Message,
    Part,
    beginning_of,
    is_blank,
    is_text,
    labelled_text,
    parts_of,
    text_part,
    user_message,
)
from gptsh.terminal import stdio
from gptsh.text import format_size, is_unicode, quantity

if TYPE_CHECKING:
    from gptsh.content.templates import Template
    from gptsh.llm.client import Client


# ---- attached files
#
# What ``-f`` and ``/file`` attach: files, a pattern's files, a folder's text files; the most that a
# window takes.

_MAX_MEDIA = 50_000_000  # bytes of images, documents, audio and video; no provider accepts more
_MAX_IN_FOLDER = 1_000_000  # bytes of a text file; data and logs are larger, code and prose are not
_MAX_FOLDER = 50_000_000  # bytes of a folder's text files together; no window is that large
_FIRST_BYTES = 1 << 16  # bytes by which the type of a long file is detected while it is read
_LARGE = 1_000_000  # bytes of text; more may not fit the window
_WILDCARD = r"[*?[]"
_SENDABLE = "text, PNG, JPEG, GIF, WebP, PDF, WAV, MP3, MP4, WebM and MPEG"


class Files:
    """Reads the files of one question as parts, each file once. ``sizes``: their bytes by path.

    While a long text is read, the ``client`` asks for the window of the model; with ``refuses`` a
    text that is larger than a known window is refused.
    """

    def __init__(
        self,
        client: "Client | None" = None,
        model: str | None = None,
        *,
        refuses: bool = True,
    ) -> None:
        self.sizes: dict[str, int] = {}
        self._read: set[tuple[int, int] | str] = set()  # the identities of the files
        self._media_size = 0
        self._client = client
        self._model = model
        self._refuses = refuses
        self._has_asked = False

    def attach(self, values: Iterable[str]) -> list[Part]:
        """Read what values of ``-f`` mean: a file, a folder or a pattern. A folder gets a note.

        Raises UsageError for a source that is unreadable, of a type that cannot be sent, or too
        large; TooLong for a folder with too much text.
        """
        parts: list[Part] = []
        for value in values:
            path = value if os.path.lexists(value) else os.path.expanduser(value)
            if os.path.isdir(path):
                sources = self._texts_of_folder(path)
            elif "://" in path or is_path(path) or not _levels_of_pattern(path):
                sources = self._files([path])  # maybe one whose name looks like a pattern
            else:
                sources = self._files_of_pattern(path)
            parts += self.parts(sources)
        return parts

    def _files(self, paths: Iterable[str]) -> Iterator[tuple[str, bytearray]]:
        """Yield path and data of the files that are not read yet."""
        for path in paths:
            if self._is_new(path):
                data = stdio.read_file(path, self.check_of(path))
                self.sizes[path] = len(data)
                yield path, data

    def _is_new(self, path: str) -> bool:
        """Whether a file is not read yet, under any name: a link, or a name in other case."""
        identity: tuple[int, int] | str = path
        with contextlib.suppress(OSError, ValueError):  # reading it reports why
            info = os.stat(path)
            identity = (info.st_dev, info.st_ino)
        is_new = identity not in self._read
        self._read.add(identity)
        return is_new

    def _files_of_pattern(self, pattern: str) -> Iterator[tuple[str, bytearray]]:
        """Yield path and data of the files that match, then note which are left out."""
        from gptsh.turn.folder_search import FolderSearch

        levels = _levels_of_pattern(pattern)
        above = pattern.removesuffix("/".join(levels))
        search = FolderSearch(above.rstrip("/") or above or ".")
        paths = [*search.matches(levels)]
        left_out = search.left_out_note()
        if not paths:
            raise UsageError(f"no file matches {pattern}", left_out)
        yield from self._files(paths)
        if left_out:
            stdio.note(f"{pattern}: {left_out}")

    def _texts_of_folder(self, folder: str) -> Iterator[tuple[str, bytearray]]:
        """Yield path and data of the text files, then note their number and which are left out."""
        from gptsh.turn.folder_search import FolderSearch

        search = FolderSearch(folder)
        count = 0
        size = 0
        sent_size = 0  # with the path above each file
        is_empty = True
        for path in search.all_files():
            data, reason = _short_text(path)
            if reason:
                search.left_out[path] = reason
                continue
            is_empty = False
            if not self._is_new(path):
                continue
            count += 1
            size += len(data)
            sent_size += len(data) + len(labelled_text(text_part(path, "")))
            if size > _MAX_FOLDER:
                problem = f"{folder} has more than {format_size(_MAX_FOLDER)} of text"
                raise TooLong(problem, "name a smaller folder")
            self.sizes[path] = len(data)
            yield path, data
        left_out = search.left_out_note()
        if is_empty:
            raise UsageError(f"{folder} has no text file to send", left_out)
        tokens = sent_size // BYTES
        files = quantity(count, "file")
        stdio.note(f"{folder}: {files}, {format_size(size)}, about {tokens:,} tokens")
        if left_out:
            stdio.note(f"{folder}: {left_out}")

    def check_of(self, source: str) -> stdio.Check:
        """Return a check for reading a source: it raises TooLong once a text exceeds the window."""

        def check(data: bytearray) -> None:
            is_media = attachments.may_be_pdf(data) or attachments.detect_type(data[:_FIRST_BYTES])
            if self._client is None or self._model is None or is_media:
                return
            if not self._has_asked:
                self._has_asked = True
                self._client.windows.ask_early(self._model)
            if not self._refuses or len(data) <= _LARGE:
                return
            window = self._client.windows.of(self._model, ask=False)
            if window is not None and len(data) > MAX_BYTES * window:
                size = f"more than {format_size(len(data))}"
                problem = f"{source} has {size}, and the window is {window:,} tokens"
                raise TooLong(problem, "--truncate cuts what is piped or attached")

        return check

    def parts(self, sources: Iterable[tuple[str, bytearray]]) -> Iterator[Part]:
        """Convert pairs of name and data to parts. Raises UsageError as ``attach``.

        Data that is text is cleared, so that a large text is in memory once.
        """
        for source, data in sources:
            kind = attachments.detect_type(data)
            if kind is None:
                if data.startswith(BOM_UTF8):
                    del data[: len(BOM_UTF8)]
                yield text_part(source, data.decode(errors="surrogateescape"))
                data.clear()
                continue
            if kind not in attachments.SENDABLE:
                advice = f"only {_SENDABLE} can be sent"
                if kind == attachments.UTF_16:
                    advice = "iconv -f utf-16 -t utf-8 converts it to text that can be sent"
                raise UsageError(f"{source} is {kind} ({format_size(len(data))})", advice)
            self._media_size += len(data)
            if self._media_size > _MAX_MEDIA:
                problem = f"with {source} the attachments are {format_size(self._media_size)}"
                most = f"{format_size(_MAX_MEDIA)} of images, PDF, audio and video"
                raise UsageError(problem, f"{most} can be sent at most")
            yield attachments.media_part(source, kind, data)


def is_path(value: str) -> bool:
    """Return whether a value of ``-f`` names a file or folder as it is, and is no pattern."""
    return os.path.lexists(os.path.expanduser(value))


def _levels_of_pattern(path: str) -> list[str]:
    """Return the levels of a path from its first wildcard on; none if it has no wildcard.

    A folder whose name looks like a pattern is that folder.
    """
    levels = path.split("/")
    for index, level in enumerate(levels):
        if re.search(_WILDCARD, level) and not os.path.isdir("/".join(levels[: index + 1])):
            return levels[index:]
    return []


def _short_text(path: str) -> tuple[bytearray, str]:
    """Read a file of a folder; return its data, and what else it is than a short text, else ""."""
    size = os.path.getsize(path)
    if size > _MAX_IN_FOLDER:
        return bytearray(), format_size(size)
    try:
        data = stdio.read_file(path)
    except UsageError as err:
        return bytearray(), str(err).removeprefix(f"{path}: ")
    return data, attachments.detect_type(data) or ""


# ---- the command line


def check_words(argv: Sequence[str], prompt: Sequence[str]) -> None:
    """Raise UsageError if the shell has expanded a pattern: the next word is a file, too."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    for option, value, word in zip(words, words[1:], words[2:], strict=False):
        if word not in prompt or not re.fullmatch("--file|-[a-z]*f", option):
            continue
        if os.path.isfile(word) or (os.path.isdir(word) and len(prompt) > 1):
            raise UsageError(
                f"{word} after -f {value} is a file, not a prompt",
                "put a pattern in quotes, as in -f '*.py', or -- before the prompt",
            )


# ---- question

_MAX_INPUT = 2000  # characters of the input of an agent's prompt that are kept for titles and lists


def read_question(
    words: str,
    paths: Sequence[str] = (),
    files: Files | None = None,
    *,
    attached: Sequence[Part] = (),
    pipe_at: int | None = None,
    expects_pipe: bool = True,
    template: "Template | None" = None,
    write: Callable[[str, Sequence[Part]], str] | None = None,
) -> Message | None:
    """Read the words, files and piped input as one message; None if all of it is blank.

    ``attached`` are parts that it has in any case. ``files`` read the paths; without a path or a
    pipe they may be None. ``pipe_at`` is the place of the piped input among them (None: it is not
    read). ``expects_pipe``: there is nothing to do without a pipe, if there are no words. A
    ``template`` makes the question of the words and piped text; it is not used if it needs them and
    there are none. ``write`` lets the user write the words, from those that are given and the piped
    input; None if they are blank then.

    The pipe is read last: a missing file must not cost it. Raises UsageError and TooLong as
    ``Files.attach``.
    """
    before: list[Part] = []
    piped: list[Part] = []
    after: list[Part] = []
    if files and paths:
        before = files.attach(paths[:pipe_at])
        after = [] if pipe_at is None else files.attach(paths[pipe_at:])
    if files and pipe_at is not None:
        has_prompt = bool(words.strip() or before or after)
        piped = _read_pipe(files, has_prompt=has_prompt, expects_pipe=expects_pipe)
    parts = [*before, *piped, *after]
    if write:
        words = write(words, piped)
        if not words.strip():
            return None

    _note_invalid(words, parts)
    parts = [*attached, *parts]
    given = user_message(words, parts)
    if template and (parts or words.strip() or not template.needs_input):
        piped_text = piped[0] if piped and is_text(piped[0]) else None
        others = [part for part in parts if part is not piped_text]
        return _as_input(given, [*template.question(words, piped_text), *others])
    return None if is_blank(given) else given


def _read_pipe(files: Files, *, has_prompt: bool, expects_pipe: bool) -> list[Part]:
    """Read the piped input as parts; none if it is blank, which is noted where it was expected."""
    is_prompted = has_prompt or not expects_pipe
    data = stdio.read_piped(prompted=is_prompted, check=files.check_of("stdin"))
    if data and not data.isspace():
        return [*files.parts([("stdin", data)])]
    if is_prompted and expects_pipe and stdio.is_pipe(sys.stdin):
        stdio.note("nothing was piped in: only the prompt is sent")
    return []


def _as_input(given: Message, content: list[Part]) -> Message:
    """Return the question that an agent's prompt makes, with the beginning of what was given."""
    question: Message = {"role": "user", "content": content}
    input_text = beginning_of(given, _MAX_INPUT)[:_MAX_INPUT].strip() or question_gist(given)
    if input_text:
        question["input"] = input_text
    return question


def _note_invalid(words: str, parts: Sequence[Part]) -> None:
    """Note which of the words and texts are not UTF-8."""
    invalid = [] if is_unicode(words) else ["the prompt"]
    for part in parts:
        if not is_unicode(part.get("text", "")):
            invalid.append(part["source"])
    if invalid:
        stdio.note(
            f"not valid UTF-8: {', '.join(invalid)}: the invalid bytes are saved, and sent as "
            "U+FFFD; iconv -f ENCODING -t utf-8 converts the text"
        )


def has_piped_input(question: Message | None) -> bool:
    """Return whether part of a question was piped in: the user cannot type that again."""
    sources = [part.get("source") for part in parts_of(question)] if question else []
    return "stdin" in sources


def template_of(agent: Agent, pairs: Sequence[str], option: str) -> "Template | None":
    """Return the agent's prompt with the values of ``NAME=VALUE`` pairs; None without a prompt.

    Raises UsageError for a missing or unknown name, with the ``option`` that sets values.
    """
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {pair!r}: expected NAME=VALUE")
        values[name] = value
    if agent.prompt is None:
        if values:  # the session goes on, or the agent has none
            first = next(iter(values))
            problem = f"no prompt of an agent makes this question, so it has no {{{first}}}"
            raise UsageError(problem, "-a NAME chooses an agent with a prompt")
        return None
    from gptsh.content import templates

    names = agent.prompt_names()
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    prompt = f"the prompt of agent {agent.name}"
    if missing:
        ways = " ".join(f"{option} {name}=…" for name in missing)
        first = missing[0]
        ways += f", or {option} '{first}={{{{{first}}}}}' if those braces are text"
        raise UsageError(f"{prompt} has no value for {', '.join(missing)}", f"add {ways}")
    if unknown:
        known = f"it has {', '.join(names)}" if names else "it has no names"
        raise UsageError(f"{prompt} has no {{{unknown[0]}}}", known)
    return templates.Template(agent.prompt, values)
