"""The text of the source lines that created the nodes, where the files are there."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tracer.text import printable

_MOST_BYTES = 4_000_000
"""Size of a source file. Larger ones are not written by people."""


def texts(places: Iterable[object]) -> Mapping[str, str]:
    """Returns the text of each line that `file.py:36` names, by the place as a table shows it.

    A model may name any file, and a report is sent to others: only Python files below the current
    folder are read. Places whose file or line is missing are left out.
    """
    distinct = dict.fromkeys(place for place in places if isinstance(place, str))
    files: dict[str, list[str]] = {}
    found = {}
    for place in distinct:
        name, _, number = place.rpartition(":")
        if name not in files:
            files[name] = _lines(name)
        if number.isdecimal() and 0 < int(number) <= len(files[name]):
            found[printable(place)] = printable(files[name][int(number) - 1].strip())
    return found


def _lines(name: str) -> list[str]:
    try:
        path = Path(name).resolve()
        is_own = path.suffix == ".py" and path.is_relative_to(Path.cwd())
        if not is_own or path.stat().st_size > _MOST_BYTES:
            return []
        return path.read_text("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):  # not there, not readable, or no name of a file at all
        return []
