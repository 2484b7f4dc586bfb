"""Counts products and bytes of what torch dispatches, and marks them in the profile.

torch's own formulas (`torch.utils.flop_counter`) count the products, forward and backward. Bytes
are those of the tensors that an operator reads and writes, each once. A mark stands in the profile
where its operator does, so it is inside the row of the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tracer.executors.calls import Calls, Span
from tracer.executors.protocol import OperatorWork

_MARK = "tracer:work:"
_MODE = "PythonDispatchMode"
"""The span that torch puts around what a mode dispatches."""
_OVERWRITING = ("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_")
"""Operators that write a tensor without reading it."""
_CHOOSING = ("embedding", "gather", "index", "index_select")
"""Operators that read of their first tensor what they write."""
_CREATING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""Operators that write nothing."""


class Marking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Marks the work of each operator that torch dispatches, below its modules and autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs an operator and marks it; one that consists of others is marked by these."""
        arguments = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **arguments)
            if parts is not NotImplemented:
                return parts
        results = func(*args, **arguments)
        if not func.is_view:
            flops = 0 if formula is None else formula(*args, **arguments, out_val=results)
            read, written = _bytes_moved(func, args, arguments, results)
            floats = (t.dtype for t in _tensors([args, arguments]) if t.dtype.is_floating_point)
            kind = str(next(floats, torch.float32)).removeprefix("torch.")
            if flops or read or written:
                work = (_name(func), kind, flops, read, written)
                with _RecordFunctionFast(_MARK + ":".join(map(str, work))):
                    pass
        return results


def _bytes_moved(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any
) -> tuple[int, int]:
    """Returns the bytes that an operator reads and writes."""
    name = _name(func)
    if name in _CREATING:
        return 0, 0
    named = list(zip(func._schema.arguments, args, strict=False))
    named += [(each, kwargs[each.name]) for each in func._schema.arguments if each.name in kwargs]
    changed = [
        value for each, value in named if each.alias_info is not None and each.alias_info.is_write
    ]
    written = _bytes([results, changed])
    overwrites = name in _OVERWRITING or "out" in kwargs
    inputs = [value for _, value in named if not (overwrites and any(value is c for c in changed))]
    read = _bytes(inputs)
    return (min(read, 2 * written) if name in _CHOOSING else read), written


def _bytes(values: Any) -> int:
    """Returns the bytes of all tensors in `values`, one that occurs twice once."""
    sizes = {
        (t.data_ptr(), t.nbytes): min(t.nbytes, t.untyped_storage().nbytes())
        for t in _tensors(values)
        if t.layout == torch.strided
    }
    return sum(sizes.values())


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _name(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]


def work_by_row(spans: Iterable[Span]) -> dict[str, OperatorWork]:
    """Returns the work of each row that has some, from the spans of one run with marks."""
    calls = Calls("torch")
    calls.observe(span for span in spans if span.name != _MODE)
    rows: dict[str, OperatorWork] = {}
    for site in calls.sites:
        if site.name.startswith(_MARK):
            name, kind, *counts = site.name.removeprefix(_MARK).split(":")
            work = OperatorWork(name, kind, *map(int, counts))
            rows[site.node] = rows[site.node] + work if site.node in rows else work
    return rows
