"""How much of the products of a model is added in narrow accumulators."""

import pandas as pd

from tracer.accumulators.multiplying import MULTIPLYING, PARTLY
from tracer.records.whatif import Coverage


def coverage(nodes: pd.DataFrame, narrow: pd.Series) -> Coverage:
    """Returns the coverage of the `narrow` nodes, a bool for each row.

    `nodes` has the columns `op_type` and `macs`. A node of unknown MACs multiplies if its operator
    does. An operator whose products are partly wide is not covered.
    """
    macs = nodes["macs"].astype("Float64")
    multiplies = (macs > 0).fillna(False) | (macs.isna() & nodes["op_type"].isin(MULTIPLYING))
    covered = multiplies & narrow.astype(bool) & ~nodes["op_type"].isin(PARTLY)
    known = macs[multiplies]
    share = None
    if len(known) and known.notna().all():
        share = float(macs[covered].sum() / known.sum())
    return Coverage(int(covered.sum()), int(multiplies.sum()), share)
