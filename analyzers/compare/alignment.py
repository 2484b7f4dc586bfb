"""Match the rows of node tables that are the same layer.

Rows are matched one to one, the most reliable way first: by name, by module, by order in the graph,
by name with other sizes.
A row without a match was split, or folded into a neighbour: it joins the group of that neighbour.
A row that fits nowhere stays alone. Each row is in exactly one group.
"""

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pandas as pd

from tracer.analyzers.timing import RUNTIME
from tracer.records.tensor_match import DisjointSets
from tracer.records.trace import BACKWARD, Kernel

Key = Callable[["LayerRow"], Hashable]
"""Returns what must be equal for two rows to match; None for a row that this key cannot match."""

SideRow = tuple[int, int]
"""A side and the index of one of its rows."""

_KEYED: tuple[Key, ...] = (
    lambda row: (row.node, row.op, row.module, row.outputs),
    lambda row: None if row.module is None else (row.module, row.op, row.outputs),
    lambda row: (row.module, row.op) if row.module else None,
)
"""Keys that match rows in any order: by name, by module and shapes, by module alone. Rows with
equal keys match in sequence."""

_ORDERED: tuple[Key, ...] = (
    lambda row: (row.op, row.inputs, row.outputs),
    lambda row: (row.op, row.outputs),
)
"""Keys that match only rows in the same order: by shapes, by outputs."""

_MOST_PAIRS = 1_000_000
"""Pairs of equal keys among which the longest blocks are searched: that takes a second for these,
and grows with their number and that of the blocks."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Rows that are one layer: for each side their indices in its table, maybe none."""

    rows: tuple[tuple[int, ...], ...]


def align(sides: "Sequence[Sequence[LayerRow]]") -> tuple[Layer, ...]:
    """Returns the layers of all sides in the order of the first, with which each is matched."""
    groups = _Groups()
    for side, rows in enumerate(sides):
        owners: dict[Hashable, int] = {}
        for index, row in enumerate(rows):
            groups.add((side, index))
            # Rows of one kernel share one time, which no layer may divide.
            key: Hashable = ("runtime",) if row.is_runtime else row.kernels
            if key is not None:
                groups.join((side, owners.setdefault(key, index)), (side, index))
    for other in range(1, len(sides)):
        _match(groups, sides[0], sides[other], other)
    for other in range(1, len(sides)):
        _attach_modules(groups, sides, other)
        for side, missing in ((0, other), (other, 0)):
            for forward in (True, False):  # first into the nodes before, then into the nodes after
                _attach_folded(groups, side, sides[side], missing, forward)
    return tuple(
        Layer(tuple(tuple(i for s, i in group if s == side) for side in range(len(sides))))
        for group in groups.all()
    )


class _Groups(DisjointSets[SideRow]):
    """Groups of rows of all sides, each with its first row on top."""

    def __init__(self) -> None:
        super().__init__()
        self._sides: dict[SideRow, set[int]] = {}

    def sides(self, row: SideRow) -> set[int]:
        """Returns the sides with rows in the group of a row."""
        top = self.top(row)
        return self._sides.get(top, {top[0]})

    def join(self, one: SideRow, other: SideRow) -> None:
        """Makes one group of the groups of two rows."""
        low, high = sorted((self.top(one), self.top(other)))
        if low != high:
            self._sides[low] = self.sides(low) | self.sides(high)
            super().join(high, low)


def _match(
    groups: _Groups, first: "Sequence[LayerRow]", second: "Sequence[LayerRow]", other: int
) -> None:
    """Unites rows of the first side with one row each of another, the most reliable way first."""
    left = [i for i, row in enumerate(first) if not row.is_runtime]
    right = [i for i, row in enumerate(second) if not row.is_runtime]
    methods = [(key, _keyed) for key in _KEYED] + [(key, _ordered) for key in _ORDERED]
    if not all(any(row.outputs for row in rows) for rows in (first, second)):
        methods.append((lambda row: row.op, _ordered))  # without shapes, only the type remains
    for key, pairing in methods:
        pairs = list(pairing([key(first[i]) for i in left], [key(second[i]) for i in right]))
        for a, b in pairs:
            groups.join((0, left[a]), (other, right[b]))
        matched = {left[a] for a, _ in pairs}, {right[b] for _, b in pairs}
        left = [index for index in left if index not in matched[0]]
        right = [index for index in right if index not in matched[1]]
    # Data tell the sizes of the others of one name that read the same, and of what follows.
    named = {(second[i].node, second[i].op, second[i].module): i for i in right}
    for index in left:
        row = first[index]
        match = named.get((row.node, row.op, row.module))
        if match is not None:
            read = {groups.top((0, each)) for each in row.before}
            theirs = {groups.top((other, each)) for each in second[match].before}
            if row.inputs == second[match].inputs != "" or read == theirs != set():
                groups.join((0, index), (other, match))
    # Kernels of the runtime's own are in one group on each side.
    runtime = [[i for i, row in enumerate(rows) if row.is_runtime] for rows in (first, second)]
    if all(runtime):
        groups.join((0, runtime[0][0]), (other, runtime[1][0]))


def _keyed(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions with equal keys: first with first, second with second."""
    waiting: dict[Hashable, list[int]] = {}
    for position in reversed(range(len(right))):
        waiting.setdefault(right[position], []).append(position)
    for position, key in enumerate(left):
        if key is not None and waiting.get(key):
            yield position, waiting[key].pop()


def _ordered(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions of equal keys that have the same order on both sides."""
    counts = Counter(right)
    if sum(counts[key] for key in left) > _MOST_PAIRS:
        yield from _rising(left, right)
        return
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from ((block.a + step, block.b + step) for step in range(block.size))


def _rising(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions as `_ordered`, in a time that grows little faster than the rows.

    These are the positions alike at both ends, and in between those of `_keyed` that rise: a
    longest such sequence.
    """
    shorter = min(len(left), len(right))
    pairs = enumerate(zip(left, right, strict=False))
    start = next((place for place, (a, b) in pairs if a != b), shorter)
    backwards = enumerate(zip(reversed(left), reversed(right), strict=False))
    end = min(next((place for place, (a, b) in backwards if a != b), shorter), shorter - start)
    middle = list(_keyed(left[start : len(left) - end], right[start : len(right) - end]))
    yield from ((place, place) for place in range(start))
    yield from ((start + a, start + b) for a, b in _longest_rising(middle))
    yield from ((len(left) - place, len(right) - place) for place in range(end, 0, -1))


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns a longest part of the pairs, whose first numbers rise, in which the second do too."""
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, value) in enumerate(pairs):
        length = bisect_left(lowest, value)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1] = [value]
        ends[length : length + 1] = [index]
    chosen, index = [], ends[-1] if ends else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _attach_modules(groups: _Groups, sides: "Sequence[Sequence[LayerRow]]", other: int) -> None:
    """Unites the unmatched rows of a module: the sides split the module differently."""
    owners: dict[tuple[int, str], list[int]] = {}
    for side in (0, other):
        for index, row in enumerate(sides[side]):
            if row.module and groups.sides((side, index)) == {side}:
                owners.setdefault((side, row.module), []).append(index)
    for (side, module), indices in owners.items():
        if side == 0 and (other, module) in owners:
            for index in indices:
                groups.join((0, indices[0]), (0, index))
            for index in owners[other, module]:
                groups.join((0, indices[0]), (other, index))


def _attach_folded(
    groups: _Groups, side: int, rows: "Sequence[LayerRow]", missing: int, forward: bool
) -> None:
    """Unites unmatched rows with a matched neighbour into which they may be folded."""
    by_kernels = any(row.before for row in rows)
    before: list[Sequence[int]] = []  # the producers of each row's inputs; if unknown, the last row
    after: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        is_known = row.before or (by_kernels and row.kernels is not None)
        before.append(row.before if is_known else (index - 1,) if index else ())
        for producer in before[-1]:
            after.setdefault(producer, []).append(index)
    chained = {"batchnormalization", "add", "mul"}  # as in Conv, BatchNormalization, Relu
    for index in range(len(rows)) if forward else reversed(range(len(rows))):
        if rows[index].is_runtime or missing in groups.sides((side, index)):
            continue
        op = rows[index].op
        for host in before[index] if forward else after.get(index, ()):
            fits = may_fold(op, rows[host].op) or (
                rows[host].op in chained and may_fold(op, "conv")
            )
            if fits and missing in groups.sides((side, host)):
                groups.join((side, host), (side, index))
                break


_BRACKETS = re.compile(r"\[([^\]]*)\]")
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


def layer_rows(nodes: pd.DataFrame, kernels: Sequence[Kernel] = ()) -> tuple[LayerRow, ...]:
    """Returns the features of each row of a node table of one run, in order."""
    indices: dict[Any, int] = {name: index for index, name in enumerate(nodes["node"].tolist())}
    producers: dict[tuple[str, str], int] = {}
    before: dict[int, tuple[int, ...]] = {}  # the rows that compute the inputs of each, by tensors
    for kernel in kernels:
        place = indices.get(kernel.node, indices.get(f"{RUNTIME}:{kernel.name}"))
        if place is None:
            continue
        read = [producers[kernel.scope, n] for n in kernel.inputs if (kernel.scope, n) in producers]
        before[place] = tuple(dict.fromkeys([*before.get(place, ()), *read]))
        producers.update(((kernel.scope, name), place) for name in kernel.outputs)
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
    shapes = [sizes.split(",") for sizes in _BRACKETS.findall(text or "")]
    for sizes in shapes:
        if batch is not None and len(sizes) > 1 and sizes[0] == str(batch):
            sizes[0] = _UNNAMED
    return ", ".join(f"[{','.join(sizes)}]" for sizes in shapes)


_AFFIXES = re.compile(r"^aten::_?|^aten_|^(fused|nhwc|nchwc|qlinear|dynamicquantize|mkldnn_)(?=\w)")
_ENDINGS = re.compile(r"(function|_backward)$|_+$")
_DIMENSIONS = re.compile(r"_?(1d|2d|3d|nd(?![a-z]))")

_ALIASES = {
    "convolution": "conv", "convinteger": "conv",
    "deconvolution": "convtranspose", "conv_transpose": "convtranspose",
    "gemm": "matmul", "addmm": "matmul", "linear": "matmul", "mm": "matmul", "bmm": "matmul",
    "baddbmm": "matmul", "matmulinteger": "matmul", "dense": "matmul",
    "batch_norm": "batchnormalization", "native_batch_norm": "batchnormalization",
    "fixedbatchnormalization": "batchnormalization",
    "layer_norm": "layernormalization", "native_layer_norm": "layernormalization",
    "clippedrelu": "clip", "relu6": "clip", "hardtanh": "clip", "clamp": "clip",
    "max_pool": "maxpool", "maxpooling": "maxpool", "max_pool_with_indices": "maxpool",
    "avg_pool": "averagepool", "averagepooling": "averagepool",
    "adaptive_avg_pool": "averagepool", "globalaveragepool": "averagepool", "mean": "averagepool",
    "reducemean": "averagepool", "average": "averagepool",
    "flatten": "reshape", "view": "reshape", "squeeze": "reshape", "unsqueeze": "reshape",
    "expanddims": "reshape", "unsafe_view": "reshape",
    "permute": "transpose", "t": "transpose", "sum": "add",
    "concatenation": "concat", "cat": "concat", "embedid": "gather", "embedding": "gather",
    "scaled_dot_product_attention": "attention", "logsoftmax": "logsoftmax",
    "log_softmax": "logsoftmax", "multiply": "mul", "division": "div",
}  # fmt: skip
"""ONNX names of framework operators, by their name without affixes."""

ANY = frozenset({"*"})
_LINEAR = frozenset({"conv", "convtranspose", "matmul"})
_COMPUTING = _LINEAR | {"batchnormalization", "add", "mul", "layernormalization", "attention"}

FOLDED = {
    "batchnormalization": _LINEAR,
    "add": _LINEAR | {"batchnormalization"},
    "mul": _LINEAR | {"batchnormalization", "matmul", "averagepool"},
    "div": _LINEAR,
    "relu": _COMPUTING, "leakyrelu": _COMPUTING, "sigmoid": _COMPUTING, "tanh": _COMPUTING,
    "clip": _COMPUTING, "hardsigmoid": _COMPUTING, "hardswish": _COMPUTING, "silu": _COMPUTING,
    "gelu": _COMPUTING, "softmax": _COMPUTING,
    "pad": _LINEAR | {"maxpool", "averagepool"},
    "reshape": ANY, "transpose": ANY, "identity": ANY, "dropout": ANY, "cast": ANY,
    "contiguous": ANY, "clone": ANY, "copy": ANY, "detach": ANY, "to": ANY, "slice": ANY,
    "constant": ANY, "shape": ANY, "expand": ANY, "gather": ANY, "concat": ANY,
    "quantizelinear": ANY, "dequantizelinear": ANY,
}  # fmt: skip
"""Operators that a runtime or exporter folds into a neighbour, and into which. It tells where the
work of an operator went that only one side has."""


@lru_cache(maxsize=1000)
def canonical(op_type: str) -> str:
    """Returns one name for an operator: `conv` for `Conv`, `aten::conv2d`, `Convolution2DFunction`.

    A backward pass keeps its suffix: it is another layer than its forward pass.
    """
    forward = op_type.removesuffix(BACKWARD)
    name = _ENDINGS.sub("", forward.lower())
    name = _DIMENSIONS.sub("", _AFFIXES.sub("", name))
    name = _ENDINGS.sub("", name)
    return _ALIASES.get(name, name) + op_type[len(forward) :]


def is_convolution(op_type: str) -> bool:
    """Returns whether any of the operators joined by `+` is a convolution, forward or backward."""
    names = (canonical(name).removesuffix(BACKWARD) for name in op_type.split("+"))
    return any(name in ("conv", "convtranspose") for name in names)


def may_fold(op: str, host: str) -> bool:
    """Returns whether `op` may be folded into a neighbour `host`; both names are canonical."""
    hosts = FOLDED.get(op, frozenset())
    return hosts is ANY or host in hosts
