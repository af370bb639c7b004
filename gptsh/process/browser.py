"""Open a URL in the user's browser, if there is one with windows of its own."""

import os
import sys


def open_url(url: str) -> bool:
    """Open a URL; return whether a browser was started. One that would draw on this terminal is not."""
    has_windows = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not has_windows:
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
