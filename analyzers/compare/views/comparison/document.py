"""The JSON document of a Comparison."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import records


def document(result: Comparison, options: ViewOptions) -> dict[str, Any]:
    """All tables, and the sides with their models and sessions."""
    return {
        "by": result.by,
        "level": LEVEL,
        "sides": [_side(side, letter(index)) for index, side in enumerate(result.sides)],
        "totals": records(result.totals),
        "layers": None if result.layers is None else records(_top(result.layers, options)),
        "layer_sums": [{**asdict(each), "agrees": each.agrees} for each in result.sums],
        "numbers": [
            {
                "first": numbers.first,
                "second": numbers.second,
                "rtol": numbers.tolerance.relative,
                "atol": numbers.tolerance.absolute,
                "no_verdict": numbers.no_verdict,
                "is_isolated": numbers.is_isolated,
                "first_divergence": numbers.first_divergence,
                "outputs": records(numbers.outputs),
                "layers": records(numbers.layers),
                "notes": numbers.notes,
            }
            for numbers in result.numbers
        ],
        "scores": [asdict(each) for each in result.scores],
        "verdicts": [
            {"side": each.side, "gate": each.gate, "outcome": each.outcome, "line": each.line}
            for each in result.verdicts
        ],
        "notes": result.notes,
    }


def _side(side: Side, letter: str) -> dict[str, Any]:
    sessions = side.wall.sessions
    return {
        "letter": letter,
        "label": side.label,
        "executor": side.run.executor,
        "batch": side.run.batch,
        "model": side.trace.model,
        "environment": side.trace.environment,
        "settings": side.trace.settings,
        "sessions_us": None if sessions is None else [float(np.median(each)) for each in sessions],
        "notes": side.notes,
    }


def _top(rows: pd.DataFrame, options: ViewOptions) -> pd.DataFrame:
    return rows.head(options.top) if options.top else rows
