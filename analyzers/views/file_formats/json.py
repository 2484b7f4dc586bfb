"""`.json`: everything a result holds, as one object."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from analyzers.options import ViewOptions
from analyzers.views.format import Format


def render(document: Mapping[str, Any], options: ViewOptions) -> bytes:
    """UTF-8 JSON, indented; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def fields(result: object, *names: str) -> dict[str, Any]:
    """The fields of `result` with these names, in this order."""
    return {name: getattr(result, name) for name in names}


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with plain Python values; what is missing or infinite becomes None."""
    plain = table.astype(object).where(table.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in plain.to_dict("records")]


FORMATS = (Format("json", "document", render),)
