"""The views of results about bits: comparisons, replays of kernels, fingerprints, rules of sums.

A part is a function for each result, chosen by its class.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import singledispatch
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import (
    Column,
    Page,
    Row,
    Table,
    facts,
    name_column,
    number_column,
    record_table,
)
from tracer.analyzers.views.text import exponent, plural
from tracer.records.bits import (
    BitComparison,
    Fingerprint,
    OutputDifference,
    Replayed,
    ReplayedKernel,
    Revealed,
)

_DIGITS = 16
"""Digits of a SHA-256 that a line shows; files have all of them."""


@singledispatch
def page(result: Any, options: ViewOptions) -> Page:
    """Tables of the result, and lines about them."""
    raise TypeError(f"{type(result).__name__} is no result about bits")


@page.register
def _(result: BitComparison, options: ViewOptions) -> Page:
    """A sentence and the rules of each side, and a table of the outputs."""
    columns = (
        name_column("side", "side", 0),
        name_column("output", "output", 1),
        number_column("equal bits", "share", "{:.2%}".format, 0),
        number_column("largest difference", "largest", exponent, 0),
        number_column("ulp", "ulps", "{:,.0f}".format, 2),
        name_column("classes that change", "classes", 1),
    )
    lines = list[str]()
    for side in result.sides:
        lines.append(f"{side.side}: {side.sentence}")
        if side.exact:
            lines.append("  proof: the replay has the SHA-256 of the outputs of the other machine")
        first = side.first
        if first is not None:
            share = f"{first.size - first.equal:,} of {plural(first.size, 'result')} differ"
            by = f"by {first.ulps:,.0f} ulp at most"
            if math.isinf(first.ulps):
                by = "in shape, or one side is no number"
            lines += [
                f"  there, {share}, {by}",
                f"  A: {first.here}",
                f"  B: {first.there}",
            ]
    title = f"Bits against {result.reference}"
    rows = table(result, replace(options, top=None))
    return Page((Table(title, columns, rows, is_long=True, head=tuple(lines)),), result.notes)


@page.register
def _(result: Replayed, options: ViewOptions) -> Page:
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


@page.register
def _(result: Fingerprint, options: ViewOptions) -> Page:
    """One table of the models."""
    columns = (
        name_column("model", "model", 0),
        number_column("kernels", "kernels", "{:.0f}".format, 1),
        number_column("rule known", "known", "{:.0f}".format, 1),
        name_column("level", "level", 3),
        name_column("SHA-256 of outputs", "sha256", 2),
    )
    return Page((Table(result.machine, columns, table(result, options)),))


@page.register
def _(result: Revealed, options: ViewOptions) -> Page:
    """One table of names and values."""
    return facts(f"{result.function} · {result.terms} terms", table(result, options))


@singledispatch
def table(result: Any, options: ViewOptions) -> pd.DataFrame:
    """The rows of the result."""
    raise TypeError(f"{type(result).__name__} is no result about bits")


@table.register
def _(result: BitComparison, options: ViewOptions) -> pd.DataFrame:
    """A row for each output of each side, with the first node that differs and its cause."""
    rows = []
    for side in result.sides:
        first = side.first
        for output in side.outputs or (OutputDifference(largest=None, ulps=None),):
            rows.append(
                {
                    "side": side.side,
                    "output": output.output,
                    "share": output.equal / output.size if output.size else float("nan"),
                    "largest": output.largest,
                    "ulps": output.ulps,
                    "classes": ""
                    if output.classes is None
                    else f"{output.classes} of {output.rows}",
                    "node": first.node if first else "",
                    "cause": first.cause if first else "",
                    "reason": first.reason if first else "",
                }
            )
    return pd.DataFrame(rows[: options.top or None])


@table.register
def _(result: Replayed, options: ViewOptions) -> pd.DataFrame:
    """A row for each kernel, in the order in which they run."""
    rows = record_table(ReplayedKernel, result.kernels)
    rows["nodes"] = [" ".join(kernel.nodes) for kernel in result.kernels]
    rows["is_equal"] = [kernel.is_equal for kernel in result.kernels]
    return rows


@table.register
def _(result: Fingerprint, options: ViewOptions) -> pd.DataFrame:
    """The kernels of each model, how many have a rule, and the SHA-256 of the outputs."""
    rows = [
        {"model": each.name, "kernels": len(each.nodes), "known": each.known_rules,
         "level": each.optimization, "threads": each.threads,
         "sha256": " ".join(value[:16] for value in each.outputs.values())}
        for each in result.models
    ]  # fmt: skip
    return pd.DataFrame(rows)


@table.register
def _(result: Revealed, options: ViewOptions) -> pd.DataFrame:
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


@singledispatch
def document(result: Any, options: ViewOptions) -> dict[str, Any]:
    """All fields of the result: `tracer compare --machine` reads those of a fingerprint again."""
    return asdict(result)


@document.register
def _(result: BitComparison, options: ViewOptions) -> dict[str, Any]:
    """All that was found."""
    sides = [{**asdict(side), "summary": side.sentence} for side in result.sides]
    return {**asdict(result), "sides": sides}


@document.register
def _(result: Replayed, options: ViewOptions) -> dict[str, Any]:
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
    Column(
        "rule",
        "rule",
        lambda row: row["rule"] or f"not known: {row['reason']}",
        4,
        is_name=True,
        cut="end",
    ),
)
