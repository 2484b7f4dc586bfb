"""The view of a Tuned: every change that was tried, the best combination, and its code."""

from collections.abc import Iterator
from textwrap import shorten
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Column as PageColumn
from tracer.analyzers.views.page import Page, Row, Table, name_column, number_column
from tracer.analyzers.views.text import plural
from tracer.errors import UsageError
from tracer.graph import stored_weights
from tracer.limits import size_text
from tracer.records.transformed import Plan, Speedup, Trial, Tuned

_LONGEST = 34
"""Characters of a reason that a row has room for."""


def page(result: Tuned, options: ViewOptions) -> Page:
    """The combination, the trials, and the lines that open the session."""
    rows = table(result, options)
    reasons = {trial.change: trial.why for trial in result.trials}
    lines = (*_made(result), *((f"{change}: {why}" for change, why in reasons.items())))
    tried = Table(
        _title(result), _COLUMNS, rows, lines=lines, head=(_sentence(result),), is_long=True
    )
    return Page((tried,), result.notes)


def table(result: Tuned, options: ViewOptions) -> pd.DataFrame:
    """A row for each form of a change, those that were kept first."""
    names = ["change", "value", "verdict", "kept", "effect", "speedup", "speedup_low",
             "speedup_high", "memory_bytes", "difference", "why"]  # fmt: skip
    rows = pd.DataFrame([_row(trial) for trial in result.trials], columns=names)
    numbers = ("speedup", "speedup_low", "speedup_high", "difference")
    return rows.astype({**dict.fromkeys(numbers, "float64"), "memory_bytes": "Int64"})


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


def _row(trial: Trial) -> list[Any]:
    speedup = trial.speedup or Speedup(*[float("nan")] * 3)
    return [
        trial.change, trial.value, trial.verdict, trial.kept, trial.effect, speedup.ratio,
        speedup.low, speedup.high, trial.memory_bytes, trial.difference, trial.why,
    ]  # fmt: skip


def _title(result: Tuned) -> str:
    if result.plan.steps and not result.trials:
        return f"{result.model.name} · changes made, not measured"
    forms = plural(len(result.trials), "form")
    return f"{result.model.name} · {forms} of changes tried for {result.settings['goal']}"


def _sentence(result: Tuned) -> str:
    if not result.plan.steps:
        return "nothing that was tried is shown to be better than the unchanged model"
    chosen = ", ".join(f"{change}={value}" for change, value in result.plan.steps)
    parts = [f"best: {chosen}" if result.trials else chosen]
    if result.speedup:
        parts.append(f"{_times(result.speedup.ratio)} as fast ({_interval(result.speedup)})")
    if result.memory_bytes and result.memory_before:
        before, after = map(size_text, (result.memory_before, result.memory_bytes))
        parts.append(f"memory {after}, before {before}")
    if result.difference is not None:
        parts.append(f"largest difference {_share(result.difference)}")
    return "; ".join(parts)


def _made(result: Tuned) -> Iterator[str]:
    """Yields the commands and the lines of code, indented."""
    yield from (f"    {line}" for line in (*result.commands, *result.code))


def _interval(speedup: Speedup) -> str:
    return f"{_times(speedup.low)} to {_times(speedup.high)}"


def _times(value: float) -> str:
    return f"{value:.3g}x" if value < 10 else f"{value:.0f}x"


def _share(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def _range(row: Row) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return "" if pd.isna(low) else f"{_times(low)} to {_times(high)}"


def _verdict(row: Row) -> str:
    """What became of a change; the reason of a failure is whole in files."""
    return shorten(str(row["verdict"]), _LONGEST, placeholder=" …")


_COLUMNS = (
    name_column("change", "change", 0),
    name_column("form", "value", 0),
    number_column("speed-up", "speedup", _times, 1),
    PageColumn("99 % interval", "speedup_low", _range, 3),
    number_column("memory", "memory_bytes", lambda value: size_text(int(value)), 4),
    number_column("difference", "difference", _share, 2),
    PageColumn("result", "verdict", _verdict, 0),
)
