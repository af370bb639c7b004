"""How servers word their errors: each row of a table matches its own example, and no row before it does."""

import re

import pytest

from gptsh.llm import wordings

ROWS = [row for rows in wordings.STATUS_WORDINGS.values() for row in rows]
WINDOW = 131_072


@pytest.mark.parametrize(("server", "pattern", "example"), wordings.TOO_LONG_WORDINGS)
def test_a_wording_for_a_prompt_that_is_too_long_matches_its_example_first(
    server: str, pattern: str, example: str
) -> None:
    assert wordings.means_too_long(example)
    first = next(
        row for row in wordings.TOO_LONG_WORDINGS if re.search(row.pattern, example, re.IGNORECASE)
    )
    assert first == (server, pattern, example)


@pytest.mark.parametrize(("server", "pattern", "example"), wordings.WINDOW_WORDINGS)
def test_a_wording_of_the_window_matches_its_example_first(
    server: str, pattern: str, example: str
) -> None:
    assert wordings.window_named_in(example) == WINDOW
    first = next(
        row for row in wordings.WINDOW_WORDINGS if re.search(row.pattern, example, re.IGNORECASE)
    )
    assert first == (server, pattern, example)


@pytest.mark.parametrize(("server", "pattern", "example"), ROWS)
def test_a_wording_of_another_error_matches_its_example_first(
    server: str, pattern: str, example: str
) -> None:
    assert not wordings.means_too_long(example)
    assert next(row for row in ROWS if re.search(row.pattern, example)) == (
        server,
        pattern,
        example,
    )
