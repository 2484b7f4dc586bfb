"""The view of a what-if: for each variant the answer, the widths, and the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields, records
from tracer.analyzers.views.page import Column, Page, Table, name_column, number_column
from tracer.analyzers.views.report.content import Content
from tracer.analyzers.views.text import count, number, percent, score, si, width
from tracer.analyzers.whatif import axes, label, nodes, rows, words
from tracer.analyzers.whatif.views import picture
from tracer.analyzers.whatif.views.runs import of_what_if
from tracer.records.whatif import Variant, WhatIf
from tracer.storage import whatif_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def page(result: WhatIf, options: ViewOptions) -> Page:
    """For each variant the answer in words, the widths, and the nodes."""
    tables = tuple(table for variant in result.variants for table in _tables(result, variant))
    basis = result.energy
    about = (
        f"energy is per sample, by the model {basis.model} ({basis.source}); additions are counted "
        f"by the convention {basis.convention}"
    )
    return Page(tables, (*result.notes, about), result.environment.summary)


def table(result: WhatIf, options: ViewOptions) -> pd.DataFrame:
    """A row for each width of each variant, with what makes the variant first."""
    whole = {"product_bits": "Int64", "weight_bits": "Int64", "activation_bits": "Int64"}
    tables = []
    for variant in result.variants:
        own = rows(variant)
        for position, (axis, value) in enumerate(axes(variant).items()):
            own.insert(position, axis, value)
        tables.append(own.astype(whole))
    return pd.concat(tables, ignore_index=True)


def document(result: WhatIf, options: ViewOptions) -> dict[str, Any]:
    """Everything that was evaluated (docs/whatif.md has the fields)."""
    return {
        **fields(result, "model", "environment", "settings", "notes", "judgement", "energy"),
        "variants": [_variant(variant) for variant in result.variants],
    }


def figure(result: WhatIf, options: ViewOptions) -> Figure:
    """Score and energy by width, partial sums, the Pareto front."""
    return picture.figure(result, picture.MOST_NODES if options.top is None else options.top)


def report(result: WhatIf, options: ViewOptions) -> Content:
    """Each variant as a run: overflow and score at every width, the answers for each node."""
    return of_what_if(result, page(result, options))


def stored(result: WhatIf, options: ViewOptions) -> bytes:
    """The what-if as an SQLite file."""
    return whatif_file.dumps(result)


def _variant(variant: Variant) -> dict[str, Any]:
    answer = variant.answer
    return {
        "accumulator": axes(variant),
        **fields(answer, "score", "samples", "guaranteed", "observed", "limiting"),
        **fields(variant, "coverage"),
        **fields(answer, "uniform", "each"),
        "widths": records(rows(variant)),
        "nodes": records(nodes(variant)),
        "energies": variant.energies,
        **fields(answer, "front", "evaluations", "screening", "ended"),
    }


def _tables(result: WhatIf, variant: Variant) -> Iterator[Table]:
    title = f"{result.model.name} · {label(result, variant)}"
    head = (*words.sentences(result, variant), words.effort(result, variant))
    yield Table(title, _columns(result), _marked(variant), head=head)
    yield Table("Node by node", _node_columns(result), nodes(variant), is_long=True)


def _columns(result: WhatIf) -> list[Column]:
    judgement, unit = result.judgement, result.energy.unit
    return [
        number_column("bits", "bits", count, 0),
        name_column("", "answer", 1),
        number_column(
            words.metric(judgement), "score", lambda value: score(value, judgement.unit), 2
        ),
        number_column("overflow", "overflow_outputs", number, 3),
        number_column("share", "share", percent, 6),
        number_column("transient", "transient_outputs", number, 7),
        number_column("persistent", "persistent_outputs", number, 8),
        number_column("changed", "outputs_changed", number, 10),
        number_column("events", "saturation_events", number, 11),
        number_column("outputs", "outputs", number, 12),
        number_column(f"energy {unit}".strip(), "energy", si, 4),
        number_column("saved", "saved", percent, 5),
        number_column("vs A", "saved_against_safe", percent, 9),
    ]


def _marked(variant: Variant) -> pd.DataFrame:
    table, answer = rows(variant), variant.answer
    marks = {answer.observed: "A"}
    if answer.uniform is not None:
        bits = variant.swept(answer.uniform)[0]
        marks[bits] = f"{marks[bits]} B" if bits in marks else "B"
    table["answer"] = [marks.get(bits, "") for bits in table["bits"]]
    table["share"] = table["overflow_outputs"] / table["outputs"].where(table["outputs"] > 0)
    return table


def _node_columns(result: WhatIf) -> list[Column]:
    unit = result.energy.unit
    return [
        name_column("node", "node", 0),
        name_column("module", "module", 8),
        name_column("op", "op_type", 7),
        number_column("guaranteed", "guaranteed", width, 4),
        number_column("A", "observed", width, 1),
        number_column("pinned", "bits_pinned", width, 2),
        number_column("B", "bits_uniform", width, 2),
        number_column("C", "bits_each", width, 3),
        number_column(f"energy B {unit}".strip(), "energy_uniform", si, 5),
        number_column("energy C", "energy_each", si, 6),
        number_column("muls", "muls", si, 9),
        number_column("adds", "adds", si, 10),
    ]
