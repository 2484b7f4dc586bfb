"""The view of a Tuned: every change that was tried, the best combination, and its code."""

import math
from functools import partial
from textwrap import shorten
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.report import Content, RunContent
from tracer.analyzers.views.text import exponent, plural
from tracer.errors import UsageError
from tracer.graph import stored_weights
from tracer.limits import size_text
from tracer.records.columns import ColumnSpec, Dtype
from tracer.records.transformed import Plan, Speedup, Trial, Tuned

_NOT_ALLOWED = "needs --allow"
"""How the verdict of a change begins that was not tried."""
_LONGEST = 34
"""Characters of a verdict that a row has room for; the reason of a failure is whole in files."""


def page(result: Tuned, options: ViewOptions) -> pages.Page:
    """The combination, the trials, and the lines that open the session."""
    rows = table(result, options)
    code = [f"    {line}" for line in (*result.commands, *result.code)]
    reasons = {trial.change: trial.why for trial in result.trials}
    lines = (*code, *(f"{change}: {why}" for change, why in reasons.items()))
    count = sum(not trial.verdict.startswith(_NOT_ALLOWED) for trial in result.trials)
    forms = f"{plural(count, 'form')} of changes tried"
    if _is_unmeasured(result):
        forms = "no form of a change measured"
    what = f"{forms} for {result.settings['goal']}"
    if result.plan.steps and not result.trials:
        what = "changes made, not measured"
    title = f"{result.model.name} · {what}"
    tried = pages.Table(title, _COLUMNS, rows, lines=lines, head=(_sentence(result),), is_long=True)
    return pages.Page((tried,), result.notes)


def table(result: Tuned, options: ViewOptions) -> pd.DataFrame:
    """A row for each form of a change, those that were kept first."""
    rows = pages.record_table(Trial, result.trials)
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


def report(result: Tuned, options: ViewOptions) -> Content:
    """One run, whose rows are the best combination and what was tried, with their speed-ups."""
    shown, rows = page(result, options), table(result, options)
    rows["node"] = rows["change"] + "=" + rows["value"]
    if result.speedup is not None and len(result.plan.steps) > 1:
        speedup = result.speedup
        best = {
            "node": _BEST, "kept": True, "verdict": _chosen(result), "speedup": speedup.ratio,
            "speedup_low": speedup.low, "speedup_high": speedup.high, "why": "",
            "memory_bytes": result.memory_bytes, "difference": result.difference,
        }  # fmt: skip
        rows = pd.concat([pd.DataFrame([best]).astype(object), rows]).reset_index(drop=True)
    rows["interval"] = [_range(row) for row in rows.to_dict("records")]
    names = [*(spec.name for spec in _SPECS), *_INTERVAL]
    rows = rows[names].astype({spec.name: spec.dtype for spec in _SPECS} | _INTERVAL)
    run = RunContent(
        label=result.model.name,
        title=shown.tables[0].title,
        lines=(_sentence(result),),
        rows=rows,
        code=(*result.commands, *result.code),
    )
    return Content(
        title=run.title, kind="tune", page=shown, runs=(run,), specs=_SPECS,
        first={"view": "trials"},
    )  # fmt: skip


_INTERVAL: dict[str, Dtype] = dict.fromkeys(("speedup_low", "speedup_high", "kept"), "float64")
_BEST = "best combination"
_number = partial(ColumnSpec, dtype="float64", unit="")
_SPECS = (
    pages.name_spec("node", "change", 0, "the change and its form"),
    _number("speedup", "speed-up", 1, "time before ÷ time after", format="times"),
    pages.name_spec("interval", "99 % interval", 3, "interval of the speed-up"),
    ColumnSpec("memory_bytes", "memory", 4, "memory of the session at most",
               dtype="Int64", unit="", format="size"),
    _number("difference", "difference", 2, "largest error of an output ÷ its largest value",
            format="exponent"),
    pages.name_spec("verdict", "result", 1, "whether the change was kept, and why not"),
    pages.name_spec("why", "tried because", 11, "why the change was tried"),
)  # fmt: skip


def _chosen(result: Tuned) -> str:
    return ", ".join(f"{change}={value}" for change, value in result.plan.steps)


def _is_unmeasured(result: Tuned) -> bool:
    measure = "memory_bytes" if result.settings["goal"] == "memory" else "speedup"
    return bool(result.trials) and all(getattr(t, measure) is None for t in result.trials)


def _sentence(result: Tuned) -> str:
    if not result.plan.steps and _is_unmeasured(result):
        return "nothing was measured, so the unchanged model is kept"
    if not result.plan.steps:
        return "nothing that was tried is shown to be better than the unchanged model"
    chosen = _chosen(result)
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


def _range(row: pages.Row) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return "" if pd.isna(low) else f"{_times(low)} to {_times(high)}"


_DECLARED = pages.record_columns(Trial)
_COLUMNS = (
    *_DECLARED[:2],
    pages.number_column("speed-up", "speedup", _times, 1),
    pages.Column("99 % interval", "speedup_low", _range, 3),
    *_DECLARED[2:],
    pages.Column(
        "result", "verdict", lambda r: shorten(str(r["verdict"]), _LONGEST, placeholder=" …"), 0
    ),
)
