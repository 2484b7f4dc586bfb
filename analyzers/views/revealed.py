"""The view of a Revealed: the rule of a sum, its accumulator and its tree."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, facts
from tracer.arithmetic.revealed import Revealed


def page(result: Revealed, options: ViewOptions) -> Page:
    """One table of names and values."""
    return facts(f"{result.function} · {result.terms} terms", table(result, options))


def table(result: Revealed, options: ViewOptions) -> pd.DataFrame:
    """`name` and `value`, a row for each part of the rule."""
    return pd.DataFrame(_rows(result), columns=["name", "value"])


def document(result: Revealed, options: ViewOptions) -> dict[str, Any]:
    """The fields of `Revealed`."""
    return asdict(result)


def _rows(result: Revealed) -> Iterator[tuple[str, str]]:
    yield "rule", result.rule or "not known"
    if result.reason:
        yield "because" if result.rule is None else "note", result.reason
    if result.rule is not None:
        yield "--accumulator", result.spec or "none: no accumulator adds so"
    if "preset" in result.facts:
        yield "the same as", str(result.facts["preset"])
    yield "operands", result.operands
    yield "probes", f"{result.probes:,}"
    if result.vectors:
        yield "verified on", f"{result.vectors:,} random pairs of vectors"
    for line in result.tree.splitlines():
        yield "order" if line == result.tree.splitlines()[0] else "", line
