"""Where gptsh keeps things: the XDG folders, on macOS too."""

from pathlib import Path

from platformdirs.unix import Unix

from gptsh.errors import ConfigError


def state_folder() -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh``. Raises ConfigError for a user without a home."""
    return Path(_of("user_state_dir"))


def config_folder() -> Path:
    """``${XDG_CONFIG_HOME:-~/.config}/gptsh``. Raises ConfigError for a user without a home."""
    return Path(_of("user_config_dir"))


def cache_folder() -> Path:
    """``${XDG_CACHE_HOME:-~/.cache}/gptsh``. Raises ConfigError for a user without a home."""
    return Path(_of("user_cache_dir"))


def _of(kind: str) -> str:
    try:
        return str(getattr(Unix("gptsh", appauthor=False), kind))
    except RuntimeError as err:
        raise ConfigError("this user has no home folder", "set HOME, or XDG_STATE_HOME and XDG_CONFIG_HOME") from err
