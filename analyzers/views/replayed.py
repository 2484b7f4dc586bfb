"""The view of a Replayed: the bits of each kernel, its rule, and the digests of the outputs."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Column, Page, Row, Table, facts, name_column, record_table
from tracer.analyzers.views.text import plural
from tracer.records.bits import Replayed, ReplayedKernel

_DIGITS = 16
"""Digits of a SHA-256 that a line shows; files have all of them."""


def page(result: Replayed, options: ViewOptions) -> Page:
    """How many kernels are equal, the digests of the outputs, and a row for each kernel."""
    settings = result.settings
    title = (
        f"{result.model.name} · {result.runtime}, level {settings['optimization']}, "
        f"{plural(settings['threads'], 'thread')}"
    )
    if settings["node"]:
        tables = list[Table]()
        for kernel in result.kernels:
            rows = [
                ("nodes", ", ".join(kernel.nodes)),
                ("rule", kernel.rule or "not known"),
                ("because", kernel.reason),
                ("equal bits", f"{kernel.equal:,} of {plural(kernel.size, 'result')}"),
                *zip(("order", *[""] * 64), kernel.tree.splitlines(), strict=False),
            ]
            known = pd.DataFrame([row for row in rows if row[1]], columns=["name", "value"])
            tables += facts(f"{title}, {kernel.op_type}", known).tables
        return Page(tuple(tables), result.notes)
    kernels = Table(
        title, _COLUMNS, table(result, options), head=tuple(_head(result)), is_long=True
    )
    unknown = (
        f"rule not known: {kernel.node} ({kernel.op_type}): {kernel.reason}"
        for kernel in result.kernels
        if kernel.reason
    )
    return Page((kernels,), (*result.notes, *unknown))


def table(result: Replayed, options: ViewOptions) -> pd.DataFrame:
    """A row for each kernel, in the order in which they run."""
    rows = record_table(ReplayedKernel, result.kernels)
    rows["nodes"] = [" ".join(kernel.nodes) for kernel in result.kernels]
    rows["is_equal"] = [kernel.is_equal for kernel in result.kernels]
    return rows


def document(result: Replayed, options: ViewOptions) -> dict[str, Any]:
    """Everything."""
    return fields(
        result, "model", "runtime", "settings", "inputs", "equal", "outputs", "kernels", "notes"
    )


def _head(result: Replayed) -> Iterator[str]:
    """How many kernels are equal, and the digests of the outputs."""
    inputs = f" on {plural(result.inputs, 'input')}" if result.inputs > 1 else ""
    yield f"equal bits: {result.equal} of {plural(len(result.kernels), 'kernel')}{inputs}"
    runtime = result.runtime.partition(" ")[0]
    for each in result.outputs:
        digest = f"{runtime}'s SHA-256, {each.sha256[:_DIGITS]}…"
        if each.replayed is None:
            yield f"{each.output}: no replay; {digest}"
        elif each.replayed == each.sha256:
            yield f"{each.output}: the replay has {digest}"
        else:
            yield f"{each.output}: {each.replayed[:_DIGITS]}… of the replay is not {digest}"


def _ulps(row: Row) -> str:
    if row["is_equal"] or pd.isna(row["ulps"]):
        return ""
    return "∞" if math.isinf(row["ulps"]) else f"{row['ulps']:,.0f}"


_COLUMNS = (
    name_column("node", "node", 0),
    name_column("kernel", "op_type", 1),
    Column(
        "equal bits",
        "equal",
        lambda row: "all" if row["is_equal"] else f"{row['equal']:,.0f} of {row['size']:,.0f}",
        2,
    ),
    Column("ulp", "ulps", _ulps, 3),
    Column("rule", "rule", lambda row: row["rule"] or "not known", 4, is_name=True, cut="end"),
)
