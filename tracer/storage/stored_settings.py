"""Reads the settings of a stored result: any values of JSON, but few of them and not deep."""

from typing import Any

import msgspec

from tracer.storage.stored_file import decoded, naming

_MOST_BYTES = 1 << 20
_MOST_DEPTH = 8
"""Settings of a merged trace hold those of other traces: a list of objects of lists and objects."""


class _Energy(msgspec.Struct):
    """The energy model of a trace, which views name."""

    model: str
    unit: str


def read(text: str | msgspec.Raw) -> dict[str, Any]:
    """Returns settings by name. Raises ValueError or MsgspecError for malformed ones."""
    size = len(text) if isinstance(text, str) else len(bytes(text))
    if size > _MOST_BYTES:
        raise ValueError(f"settings of {size:,} bytes, at most {_MOST_BYTES:,}")
    settings = decoded(text, dict[str, Any])
    if not _is_shallow(settings, _MOST_DEPTH):
        raise ValueError(f"settings nested more than {_MOST_DEPTH} deep")
    with naming("energy"):
        msgspec.convert(settings.get("energy"), _Energy | str | None)
    with naming("merged"):
        msgspec.convert(settings.get("merged", []), list[dict[str, Any]])
    return settings


def _is_shallow(value: Any, depth: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(part, depth - 1) for part in parts)
