"""The view of a Tuned: every change that was tried, the best combination, and its code."""

import math
from textwrap import shorten
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import (
    Column,
    Page,
    Row,
    Table,
    number_column,
    record_columns,
    record_table,
)
from tracer.analyzers.views.text import exponent, plural
from tracer.errors import UsageError
from tracer.graph import stored_weights
from tracer.limits import size_text
from tracer.records.transformed import Plan, Speedup, Trial, Tuned

_LONGEST = 34
"""Characters of a verdict that a row has room for; the reason of a failure is whole in files."""


def page(result: Tuned, options: ViewOptions) -> Page:
    """The combination, the trials, and the lines that open the session."""
    rows = table(result, options)
    code = [f"    {line}" for line in (*result.commands, *result.code)]
    reasons = {trial.change: trial.why for trial in result.trials}
    lines = (*code, *(f"{change}: {why}" for change, why in reasons.items()))
    forms = plural(len(result.trials), "form")
    what = f"{forms} of changes tried for {result.settings['goal']}"
    if result.plan.steps and not result.trials:
        what = "changes made, not measured"
    title = f"{result.model.name} · {what}"
    tried = Table(title, _COLUMNS, rows, lines=lines, head=(_sentence(result),), is_long=True)
    return Page((tried,), result.notes)


def table(result: Tuned, options: ViewOptions) -> pd.DataFrame:
    """A row for each form of a change, those that were kept first."""
    rows = record_table(Trial, result.trials)
    speedups = [trial.speedup or Speedup(*[math.nan] * 3) for trial in result.trials]
    rows["speedup"] = pd.Series([each.ratio for each in speedups], dtype="float64")
    rows["speedup_low"] = pd.Series([each.low for each in speedups], dtype="float64")
    rows["speedup_high"] = pd.Series([each.high for each in speedups], dtype="float64")
    order = ["change", "value", "verdict", "kept", "effect", "speedup", "speedup_low",
             "speedup_high", "memory_bytes", "difference", "why"]  # fmt: skip
    return rows[[*order, *rows.columns.difference(order, sort=False)]]


def document(result: Tuned, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself."""
    about = ("model", "settings", "speedup", "memory_before", "memory_bytes", "difference")
    return fields(result, *about, "trials", "plan", "commands", "code", "notes")


def plan(result: Tuned, options: ViewOptions) -> Plan:
    """What was chosen, for `tracer profile --plan`."""
    return result.plan


def model(result: Tuned, options: ViewOptions) -> bytes:
    """The changed model. Raises UsageError where no change of the model was kept."""
    if result.proto is None:
        raise UsageError("no change of the model was kept", "The settings of the session may help.")
    stored_weights.refuse_apart(result.proto)
    return result.proto.SerializeToString()


def _sentence(result: Tuned) -> str:
    if not result.plan.steps:
        return "nothing that was tried is shown to be better than the unchanged model"
    chosen = ", ".join(f"{change}={value}" for change, value in result.plan.steps)
    parts = [f"best: {chosen}" if result.trials else chosen]
    if result.speedup:
        ratio, low, high = map(
            _times, (result.speedup.ratio, result.speedup.low, result.speedup.high)
        )
        parts.append(f"{ratio} as fast ({low} to {high})")
    if result.memory_bytes and result.memory_before:
        before, after = map(size_text, (result.memory_before, result.memory_bytes))
        parts.append(f"memory {after}, before {before}")
    if result.difference is not None:
        parts.append(f"largest difference {exponent(result.difference)}")
    return "; ".join(parts)


def _times(value: float) -> str:
    return f"{value:.3g}x" if value < 10 else f"{value:.0f}x"


def _range(row: Row) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return "" if pd.isna(low) else f"{_times(low)} to {_times(high)}"


_DECLARED = record_columns(Trial)
_COLUMNS = (
    *_DECLARED[:2],
    number_column("speed-up", "speedup", _times, 1),
    Column("99 % interval", "speedup_low", _range, 3),
    *_DECLARED[2:],
    Column(
        "result", "verdict", lambda r: shorten(str(r["verdict"]), _LONGEST, placeholder=" …"), 0
    ),
)
