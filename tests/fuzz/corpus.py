"""Files on which a command once failed: each goes through the commands of its kind again."""

from __future__ import annotations

import zlib
from pathlib import Path

from tests.fuzz.mutants import Mutant

FOLDER = Path(__file__).parent / "corpus"
"""A folder for each kind of file, of files named by what they made a command do."""


def files() -> list[Path]:
    """Returns the files, in an order that is the same everywhere."""
    return sorted(FOLDER.glob("*/*"))


def stored(number: int) -> Mutant:
    """Returns a file as a mutant; the commands it goes through depend on its content alone."""
    file = files()[number]
    content = file.read_bytes()
    return Mutant(number, file.parent.name, file.name, content, zlib.crc32(content))
