"""Opens a report in the user's browser, or says where the report is."""

import os
import sys
import webbrowser
from pathlib import Path

from tracer.cli._messages import tell


def show(path: Path) -> None:
    """Opens `path` in a browser. Without a screen or a browser, says what to open instead."""
    whole = path.absolute()
    # Without a screen, a text browser would take the terminal instead.
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not (has_screen and webbrowser.open(whole.as_uri())):
        tell(f"no browser here: open {whole}")
