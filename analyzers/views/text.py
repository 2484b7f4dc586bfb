"""Numbers and names as people read them, and the functions behind the formats of columns."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tracer.records.columns import Format
from tracer.records.coverage import Coverage
from tracer.text import line, printable

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_WIDEST = 64
_LEAST_WITHOUT_DECIMALS = 1e5
_LONGEST = 10_000_000
"""Counts from here on are rounded."""

_BAR_CELLS = 8
_EIGHTHS = " ▏▎▍▌▋▊▉"


def si(value: float | None) -> str:
    """`2.36 M`"""
    if value is None or math.isnan(value):
        return ""
    rounded = float(f"{value:.3g}")  # first, for 999,999 is 1 M and not 1000 k
    for scale, unit in _UNITS:
        if abs(rounded) >= scale:
            scaled = rounded / scale
            return f"{scaled:.0f} {unit}" if abs(scaled) >= 100 else f"{scaled:.3g} {unit}"
    return f"{rounded:.3g}"


def quantity(value: float, unit: str, text: Callable[[float], str] = si) -> str:
    """`2.36 MB` and `144 B`: a number, as `text` writes it, with the unit it is a number of."""
    number = text(value)
    return f"{number}{unit}" if " " in number else f"{number} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def micros(value: float | None) -> str:
    """µs with the digits that mean something: `12,345`, `217.5`, `4.80`."""
    if value is None or math.isnan(value):
        return ""
    decimals = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:,.{decimals}f}"


def percent(value: float | None) -> str:
    """`7.2%`."""
    return "" if value is None or math.isnan(value) else f"{value:.1%}"


def extent(covered: Coverage) -> str:
    """`1 of 2 nodes that multiply, with 17.2% of the MACs`."""
    nodes = f"{covered.nodes:,} of {plural(covered.multiplying, 'node')} that"
    verb = "multiplies" if covered.multiplying == 1 else "multiply"
    macs = "" if covered.share is None else f", with {percent(covered.share)} of the MACs"
    return f"{nodes} {verb}{macs}"


def score(value: float, unit: str) -> str:
    """`98.33` in %, with three digits below 1 %; four digits in other units."""
    if unit == "%" and (value >= 1 or not value):
        return f"{value:.2f}"
    return f"{value:.3g}" if unit == "%" else f"{value:.4g}"


def roof(fraction: float | None) -> str:
    """`72%` of the roof, `3.1x` beyond it."""
    if fraction is None or math.isnan(fraction):
        return ""
    return f"{fraction:.0%}" if fraction < 1.005 else f"{fraction:.1f}x"


def bar(share: float | None, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` cells, in eighths of a cell."""
    if share is None or math.isnan(share):
        return ""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def count(value: float | None) -> str:
    """A number as short as possible."""
    return "" if value is None or math.isnan(value) else f"{value:g}"


def number(value: float) -> str:
    """`-1,234,567`; `-1.23 G` from ten million on."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) < _LONGEST else si(value)


def full(value: float | None) -> str:
    """`204,032,186`: every digit of a whole number; six of any other, three of one below 1."""
    if value is None or math.isnan(value):
        return ""
    if float(value).is_integer() or abs(value) >= _LEAST_WITHOUT_DECIMALS:
        return f"{value:,.0f}"
    return f"{value:,.6g}" if abs(value) >= 1 else f"{value:.3g}"


def width(value: float) -> str:
    """A number of bits; no accumulator has more than 64."""
    return f">{_WIDEST}" if value > _WIDEST else count(value)


def name(value: object) -> str:
    """A name from a file, safe to show and cut."""
    return printable(value) if isinstance(value, str) else ""


def digits(value: float) -> str:
    """Three significant digits."""
    return "" if math.isnan(value) else f"{value:.3g}"


def cosine(value: float) -> str:
    """`0.999987`."""
    return "" if math.isnan(value) else f"{value:.6f}"


def cell(value: object) -> str:
    """Names come from files: nothing in one may end the cell or begin a tag."""
    text = line(str(value))
    for char in "\\|<>`*_[]":
        text = text.replace(char, f"\\{char}")
    return text


FORMATS: Mapping[Format, Callable[[Any], str]] = {
    "name": name,
    "path": name,
    "count": count,
    "nonzero": lambda value: count(value) if value else "",
    "number": number,
    "width": width,
    "micros": micros,
    "si": si,
    "percent": percent,
    "roof": roof,
    "bar": lambda share: bar(share, _BAR_CELLS),
    "difference": digits,
    "cosine": cosine,
}
"""The text of a cell, by the format of its `ColumnSpec`; '' for a missing value."""

FULL_FORMATS: Mapping[Format, Callable[[Any], str]] = {**FORMATS, "si": full, "number": full}
"""The same with every digit of large numbers."""
