"""Find sentences in README and docs/ that are too long: ``python -m dev.man.sentences``, or ``make docs``."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MAX_WORDS = 35


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text without its code blocks. A list item, heading or table cell ends a sentence."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-*|#]|\d+\. )|(?<!`)\|(?!`)|<br>", text):
        yield from re.split(r"(?<=[.!?])\s+", " ".join(block.split()))


def words(sentence: str) -> int:
    """The number of words. Code between backticks counts as one, punctuation alone as none."""
    text = re.sub(r"`[^`]*`", "code", sentence)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"\S*\w\S*", text))


def main() -> int:
    """Print the long sentences; return 1 if there are any."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    long_sentences = [
        (page, s)
        for page in pages
        for s in sentences(page.read_text("utf-8"))
        if words(s) > MAX_WORDS
    ]
    for page, sentence in long_sentences:
        print(f"{page.relative_to(ROOT)}: {words(sentence)} words: {sentence}")
    return bool(long_sentences)


if __name__ == "__main__":
    sys.exit(main())
