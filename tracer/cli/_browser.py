"""Opens a report in the user's browser, or says where the report is."""

import os
import sys
import webbrowser
from pathlib import Path

from tracer.cli._messages import tell


def show(path: Path) -> None:
    """Opens `path` in a browser. Without a screen or a browser, says what to open instead."""
    whole = path.absolute()
    if not (_has_screen() and webbrowser.open(whole.as_uri())):
        tell(f"no browser here: open {whole}")


def _has_screen() -> bool:
    """Returns whether a window can open: text browsers would take the terminal instead."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
