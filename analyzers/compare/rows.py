"""The features of a node table's rows by which layers are matched, without batch and types."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from tracer.analyzers.compare.operators import canonical
from tracer.analyzers.timing import RUNTIME
from tracer.records.trace import Kernel

_DIMENSIONS = re.compile(r"\[([^\]]*)\]")
_UNNAMED = "N"


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One node, or a kernel of the runtime's own.

    `inputs` and `outputs` are shapes without element types, the batch written N; '' is unknown.
    `before` has the indices of the rows whose outputs this row reads, if known.
    """

    node: str
    op: str
    module: str | None
    inputs: str
    outputs: str
    kernels: str | None
    is_runtime: bool
    before: tuple[int, ...] = ()


_READ = (
    "node", "op_type", "module", "input_shapes", "output_shapes", "batch", "kernels", "index",
)  # fmt: skip
"""Columns of the node table that tell rows apart."""


def rows_of(nodes: pd.DataFrame, kernels: Sequence[Kernel] = ()) -> tuple[LayerRow, ...]:
    """Returns the features of each row of a node table of one run, in order."""
    before = _before(nodes, kernels)
    columns = [nodes[name].astype(object).where(nodes[name].notna(), None) for name in _READ]
    shapes = cache(_shapes)  # most rows share theirs
    return tuple(
        LayerRow(
            node=node,
            op=canonical(op or ""),
            module=module,
            inputs=shapes(inputs, batch),
            outputs=shapes(outputs, batch),
            kernels=ran,
            is_runtime=position is None and node.startswith(f"{RUNTIME}:"),
            before=before.get(index, ()),
        )
        for index, (node, op, module, inputs, outputs, batch, ran, position) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    )


def _shapes(text: str | None, batch: int | None) -> str:
    """Returns `[N,16,32,32], [10]` of `float32[64,16,32,32], int64[10]` at batch 64."""
    shapes = (sizes.split(",") for sizes in _DIMENSIONS.findall(text or ""))
    return ", ".join(f"[{','.join(_without_batch(sizes, batch))}]" for sizes in shapes)


def _without_batch(sizes: Sequence[str], batch: int | None) -> Sequence[str]:
    is_batch = batch is not None and len(sizes) > 1 and sizes[0] == str(batch)
    return [_UNNAMED, *sizes[1:]] if is_batch else sizes


def _before(nodes: pd.DataFrame, kernels: Sequence[Kernel]) -> dict[int, tuple[int, ...]]:
    """Returns the rows that compute the inputs of each row, by the tensors of the kernels."""
    indices: dict[Any, int] = {name: index for index, name in enumerate(nodes["node"].tolist())}
    producers: dict[tuple[str, str], int] = {}
    before: dict[int, tuple[int, ...]] = {}
    for kernel in kernels:
        index = indices.get(kernel.node, indices.get(f"{RUNTIME}:{kernel.name}"))
        read = [producers[kernel.scope, n] for n in kernel.inputs if (kernel.scope, n) in producers]
        if index is None:
            continue
        before[index] = tuple(dict.fromkeys([*before.get(index, ()), *read]))
        producers.update(((kernel.scope, name), index) for name in kernel.outputs)
    return before
