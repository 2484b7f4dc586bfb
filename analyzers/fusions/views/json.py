"""`.json`: the whole map (docs/fusions.md has the fields)."""

from __future__ import annotations

import msgspec

from analyzers.fusions import Fusions
from analyzers.fusions.words import sentences


def render(found: Fusions) -> bytes:
    """UTF-8 JSON, indented: `summary`, then the fields of `Fusions`."""
    plain = {
        "summary": sentences(found),
        "model": found.model,
        "environment": found.environment,
        "settings": found.settings,
        "inputs": found.inputs,
        "kernels": found.kernels,
        "nodes": found.nodes,
        "notes": found.notes,
    }
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"
