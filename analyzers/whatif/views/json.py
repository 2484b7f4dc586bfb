"""`.json`: everything a what-if found (docs/whatif.md has the fields)."""

from __future__ import annotations

from typing import Any

import msgspec

from analyzers.views.json import records
from analyzers.whatif import axes, nodes, rows
from tracer.records.whatif import Variant, WhatIf


def render(result: WhatIf) -> bytes:
    """UTF-8 JSON, indented; a missing value is null, and NaN never appears."""
    plain = {
        "model": result.model,
        "environment": result.environment,
        "settings": result.settings,
        "notes": result.notes,
        "judgement": result.judgement,
        "energy": result.energy,
        "variants": [_variant(one) for one in result.variants],
    }
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _variant(one: Variant) -> dict[str, Any]:
    answer = one.answer
    return {
        "accumulator": axes(one),
        "score": answer.score,
        "samples": answer.samples,
        "guaranteed": answer.guaranteed,
        "observed": answer.observed,
        "limiting": answer.limiting,
        "uniform": answer.uniform,
        "each": answer.each,
        "widths": records(rows(one)),
        "nodes": records(nodes(one)),
        "energies": one.energies,
        "front": answer.front,
        "evaluations": answer.evaluations,
        "screening": answer.screening,
    }
