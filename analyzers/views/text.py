"""Numbers and names as people read them, and the functions behind the formats of columns."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracer.accumulators.spec import WIDEST
from tracer.limits import size_text
from tracer.records.columns import Format
from tracer.text import line, printable
from tracer.text import plural as plural  # part of the texts of numbers

if TYPE_CHECKING:
    from tracer.records.whatif import Coverage

_CUT = "…"
MOST_CHARACTERS = 28
_SEPARATORS = "/.:"
_LEAST_PREFIX = 6
_LEAST_NAMES = 3


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Returns `names` without the folders that most of them begin with, and these folders.

    `…` stands for them. Names that begin otherwise stay; '' if too few names share folders.
    """
    counts: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        ends = [place + 1 for place, char in enumerate(name[:-1]) if char in _SEPARATORS]
        counts.update(name[:end] for end in ends if end >= _LEAST_PREFIX)
    least = max(_LEAST_NAMES, len(set(names)) / 2)
    common = [prefix for prefix, times in counts.items() if times >= least]
    prefix = max(common, key=lambda each: counts[each] * (len(each) - len(_CUT)), default="")
    if not prefix:
        return list(names), ""
    return [_CUT + n[len(prefix) :] if n.startswith(prefix) else n for n in names], prefix


def short_names(
    names: Sequence[str], most: int = MOST_CHARACTERS, cut: str = "middle"
) -> list[str]:
    """Returns `names` in at most `most` characters each, cut where `cut` says.

    Names that become equal show what distinguishes them, and at last a number: `conv…block… #2`.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        alike[shorten_name(name, most, cut)].append(name)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    others = [name for group in alike.values() if len(group) > 1 for name in group]
    for short, group in sorted(alike.items(), key=lambda item: len(item[1])):
        forms = [short] if len(group) == 1 else _apart(group, others, most)
        for name, form in zip(group, forms, strict=True):
            number, free = 1, form
            while free in taken:
                number += 1
                free = f"{shorten_name(form, most - len(f' #{number}'))} #{number}"
            chosen[name] = free
            taken.add(free)
    return [chosen[name] for name in names]


def shorten_name(name: str, most: int, cut: str = "middle") -> str:
    """The beginning and the end of a name, which often tells more; or without one of them."""
    if len(name) <= most:
        return name
    kept = most - len(_CUT)
    end = {"begin": kept, "end": 0}.get(cut, (kept + 1) // 2)
    return name[: kept - end] + _CUT + name[len(name) - end :]


def _apart(group: Sequence[str], others: Sequence[str], most: int) -> list[str]:
    """Returns the words that not all names have, and as many others as fit.

    Names are the `others` that were cut as well, or where this takes too much room, the group.
    Words in front of such a word come first, then the last. `…` stands for the rest:
    `…/layers.10…/query/MatMul`.
    """
    commons = [set.intersection(*({*_WORD.findall(n)} for n in names)) for names in (others, group)]
    forms = []
    for words in map(_WORD.findall, group):
        each = ([word not in common for word in words] for common in commons)
        kept = min(each, key=lambda kept: len(_elided(words, kept)) > most)
        follows = [*kept[1:], False]
        for place in sorted(range(len(words)), key=lambda at: (not follows[at], -at)):
            tried = [*kept[:place], True, *kept[place + 1 :]]
            kept = tried if len(_elided(words, tried)) <= most else kept
        forms.append(shorten_name(_elided(words, kept), most))
    return forms


def _elided(words: Sequence[str], kept: Sequence[bool]) -> str:
    parts = (word if keep else "\0" for word, keep in zip(words, kept, strict=True))
    return re.sub("\0+", _CUT, "".join(parts))


_WORD = re.compile(r"[\W_]*[^\W_]+|[\W_]+$")
"""A word of a name, with the separators in front of it."""


_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
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


def micros(value: float | None) -> str:
    """µs with the digits that mean something: `12,345`, `217.5`, `4.80`."""
    if value is None or math.isnan(value):
        return ""
    decimals = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:,.{decimals}f}"


_TIMES = ((1e6, "s"), (1e3, "ms"))
_DIGITS_OF_MICROS = 10
"""A column of times has µs up to so many times the next unit."""


def duration(value: float | None) -> str:
    """A time of µs with its unit: `217.5 µs`, `28.2 ms`, `1.24 s`."""
    if value is None or math.isnan(value):
        return ""
    for scale, unit in _TIMES:
        if abs(value) >= 0.9995 * scale:
            size = abs(value) / scale
            decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
            return f"{value / scale:,.{decimals}f} {unit}"
    return f"{micros(value)} µs"


def time_unit(largest: float) -> tuple[float, str]:
    """Returns the unit of a column with times up to `largest` µs, and how many µs it is."""
    units = (each for each in _TIMES if largest >= _DIGITS_OF_MICROS * each[0])
    return next(units, (1.0, "µs"))


def time_number(value: float) -> str:
    """`12,345`, `217.5`, `4.80`, `0.004`: small times of a large unit keep a digit."""
    if 0 < value < _HUNDREDTHS:
        return f"{value:.{min(-math.floor(math.log10(value)), _MOST_DECIMALS)}f}"
    return micros(value)


_HUNDREDTHS, _MOST_DECIMALS = 0.005, 4


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
    """A number of bits, unless no accumulator has as many."""
    return f">{WIDEST}" if value > WIDEST else count(value)


def name(value: object) -> str:
    """A name from a file, safe to show and cut."""
    return printable(value) if isinstance(value, str) else ""


def digits(value: float) -> str:
    """Three significant digits."""
    return "" if math.isnan(value) else f"{value:.3g}"


def cosine(value: float) -> str:
    """`0.999987`."""
    return "" if math.isnan(value) else f"{value:.6f}"


def decibels(value: float) -> str:
    """`23.4`; a signal without noise is exact."""
    if math.isinf(value):
        return "exact" if value > 0 else "nothing left"
    return f"{value:.1f}"


def exponent(value: float) -> str:
    """`1.2e-07`, and `0`."""
    return "0" if value == 0 else f"{value:.1e}"


def times(value: float) -> str:
    """A ratio with three digits: `0.983`, `12.4`, `1,234`."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


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
    "whole": "{:.0f}".format,
    "tenths": "{:.1f}".format,
    "thousands": "{:,.0f}".format,
    "decibels": decibels,
    "noise": lambda share: f"{100 * share:.2g} %",
    "size": lambda amount: size_text(int(amount)),
    "exponent": exponent,
    "times": times,
}
"""The text of a cell, by the format of its `ColumnSpec`; '' for a missing value."""

FULL_FORMATS: Mapping[Format, Callable[[Any], str]] = {**FORMATS, "si": full, "number": full}
"""The same with every digit of large numbers."""
