"""Where gptsh keeps its files: the XDG folders for state, config and cache, on macOS too."""

from pathlib import Path
from typing import Literal

from platformdirs.unix import Unix

from gptsh.errors import ConfigError


def app_folder(kind: Literal["state", "config", "cache"]) -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh``, or the folder of another kind; it may not exist.

    Raises ConfigError if the user has no home folder.
    """
    try:
        return Path(getattr(Unix("gptsh", appauthor=False), f"user_{kind}_dir"))
    except RuntimeError as err:
        ways = "set HOME, or XDG_STATE_HOME and XDG_CONFIG_HOME; --no-save needs none"
        raise ConfigError("this user has no home folder", ways) from err
