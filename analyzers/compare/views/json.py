"""`.json`: everything a comparison or a sweep found (docs/comparing.md has the fields)."""

from __future__ import annotations

from typing import Any

import msgspec

from analyzers.compare import Comparison
from analyzers.compare.contrast import LEVEL
from analyzers.compare.layers import letter
from analyzers.compare.numbers import Numbers
from analyzers.compare.sides import Side
from analyzers.compare.sweep import Sweep
from analyzers.compare.views import Result
from analyzers.views.json import records


def render(result: Result, top: int | None) -> bytes:
    """UTF-8 JSON, indented; a missing value is null, and NaN never appears."""
    plain = (
        _comparison(result, top)
        if isinstance(result, Comparison)
        else {"sweeps": [_sweep(one) for one in result]}
    )
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _comparison(result: Comparison, top: int | None) -> dict[str, Any]:
    layers = None
    if result.layers is not None:
        layers = records(result.layers.head(top) if top else result.layers)
    return {
        "by": result.by,
        "level": LEVEL,
        "sides": [_side(side, letter(index)) for index, side in enumerate(result.sides)],
        "totals": records(result.totals),
        "layers": layers,
        "numbers": [_numbers(found) for found in result.numbers],
        "notes": result.notes,
    }


def _side(side: Side, name: str) -> dict[str, Any]:
    rounds = side.wall.rounds
    return {
        "letter": name,
        "label": side.label,
        "executor": side.run.executor,
        "batch": side.run.batch,
        "model": side.trace.model,
        "environment": side.trace.environment,
        "settings": side.trace.settings,
        "rounds_us": None if rounds is None else rounds.tolist(),
        "notes": side.trace.notes,
    }


def _numbers(found: Numbers) -> dict[str, Any]:
    return {
        "first": found.first,
        "second": found.second,
        "rtol": found.relative,
        "atol": found.absolute,
        "first_divergence": found.first_divergence,
        "outputs": records(found.outputs),
        "layers": records(found.layers),
        "notes": found.notes,
    }


def _sweep(one: Sweep) -> dict[str, Any]:
    return {
        "label": one.label,
        "executor": one.sides[0].run.executor,
        "model": one.sides[0].trace.model,
        "environment": one.sides[0].trace.environment,
        "batches": one.batches,
        "operators": records(one.table),
    }
