"""The page of a what-if: for each variant the answer, the widths, and the nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analyzers.views._columns import Column, count
from analyzers.views._format import percent, si
from analyzers.views._overflow import number, width
from analyzers.views._page import Page, Table, figure, name
from analyzers.whatif import label, nodes, rows, words
from tracer.records.whatif import Variant, WhatIf


def page(result: WhatIf) -> Page:
    """Everything there is to say."""
    tables = tuple(table for one in result.variants for table in _tables(result, one))
    priced = result.energy
    about = (
        f"energy per sample: {priced.model} ({priced.source}), additions counted "
        f"{priced.convention}"
    )
    return Page(tables, (*result.notes, about), result.environment.summary)


def _tables(result: WhatIf, one: Variant) -> Iterator[Table]:
    told = label(result, one)
    head = (*words.sentences(result, one), words.effort(result, one))
    yield Table(f"{result.model.name} · {told}", _columns(result), _marked(one), head=head)
    yield Table("Node by node", _node_columns(result), nodes(one), is_long=True)


def _columns(result: WhatIf) -> list[Column]:
    judgement, unit = result.judgement, result.energy.unit
    metric = f"{judgement.metric.rpartition(':')[2]} {judgement.unit}".strip()
    digits = ".2f" if judgement.unit == "%" else ".4g"
    return [
        figure("bits", "bits", count, 0),
        name("", "answer", 1),
        figure(metric, "score", lambda value: f"{value:{digits}}", 2),
        figure("overflow", "overflow_outputs", number, 3),
        figure("share", "share", percent, 6),
        figure("transient", "transient_outputs", number, 7),
        figure("persistent", "persistent_outputs", number, 8),
        figure("changed", "outputs_changed", number, 10),
        figure("events", "saturation_events", number, 11),
        figure("outputs", "outputs", number, 12),
        figure(f"energy {unit}".strip(), "energy", si, 4),
        figure("saved", "saved", percent, 5),
        figure("vs A", "saved_against_safe", percent, 9),
    ]


def _marked(one: Variant) -> pd.DataFrame:
    """The rows, the answers named at theirs."""
    found, answer = rows(one), one.answer
    marks = {answer.observed: "A"}
    if answer.uniform is not None:
        bits = one.swept(answer.uniform)[0]
        marks[bits] = f"{marks[bits]} B" if bits in marks else "B"
    found["answer"] = [marks.get(bits, "") for bits in found["bits"]]
    found["share"] = found["overflow_outputs"] / found["outputs"].where(found["outputs"] > 0)
    return found


def _node_columns(result: WhatIf) -> list[Column]:
    unit = result.energy.unit
    return [
        name("node", "node", 0),
        name("module", "module", 8),
        name("op", "op_type", 7),
        figure("guaranteed", "guaranteed", width, 4),
        figure("A", "observed", width, 1),
        figure("pinned", "bits_pinned", width, 2),
        figure("B", "bits_uniform", width, 2),
        figure("C", "bits_each", width, 3),
        figure(f"energy B {unit}".strip(), "energy_uniform", si, 5),
        figure("energy C", "energy_each", si, 6),
        figure("muls", "muls", si, 9),
        figure("adds", "adds", si, 10),
    ]
