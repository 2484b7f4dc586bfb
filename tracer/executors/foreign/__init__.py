"""Profiles that other programs recorded, with onnxruntime's or torch's profiler, as runs."""

from pathlib import Path
from typing import Literal

from tracer.errors import InputError

Kind = Literal["onnxruntime", "torch"]

_BEGIN = 4096
_PACKED = b"\x1f\x8b"


def kind_of(path: Path) -> Kind | None:
    """Returns whose profile a file is; None for what is no JSON.

    onnxruntime writes a list of events, torch an object. Raises InputError for a file that cannot
    be read, and for a compressed one.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            begin = stream.read(_BEGIN).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if begin.startswith(_PACKED) and ".json" in path.name:
        raise InputError(f"{path}: is compressed", "Unpack it first: gunzip FILE.")
    if begin.startswith(b"["):
        return "onnxruntime"
    return "torch" if begin.startswith(b"{") else None


def origin_notes(path: Path, profiler: str, subject: str) -> list[str]:
    """Returns notes on what the times of a file are; tracer itself would profile the `subject`."""
    return [
        f"times are those that {profiler} wrote to {path.name}, with its overhead: only a "
        f"calibrated run (tracer profile {subject}) can be corrected",
        "the file does not say on which machine, with how many threads and on which inputs it ran",
    ]
