"""The widths of all variants as one table: what CSV and Parquet hold."""

from __future__ import annotations

import pandas as pd

from analyzers.whatif import axes, rows
from tracer.records.whatif import WhatIf


def table(result: WhatIf) -> pd.DataFrame:
    """The rows of all variants, with what makes each variant before them."""
    found = []
    for one in result.variants:
        own = rows(one)
        for place, (name, value) in enumerate(axes(one).items()):
            own.insert(place, name, value)
        found.append(own)
    whole = {"product_bits": "Int64", "weight_bits": "Int64", "activation_bits": "Int64"}
    return pd.concat([each.astype(whole) for each in found], ignore_index=True)
