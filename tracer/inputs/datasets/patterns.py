"""Files by a pattern: shards-{000..127}.tar, part-*.parquet."""

import itertools
import re
from pathlib import Path

from tracer.errors import InputError

_BRACES = re.compile(r"\{([^{}]+)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_WILD = re.compile(r"[*?\[]")


def files_of(pattern: Path) -> list[Path]:
    """Returns the file `pattern`, or those that a pattern names, which are sorted within each `*`.

    {000..127} is every number, {a,b} is each of these. Raises InputError where no file matches.
    """
    if pattern.is_file():
        return [pattern]
    found = [path for each in _expanded(str(pattern)) for path in _matching(Path(each))]
    if not found:
        raise InputError(
            f"{pattern}: no such file",
            "Name a file, or several: 'part-*.tar', 'part-{000..127}.tar' (in quotes).",
        )
    return found


def _expanded(pattern: str) -> list[str]:
    """Returns a pattern for each choice in braces."""
    literal_and_choices = _BRACES.split(pattern)
    choices = [
        _choices(text) if index % 2 else [text] for index, text in enumerate(literal_and_choices)
    ]
    return ["".join(parts) for parts in itertools.product(*choices)]


def _choices(text: str) -> list[str]:
    numbers = _RANGE.fullmatch(text)
    if numbers is None:
        return text.split(",")
    first, last = numbers.groups()
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]


def _matching(path: Path) -> list[Path]:
    wild = next((i for i, part in enumerate(path.parts) if _WILD.search(part)), None)
    if wild is None:
        if not path.is_file():
            raise InputError(f"{path}: no such file", "Name files that exist.")
        return [path]
    folder = Path(*path.parts[:wild])
    return sorted(each for each in folder.glob("/".join(path.parts[wild:])) if each.is_file())
