"""How servers word their errors: each row of a table matches its own example, and no row before it does."""

import re

import pytest

from gptsh.llm import error_statuses, too_long

ROWS = [row for rows in error_statuses.WORDINGS.values() for row in rows]
WINDOW = 131_072


@pytest.mark.parametrize(("server", "pattern", "example"), too_long.WORDINGS)
def test_a_wording_for_a_prompt_that_is_too_long_matches_its_example_first(
    server: str, pattern: str, example: str
) -> None:
    assert too_long.means_too_long(example)
    first = next(row for row in too_long.WORDINGS if re.search(row[1], example, re.IGNORECASE))
    assert first == (server, pattern, example)


@pytest.mark.parametrize(("server", "pattern", "example"), too_long.WINDOWS)
def test_a_wording_of_the_window_matches_its_example_first(server: str, pattern: str, example: str) -> None:
    assert too_long.window_in(example) == WINDOW
    first = next(row for row in too_long.WINDOWS if re.search(row[1], example, re.IGNORECASE))
    assert first == (server, pattern, example)


@pytest.mark.parametrize(("server", "pattern", "example"), ROWS)
def test_a_wording_of_another_error_matches_its_example_first(server: str, pattern: str, example: str) -> None:
    assert not too_long.means_too_long(example)
    assert next(row for row in ROWS if re.search(row[1], example)) == (server, pattern, example)
