"""Where gptsh keeps things: the XDG folders, on macOS too."""

from pathlib import Path
from typing import Literal

from platformdirs.unix import Unix

from gptsh.errors import ConfigError


def app_folder(kind: Literal["state", "config", "cache"]) -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh``, or the one of another kind; it may not exist.

    Raises ConfigError for a user without a home.
    """
    try:
        return Path(getattr(Unix("gptsh", appauthor=False), f"user_{kind}_dir"))
    except RuntimeError as err:
        raise ConfigError("this user has no home folder", "set HOME, or XDG_STATE_HOME and XDG_CONFIG_HOME") from err
