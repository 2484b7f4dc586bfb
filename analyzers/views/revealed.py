"""The view of a Revealed: the rule of a sum, its accumulator and its tree."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, facts
from tracer.records.bits import Revealed


def page(result: Revealed, options: ViewOptions) -> Page:
    """One table of names and values."""
    return facts(f"{result.function} · {result.terms} terms", table(result, options))


def table(result: Revealed, options: ViewOptions) -> pd.DataFrame:
    """`name` and `value`, a row for each part of the rule."""
    rows = [("rule", result.rule or "not known")]
    if result.reason:
        rows.append(("because" if result.rule is None else "note", result.reason))
    if result.rule is not None:
        rows.append(("--accumulator", result.spec or "none: no accumulator adds so"))
    if "preset" in result.facts:
        rows.append(("the same as", str(result.facts["preset"])))
    rows += [("operands", result.operands), ("probes", f"{result.probes:,}")]
    if result.vectors:
        rows.append(("verified on", f"{result.vectors:,} random pairs of vectors"))
    lines = result.tree.splitlines()
    rows += [("order" if line == lines[0] else "", line) for line in lines]
    return pd.DataFrame(rows, columns=["name", "value"])


def document(result: Revealed, options: ViewOptions) -> dict[str, Any]:
    """The fields of `Revealed`."""
    return asdict(result)
