"""Watches which files of the user's a piece of code depends on: its modules, and what it opens."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOME = Path(__file__).parents[2]
_VERSIONED = (
    Path(sys.prefix), Path(sys.base_prefix),
    *(_HOME / package for package in ("tracer", "analyzers", "exporters")),
)  # fmt: skip
"""Folders of installed packages and of this program: their versions tell what is in them."""
_VIRTUAL = (Path("/dev"), Path("/proc"), Path("/sys"))
_PACKAGES = frozenset({"site-packages", "dist-packages", "__pycache__"})
_WRITING = frozenset("wax+")

_watching: list[set[str]] = []
_is_hooked = False


@contextmanager
def files_read() -> Iterator[set[Path]]:
    """Gives a set that holds, after the `with`, the files that it read and all imported files.

    Files of installed packages and of this program are left out. What native code opens is not
    seen.
    """
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_note)  # for the life of the process: there is no way back
        _is_hooked = True
    opened, found = set[str](), set[Path]()
    _watching.append(opened)
    try:
        yield found
    finally:
        _watching.pop()
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(name).resolve() for name in (*opened, *filter(None, modules))}
    found |= {path for path in paths if path.is_file() and _is_users(path)}


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watching:
        return
    name, mode = arguments[:2]
    is_written = isinstance(mode, str) and _WRITING.intersection(mode)
    if isinstance(name, str | Path) and not is_written:
        _watching[-1].add(str(name))


def _is_users(path: Path) -> bool:
    folders = (*_VERSIONED, *_VIRTUAL)
    return _PACKAGES.isdisjoint(path.parts) and not any(map(path.is_relative_to, folders))
