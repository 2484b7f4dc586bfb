"""`.finn.json` and `.hls4ml.yml`: the widths of accumulators, for FINN and for hls4ml."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format


def render_json(document: Mapping[str, Any], options: ViewOptions) -> bytes:
    """JSON, indented; all that is not ASCII is an escape."""
    return (json.dumps(document, indent=2) + "\n").encode()


def render_yaml(document: Mapping[str, Any], options: ViewOptions) -> bytes:
    """YAML, a line for each key; texts are quoted, so that they are nothing but texts."""
    return ("\n".join(_lines(document, "")) + "\n").encode()


def _lines(document: Mapping[str, Any], margin: str) -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield f"{margin}{key}:"
            yield from _lines(value, f"{margin}  ")
        else:
            yield f"{margin}{key}: {json.dumps(value)}"


FORMATS = (
    Format("finn.json", "finn", render_json),
    Format("hls4ml.yml", "hls4ml", render_yaml),
)
