"""What alignment looks at in a row of the node table, freed of batch sizes and types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyzers.compare.operators import canonical
from analyzers.timing import RUNTIME
from tracer.records.trace import Kernel

_DIMENSIONS = re.compile(r"\[([^\]]*)\]")
_UNNAMED = "N"


@dataclass(frozen=True, slots=True)
class Row:
    """One node, or a kernel of the runtime's own.

    `inputs` and `outputs` are shapes without element types, the batch written N; '' is not known.
    `before` are the places of the rows whose results this one reads, where that is known.
    """

    node: str
    op: str
    module: str | None
    inputs: str
    outputs: str
    kernels: str | None
    is_runtime: bool
    before: tuple[int, ...] = ()


def rows_of(nodes: pd.DataFrame, kernels: Sequence[Kernel] = ()) -> tuple[Row, ...]:
    """A Row for each row of a node table of one run, in its order."""
    before = _before(nodes, kernels)
    records = nodes.astype(object).where(nodes.notna(), None).to_dict("records")
    return tuple(
        Row(
            node=record["node"],
            op=canonical(record["op_type"] or ""),
            module=record["module"],
            inputs=_shapes(record["input_shapes"], record["batch"]),
            outputs=_shapes(record["output_shapes"], record["batch"]),
            kernels=record["kernels"],
            is_runtime=record["index"] is None and record["node"].startswith(f"{RUNTIME}:"),
            before=before.get(place, ()),
        )
        for place, record in enumerate(records)
    )


def _shapes(text: str | None, batch: int | None) -> str:
    """`[N,16,32,32], [10]` of `float32[64,16,32,32], int64[10]` at batch 64."""
    found = (sizes.split(",") for sizes in _DIMENSIONS.findall(text or ""))
    return ", ".join(f"[{','.join(_freed(sizes, batch))}]" for sizes in found)


def _freed(sizes: Sequence[str], batch: int | None) -> Sequence[str]:
    is_batch = batch is not None and len(sizes) > 1 and sizes[0] == str(batch)
    return [_UNNAMED, *sizes[1:]] if is_batch else sizes


def _before(nodes: pd.DataFrame, kernels: Sequence[Kernel]) -> dict[int, tuple[int, ...]]:
    """Rows that made what each row reads, by the tensors of the kernels that ran."""
    places: dict[Any, int] = {name: place for place, name in enumerate(nodes["node"])}
    makers: dict[tuple[str, str], int] = {}
    found: dict[int, tuple[int, ...]] = {}
    for kernel in kernels:
        place = places.get(kernel.node, places.get(f"{RUNTIME}:{kernel.name}"))
        read = [makers[kernel.scope, n] for n in kernel.inputs if (kernel.scope, n) in makers]
        if place is None:
            continue
        found[place] = tuple(dict.fromkeys([*found.get(place, ()), *read]))
        makers.update(((kernel.scope, name), place) for name in kernel.outputs)
    return found
