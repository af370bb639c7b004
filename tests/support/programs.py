"""Programs that only some machines have: a test that starts one is skipped on the others."""

import shutil

import pytest


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test where this program is not installed."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")
