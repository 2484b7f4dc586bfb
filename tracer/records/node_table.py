"""The node table as pandas holds it: all of `columns.COLUMNS`, each with its type."""

import pandas as pd

from tracer.records.columns import BY_NAME, COLUMNS, INTERMEDIATE


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """All columns in their order, each with its type; columns that `table` lacks are missing.

    Raises ValueError for a column that has no `ColumnSpec`.
    """
    unknown = sorted(set(table.columns) - set(COLUMNS) - INTERMEDIATE)
    if unknown:
        raise ValueError(f"no ColumnSpec in tracer/records/columns.py names {', '.join(unknown)}")
    table = table.reindex(columns=list(COLUMNS)).reset_index(drop=True)
    dtypes = {name: BY_NAME[name].dtype for name in COLUMNS}
    for name, dtype in dtypes.items():
        if dtype == "Int64":
            table[name] = pd.to_numeric(table[name])
    return table.astype(dtypes)
