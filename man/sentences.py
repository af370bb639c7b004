"""Sentences of README and docs/ that are too long to be read at once: ``python -m man.sentences``, or ``make docs``."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 30  # words


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text, without code blocks. A list item, a heading and a table's cell end one."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-*|#]|\d+\. )|(?<!`)\|(?!`)", text):
        yield from re.split(r"(?<=[.!?])\s+", " ".join(block.split()))


def words(sentence: str) -> int:
    """How many words a sentence has. Code between backticks is one; marks alone are none."""
    whole = re.sub(r"`[^`]*`", "code", sentence)
    whole = re.sub(r"\]\([^)]*\)", "]", whole)
    return len(re.findall(r"\S*\w\S*", whole))


def main() -> int:
    """Print the long sentences; 1 where there are some."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [(page, s) for page in pages for s in sentences(page.read_text("utf-8")) if words(s) > MOST]
    for page, sentence in found:
        print(f"{page.relative_to(ROOT)}: {words(sentence)} words: {sentence}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
