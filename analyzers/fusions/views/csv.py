"""`.csv`: a row for each node in each of its kernels, for other kernels, and for other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analyzers.fusions import Fusions
from analyzers.views.csv import encoded

_COLUMNS = ("kernel", "kernel_op", "role", "node", "op_type", "module", "values", "why")


def render(found: Fusions) -> bytes:
    """UTF-8 CSV with a header; `role` is the kernel's, or the fate of a node without one."""
    return encoded(pd.DataFrame(_rows(found), columns=list(_COLUMNS)))


def _rows(found: Fusions) -> Iterator[tuple[Any, ...]]:
    nodes = {row.node: row for row in found.nodes}
    for kernel in found.kernels:
        about = (kernel.kernel, kernel.op_type, kernel.role)
        for key in kernel.nodes:
            node = nodes[key]
            yield *about, key, node.op_type, node.module, kernel.verdict, kernel.why or None
        if not kernel.nodes:
            yield *about, None, None, None, None, kernel.why
    for node in found.nodes:
        if not node.kernels:
            yield None, None, node.fate, node.node, node.op_type, node.module, None, node.why
