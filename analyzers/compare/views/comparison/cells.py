"""Cells of the tables of a comparison: ratios with a mark, and intervals."""

import math
from collections.abc import Callable

from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.views.charts import MARK
from tracer.analyzers.views.page import Row, times
from tracer.analyzers.views.text import micros

INTERVAL = f"{1 - LEVEL:.0%} interval"


def ratio(end: str = "") -> Callable[[Row], str]:
    """Returns the text of a ratio to A, marked where it differs significantly from 1.

    A row that one side alone has is `new`, or `gone` where that side is A.
    """

    def text(row: Row) -> str:
        shown = times(float(row[f"ratio{end}"])) or _alone(row, end)
        return f"{shown}{MARK if row[f'significant{end}'] else ' '}" if shown else ""

    return text


def _alone(row: Row, end: str) -> str:
    if not end or math.isnan(row[f"change_us{end}"]):
        return ""
    has = str(row["on"])
    if "A" in has:
        return "" if end[1:].upper() in has else "gone"
    return "new"


def interval(end: str = "") -> Callable[[Row], str]:
    """Returns the text of the interval of a ratio."""

    def text(row: Row) -> str:
        low, high = float(row[f"ratio_low{end}"]), float(row[f"ratio_high{end}"])
        return "" if math.isnan(low) else f"{times(low)} to {times(high)}"

    return text


def change_interval(end: str) -> Callable[[Row], str]:
    """Returns the text of the interval of a change in µs."""

    def text(row: Row) -> str:
        low, high = float(row[f"change_low_us{end}"]), float(row[f"change_high_us{end}"])
        return "" if math.isnan(low) else f"{signed(low)} to {signed(high)}"

    return text


def signed(value: float) -> str:
    """Returns µs with their sign: `+0.20`."""
    return f"{'-' if value < 0 else '+'}{micros(abs(value))}"
