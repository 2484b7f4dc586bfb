"""The node table as pandas holds it: all of `columns.COLUMNS`, each with its type.

A merged trace also has marked columns, such as `time_us@reference`, of its other executors.
"""

import pandas as pd

from tracer.records.columns import COLUMNS, INTERMEDIATE, stored_spec


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """All columns in their order, each with its type; columns that `table` lacks are missing.

    Raises ValueError for a column that has no `ColumnSpec`.
    """
    specs = {name: spec for name in table.columns if (spec := stored_spec(name)) is not None}
    unknown = sorted(set(table.columns) - set(specs) - INTERMEDIATE)
    if unknown:
        raise ValueError(f"no ColumnSpec in tracer/records/columns.py names {', '.join(unknown)}")
    names = [*COLUMNS, *(name for name in specs if name not in COLUMNS)]
    table = table.reindex(columns=names).reset_index(drop=True)
    dtypes = {name: spec.dtype for name in names if (spec := stored_spec(name)) is not None}
    for name, dtype in dtypes.items():
        if dtype == "Int64":
            table[name] = pd.to_numeric(table[name])
    return table.astype(dtypes)
