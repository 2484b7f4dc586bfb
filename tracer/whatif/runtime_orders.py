"""The orders in which onnxruntime's kernels add, as orders of accumulators.

A node has the order of the kernel that stands for it in the graph that onnxruntime optimised; where
that is no product of its own, as in fused attention, the order of the node's kernel alone. Of an
output whose places have several orders, the commonest counts. A float accumulator also multiplies
and adds in one rounding where the kernel does, and adds the bias where that does. Sums of bytes are
exact, or saturate in pairs that probes find; terms that an instruction adds at once are those of
the processor.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from tracer.accumulators.nodes import nodes_that_sum
from tracer.accumulators.spec import Bias, Register
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.nests import positionwise
from tracer.accumulators.spec.orders import Level, Order, Runtime, Sequential, Terms, Tiles
from tracer.accumulators.spec.policy import Entry, Policy, first_matches
from tracer.analyzers.attribution import attribute
from tracer.arithmetic import trees
from tracer.arithmetic.kernel import Kernel, NotKnown
from tracer.arithmetic.replays import KnownRules
from tracer.arithmetic.runs import SavedGraph
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model
from tracer.graph.operators import CONVOLUTIONS
from tracer.host import cores
from tracer.inputs.feedset import Feeds
from tracer.records import environment

_FLOATS = frozenset({"Conv", "FusedConv", "MatMul", "Gemm", "FusedMatMul", "FusedGemm"})
_BYTES = {
    "QLinearConv": 3, "ConvInteger": 1, "QLinearMatMul": 3, "QGemm": 3, "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1,
}  # fmt: skip
"""The input with the weights, of kernels that add products of bytes."""


@dataclass(frozen=True)
class KernelOrder:
    """The order of a kernel's sums; of floats also FMA, and the place of the bias."""

    order: Order = field(default_factory=Sequential)
    fused: bool = False
    bias: Bias = "first"

    def of(self, accumulator: AnyAccumulator) -> AnyAccumulator:
        """Returns an accumulator that adds so."""
        if isinstance(accumulator, Accumulator):
            return replace(accumulator, order=self.order)
        assert isinstance(accumulator, FloatAccumulator)
        fused = accumulator.fused or (self.fused and accumulator.product is None)
        return replace(accumulator, order=self.order, fused=fused, bias=self.bias)


def _has_runtime(accumulator: object) -> bool:
    return isinstance(getattr(accumulator, "order", None), Runtime)


def find_orders(
    policy: Policy,
    model: Model,
    feeds: Callable[[], Feeds],
    threads: int = 0,
    announce: Callable[[Kernel], None] = lambda kernel: None,
) -> tuple[Policy, tuple[str, ...]]:
    """Returns the policy with the order of each node's kernel in place of `runtime`, and notes.

    `feeds` returns inputs of one batch, whose shapes decide which kernels run; `threads` are the
    runtime's [default: the cores]; `announce` is called before a kernel is revealed. A node without
    a known order is summed in order, and a note says why. Raises the errors of onnxruntime for a
    model that it refuses.
    """
    if not any(_has_runtime(entry.value) for entry in policy.accumulators):
        return policy, ()
    matches = first_matches(policy.accumulators, model.nodes)
    summing = set(nodes_that_sum(model))
    kernels = _Kernels(model, feeds(), threads or cores(), announce)
    orders: dict[str, KernelOrder] = {}
    known: dict[str, list[str]] = defaultdict(list)
    unknown: dict[str, list[str]] = defaultdict(list)
    for node in model.nodes:
        entry = matches.get(node.key)
        if entry is None or not _has_runtime(entry.value) or node.key not in summing:
            continue
        try:
            orders[node.key] = kernels.order_of(node.key)
            known[str(orders[node.key].order)].append(node.key)
        except NotKnown as reason:
            orders[node.key] = KernelOrder()
            unknown[str(reason)].append(node.key)
    kernels.rules.store()
    entries = tuple(
        Entry(key, order.of(matches[key].value), matches[key].text, exact=True)
        for key, order in orders.items()
    )
    kept = tuple(entry for entry in policy.accumulators if not _has_runtime(entry.value))
    notes = (
        *(f"order of {', '.join(keys)}: {order}" for order, keys in known.items()),
        *(
            f"order of {', '.join(keys)}: not known ({why}), in order"
            for why, keys in unknown.items()
        ),
    )
    return replace(policy, accumulators=(*entries, *kept)), notes


@dataclass(frozen=True)
class _Graph:
    """A graph of onnxruntime, the values of its tensors, and its nodes by the keys of a model."""

    saved: SavedGraph
    values: Mapping[str, Any]
    nodes: Mapping[str, onnx.NodeProto]

    @classmethod
    def of(cls, model: Model, feeds: Feeds, settings: OrtSettings) -> "_Graph":
        saved = SavedGraph.of(model, settings)
        groups = zip(attribute(model, saved.ran(model)), saved.nodes, strict=True)
        nodes = {
            key: node
            for keys, node in groups
            for key in keys
            if node.op_type in _FLOATS or node.op_type in _BYTES
        }
        return cls(saved, saved.runner(model)(feeds), nodes)

    def kernel(self, key: str) -> Kernel | None:
        node = self.nodes.get(key)
        return None if node is None else self.saved.kernel(node, self.values)


class _Kernels:
    """The kernels of a model as it is, and as onnxruntime optimises it."""

    def __init__(
        self, model: Model, feeds: Feeds, threads: int, announce: Callable[[Kernel], None]
    ) -> None:
        self._optimised, self._plain = (
            _Graph.of(model, feeds, OrtSettings(threads=threads, optimization=level))
            for level in ("all", "none")
        )
        self.rules = KnownRules(announce=announce)

    def order_of(self, key: str) -> KernelOrder:
        """Returns the order of a node's sums. Raises NotKnown, with the reason, without one."""
        own = self._plain.kernel(key)
        if own is None:
            raise NotKnown("no rule of its operator has an order")
        kernel = self._optimised.kernel(key) or own
        if kernel.op_type in _BYTES:
            return KernelOrder(order_of_bytes(kernel, self.rules.of(kernel).facts))
        return order_of_floats(own, kernel, self.rules.of(kernel).facts)


def order_of_bytes(kernel: Kernel, facts: Mapping[str, Any]) -> Order:
    """Returns the order of an instruction: pairs, of which it adds two at a time, or blocks.

    VNNI adds four products at once; other processors add pairs, in 16 bits where these saturate.
    """
    place = _BYTES[kernel.op_type]
    weights = kernel.shape(place) or ()
    saturates = facts.get("pairs") or facts.get("way") in ("channels", "positions")
    has_vnni = any("vnni" in flag for flag in environment.cpu_flags())
    if saturates:
        inner: Order = Tiles((Level(2, Register(16)), Level(2)))
    else:
        inner = Tiles((Level(4 if has_vnni else 2),))
    if kernel.op_type != "QLinearConv":
        return inner
    is_depthwise = weights[1] == 1 and weights[0] == kernel.attributes.get("group", 1) > 1
    return Sequential() if is_depthwise else positionwise(inner)


def order_of_floats(own: Kernel, kernel: Kernel, facts: Mapping[str, Any]) -> KernelOrder:
    """Returns the order of most places of the output of a kernel, of the terms of a node's `own`.

    Raises NotKnown for an order, or a place of the bias, that accumulators do not have.
    """
    if "cells" not in facts:
        raise NotKnown("its rule has no order of additions")
    counts: dict[int, int] = defaultdict(int)
    heights, widths = (np.diff(facts[name], prepend=0) for name in ("rows", "columns"))
    for height, row in zip(heights, facts["cells"], strict=True):
        for width, number in zip(widths, row, strict=True):
            counts[number] += height * width
    terms, sums = _terms(own), facts["sums"][max(counts, key=lambda n: counts[n])]
    branches = trees.branches_of_program(sums["program"])
    order = trees.order_of_tree(branches, terms)
    if order is None:
        raise NotKnown("no order of accumulators is that of its kernel")
    fused, bias = bool(sums["fused"]), _terms(kernel).count
    whole = trees.canonical(branches, terms.count, bias)
    if own.shape(2) is None or whole == trees.canonical(branches, terms.count):
        return KernelOrder(order, fused)
    places: tuple[Bias, ...] = ("last", "first")
    for place in places:
        if trees.tree_of(order, terms, place) == whole:
            return KernelOrder(order, fused, place)
    raise NotKnown("no accumulator adds a bias where its kernel does")


def _terms(own: Kernel) -> Terms:
    weights = own.shape(1) or ()
    if own.op_type in CONVOLUTIONS:
        return Terms(weights[1], weights[2:])
    turned = len(weights) > 1 and not own.attributes.get("transB")
    return Terms(weights[-2] if turned else weights[-1])
