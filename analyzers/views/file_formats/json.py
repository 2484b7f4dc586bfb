"""`.json`: everything a result holds, as one object."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.text import is_hidden

_UNUSUAL = re.compile(r"[^\x20-\x7e\n]")
"""What may be hidden; line breaks are those between values, for in texts they are escapes."""


def render(document: Mapping[str, Any], options: ViewOptions) -> bytes:
    """UTF-8 JSON, indented; NaN and infinities become null.

    Control characters, and those that change the direction of text, are escapes of JSON: a terminal
    does not obey them, and a reader gets the same text.
    """
    data = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return _UNUSUAL.sub(_escaped, data.decode()).encode()


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if not is_hidden(char):
        return char
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def compact(document: Mapping[str, Any]) -> bytes:
    """Returns JSON on one line, for other programs: all that is not ASCII is an escape.

    So any text survives, half a surrogate pair included. Raises ValueError for NaN and infinities.
    """
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def fields(result: object, *names: str) -> dict[str, Any]:
    """The fields of `result` with these names, in this order."""
    return {name: getattr(result, name) for name in names}


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with plain Python values; what is missing or infinite becomes None."""
    plain = table.astype(object).where(table.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in plain.to_dict("records")]


FORMATS = (Format("json", "document", render),)
