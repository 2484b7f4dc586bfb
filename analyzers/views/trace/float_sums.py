"""What float accumulators did, in words."""

import pandas as pd

from tracer.accumulators.statistics.float_tally import FloatTally
from tracer.analyzers.views.text import digits, percent, plural, si
from tracer.text import brief

_LEAST = 0.001
"""Share below which a percentage with one decimal would be 0."""


def described(tally: FloatTally) -> str:
    """The accumulator, and the format of its operands if they were cast."""
    return tally.accumulator if tally.operands is None else f"{tally.accumulator}, {tally.operands}"


def words(floats: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on rows with float accumulators: what overflows, which terms are lost, errors."""
    outputs, over = (int(floats[name].sum()) for name in ("outputs", "overflow_outputs"))
    nodes = int((floats["overflow_outputs"] > 0).sum())
    kinds = floats["accumulator"].unique()
    kind = str(kinds[0]) if len(kinds) == 1 else "their float accumulators"
    if not over:
        first = f"nothing overflows {kind}: {plural(len(floats), 'node')}, {outputs:,} outputs"
    else:
        verb = "overflows" if nodes == 1 else "overflow"
        first = (
            f"{nodes:,} of {plural(len(floats), 'node')} {verb} {kind}, in {over:,} of "
            f"{outputs:,} outputs ({percent(over / outputs)})"
        )
    return first, f"{_lost(floats)}; {_errors(floats)}"


def totals(floats: pd.DataFrame) -> str:
    """The counts over all rows with float accumulators."""
    terms = int(floats["terms"].sum())
    swamped = float((floats["swamped_share"] * floats["terms"].astype("float64")).sum())
    share = f", {percent(swamped / terms)} of them swamped" if terms else ""
    return (
        f"{plural(len(floats), 'node')} with float accumulators: "
        f"{int(floats['outputs'].sum()):,} outputs, {si(terms)} terms{share}"
    )


def _lost(floats: pd.DataFrame) -> str:
    share = floats["swamped_share"]
    if not (share > 0).any():
        return "no sum loses a term"
    worst = floats.iloc[int(share.argmax())]
    return (
        f"sums of {brief(str(worst['node']))} lose {_part(float(worst['swamped_share']))} of their "
        "terms" + (", the most" if len(floats) > 1 else "")
    )


def _part(share: float) -> str:
    return percent(share) if share >= _LEAST else f"less than {percent(_LEAST)}"


def _errors(floats: pd.DataFrame) -> str:
    error = floats["rel_error_p99"]
    if error.isna().all():
        return "no sum has an error that is known"
    worst = floats.iloc[int(error.argmax())]
    return (
        f"99 % of the sums of {brief(str(worst['node']))} have a relative error of at most "
        f"{digits(float(worst['rel_error_p99']))}"
    )
