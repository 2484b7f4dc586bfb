"""The view of a what-if over accumulators of several kinds: one table, the cheapest first named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from analyzers.options import ViewOptions
from analyzers.views.file_formats.json import fields, records
from analyzers.views.page import Column, Page, Table, name_column, number_column
from analyzers.views.text import FORMATS, count, number, percent, plural, score, si
from analyzers.whatif import words
from tracer.records.accumulator_sweep import AccumulatorSweep

_CHEAPEST, _WITHIN = "cheapest", "within"
_TYPES = {
    "outputs": "Int64", "overflow_outputs": "Int64", "score": "float64", "change": "float64",
    "overflow_share": "float64", "swamped_share": "float64", "rel_error_p50": "float64",
    "rel_error_p99": "float64", "energy": "float64", "saved": "float64",
}  # fmt: skip


def page(result: AccumulatorSweep, options: ViewOptions) -> Page:
    """The answer in words, and a row for each accumulator."""
    title = f"{result.model.name} · {plural(len(result.rows), 'accumulator')}"
    rows = table(result, options)
    rows.insert(1, "answer", _marks(result))
    basis = result.energy
    about = (
        f"energy is per sample, by the model {basis.model} ({basis.source}); additions are counted "
        f"by the convention {basis.convention}"
    )
    found = Table(title, _columns(result), rows, head=tuple(_sentences(result)))
    return Page((found,), (*result.notes, about), result.environment.summary)


def table(result: AccumulatorSweep, options: ViewOptions) -> pd.DataFrame:
    """A row for each accumulator, with its change of the score and what it saves of the first."""
    rows = pd.DataFrame([asdict(row) for row in result.rows])
    rows.insert(3, "change", rows["score"] - result.score)
    rows["overflow_share"] = rows["overflow_outputs"] / rows["outputs"].where(rows["outputs"] > 0)
    energies = rows["energy"].astype("float64")
    rows["saved"] = 1 - energies / energies.iloc[0] if len(energies) else energies
    return rows.astype(_TYPES)


def document(result: AccumulatorSweep, options: ViewOptions) -> dict[str, Any]:
    """Everything that was computed; docs/whatif.md has the fields."""
    cheapest = result.cheapest
    return {
        **fields(result, "model", "environment", "settings", "notes", "judgement", "energy"),
        **fields(result, "score", "samples"),
        "cheapest": None if cheapest is None else cheapest.accumulator,
        "accumulators": records(table(result, options)),
    }


def _columns(result: AccumulatorSweep) -> list[Column]:
    unit = result.judgement.unit
    return [
        name_column("accumulator", "accumulator", 0),
        name_column("", "answer", 1),
        name_column("operands", "operands", 9),
        number_column(words.metric(result.judgement), "score", lambda v: score(v, unit), 2),
        number_column("change", "change", lambda v: f"{v:+.2f}" if unit == "%" else f"{v:+.3g}", 3),
        number_column("overflow", "overflow_share", percent, 5),
        number_column("swamped", "swamped_share", percent, 6),
        number_column("error p50", "rel_error_p50", FORMATS["difference"], 8),
        number_column("error p99", "rel_error_p99", FORMATS["difference"], 7),
        number_column(f"energy {result.energy.unit}".strip(), "energy", si, 4),
        number_column("saved", "saved", percent, 10),
        number_column("sums", "outputs", number, 11),
    ]


def _marks(result: AccumulatorSweep) -> list[str]:
    sufficient, cheapest = result.sufficient, result.cheapest
    return [
        _CHEAPEST if row is cheapest else _WITHIN if row in sufficient else ""
        for row in result.rows
    ]


def _sentences(result: AccumulatorSweep) -> Iterator[str]:
    judgement = result.judgement
    yield (
        f"the model as it is has {words.score(judgement, result.score)} on "
        f"{count(result.samples)} samples of {result.settings['data']}; the budget is "
        f"{words.budget(judgement)}"
    )
    names = ", ".join(row.accumulator for row in result.sufficient)
    if not names:
        yield "no accumulator is within the budget"
        return
    cheapest = result.cheapest
    if cheapest is None:
        yield (f"within the budget: {names}; none has an energy by the model {result.energy.model}")
        return
    unknown = [row.accumulator for row in result.sufficient if row.energy is None]
    rest = f"; the energy of {', '.join(unknown)} is unknown" if unknown else ""
    energy = f"{si(cheapest.energy)} {result.energy.unit}"
    yield f"within the budget: {names}; the cheapest is {cheapest.accumulator}, {energy}{rest}"
