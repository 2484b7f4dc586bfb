"""Reads the node table of a .trace file: each column as its `ColumnSpec` says."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracer.records.columns import ColumnSpec, stored_spec
from tracer.records.node_table import typed
from tracer.storage.stored_file import StoredFile

_CELLS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "Int64": (int,),
    "Float64": (float, int),
    "float64": (float, int),
}
"""What SQLite returns for the cells of a column, by its type in pandas; None is a missing value."""


def read(file: StoredFile, dtypes: Mapping[str, str], lacking: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the node table; `lacking` are the cells of columns that older files lack.

    Columns that this version does not know are left out. Raises ValueError for a cell of another
    type, a node without a name, and columns that are not those of `dtypes`.
    """
    cursor = file.database.execute("SELECT * FROM nodes LIMIT 0")
    names = [column[0] for column in cursor.description]
    if set(names) != set(dtypes):
        raise ValueError("table nodes: it has other columns than were written")
    rows = file.rows("nodes", tuple, "SELECT * FROM nodes")
    columns = zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True)
    known = {name: (spec, cells) for name, cells in columns if (spec := stored_spec(name))}
    table = pd.DataFrame(
        {name: _column(name, spec, cells) for name, (spec, cells) in known.items()}
    )
    for name in ("node", "op_type"):
        if name not in table or table[name].isna().any():
            raise ValueError(f"table nodes: a row has no {name}")
    return typed(table.assign(**lacking))


def _column(name: str, spec: ColumnSpec, cells: Sequence[Any]) -> Any:
    allowed = {*_CELLS[spec.dtype], type(None)}
    if not allowed.issuperset(map(type, cells)):
        number = next(n for n, cell in enumerate(cells, 1) if type(cell) not in allowed)
        raise ValueError(f"table nodes, row {number}: {name} is of a wrong type")
    if spec.dtype == "float64":
        return np.array(cells, np.float64)  # None becomes NaN
    return pd.array(cells, dtype=spec.dtype)
