"""`.csv`: the table of layers, or of whole models where only they are compared; or of batches."""

from __future__ import annotations

import pandas as pd

from analyzers.compare import Comparison
from analyzers.compare.views import Result
from analyzers.views.csv import encoded


def render(result: Result, top: int | None) -> bytes:
    """UTF-8 CSV with a header; a missing value is an empty cell."""
    shown = _table(result)
    return encoded(shown.head(top) if top else shown)


def _table(result: Result) -> pd.DataFrame:
    if isinstance(result, Comparison):
        return result.totals if result.layers is None else result.layers
    labelled = [one.table.assign(side=one.label) for one in result]
    found = pd.concat(labelled, ignore_index=True)
    return found[["side", *(column for column in found.columns if column != "side")]]
