"""Folders of the repository."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
HISTORIES = DATA / "histories"
SUPPORT = ROOT / "tests" / "support"
