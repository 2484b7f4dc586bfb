"""Keeps what a report of an internal error needs in a file: traceback, versions, command line.

It holds no values and no data, and names of a model only where the traceback's last line has them.
"""

import platform
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracer.support import files
from tracer.text import LINE, printable

_MOST_FRAMES = 60
_KEPT = 20
"""Files kept in the folder; older ones go."""


def write_incident(error: BaseException, command: Sequence[str]) -> Path | None:
    """Writes the file, in the user's cache folder or that for temporary files; None if neither can.

    Returns its path.
    """
    lines = [printable(line, LINE) for line in _lines(error, command)]
    name = (
        f"internal-error-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() // 1000 % 10**6:06}.txt"
    )
    for folder in (files.cache_folder() / "errors", Path(tempfile.gettempdir())):
        if files.store_in_cache(folder / name, ("\n".join(lines) + "\n").encode()):
            for older in sorted(folder.glob("internal-error-*.txt"))[:-_KEPT]:
                older.unlink(missing_ok=True)
            return folder / name
    return None


def _lines(error: BaseException, command: Sequence[str]) -> Iterator[str]:
    from tracer.records import environment

    yield f"command: {shlex.join(command)}"
    yield f"python: {sys.version}"
    yield f"system: {platform.platform()}, {environment.cpu_model()}"
    yield from (f"{name}: {version}" for name, version in environment.versions().items())
    yield ""
    for part in traceback.format_exception(error, limit=-_MOST_FRAMES):
        yield from part.rstrip("\n").split("\n")
