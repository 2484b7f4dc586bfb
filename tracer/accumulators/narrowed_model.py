"""A model whose sums are made in narrow accumulators, and what that did to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import numpy as np

from tracer.accumulators.engine.node_operands import NodeOperands, UnfitError
from tracer.accumulators.engine.node_output import replaced
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.kernels import loaded
from tracer.accumulators.nodes import Summing, lowerings
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.sequential import Sequential
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import ModelError
from tracer.graph.model import Model, Node
from tracer.interpreter import values
from tracer.interpreter.binding import Body, Kernel
from tracer.interpreter.kernel_loading import announced
from tracer.interpreter.values import Value
from tracer.support.progress import Progress
from tracer.support.types import Array

_INSTEAD: ContextVar[Mapping[str, SumRunner] | None] = ContextVar("meters", default=None)

_NAMED = 6
"""Nodes that a note names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """What is known of the sums of one node.

    `guaranteed` bits hold the partial sums of any input, in the accumulator's order;
    `guaranteed_any_order` in whatever order; `guaranteed_channels`, int64, are those of each
    output channel. `datatype` bits follow from the types of the operands alone.
    """

    node: Node
    accumulator: Accumulator
    tally: Tally
    guaranteed: int
    guaranteed_any_order: int
    guaranteed_channels: Array
    datatype: int


class Narrowing:
    """Computes the nodes that a policy names in the accumulators it gives them.

    To be given to `Interpreter(around=...)`; every run adds to the statistics. A sum that no
    overflow changed keeps the bits of the plain interpreter. Raises UsageError for a policy that
    matches nothing, ModelError where what an entry matches has no integer arithmetic.
    """

    def __init__(self, model: Model, policy: Policy) -> None:
        self._model = model
        self._summings: dict[str, Summing] = {}
        self._meters: dict[str, SumRunner] = {}
        self._why_not: dict[str, str] = {}
        rules = policy.assign(model.nodes)
        units = TensorScales(model)
        for node in model.nodes:
            if node.key in rules:
                self._prepare(node, rules[node.key], units)
        self._check(rules)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nodes that sum, and that the policy names, but have no integer arithmetic, by reason."""
        nodes: dict[str, list[str]] = {}
        for node, why in self._why_not.items():
            nodes.setdefault(why, []).append(node)
        return tuple(f"not narrowed: {_listed(named)}: {why}" for why, named in nodes.items())

    @property
    def meters(self) -> Mapping[str, SumRunner]:
        """What measures each narrow node now, by its key, in the order of the model."""
        return self._meters

    def load(self, progress: Progress | None) -> None:
        """Load, or compile, the kernels now, and not within the first run."""
        with announced(progress):
            for name in ("sequential_sums", "program_sums", "sum_statistics"):
                loaded(name)
            if any(meter.accumulator.order != Sequential() for meter in self._meters.values()):
                for name in ("program_sums_vector", "grouped_sums"):
                    loaded(name)

    def fresh(
        self, bits: Mapping[str, int], kind: type[SumRunner] = SumRunner
    ) -> dict[str, SumRunner]:
        """Meters that have seen nothing, with other widths for the nodes that `bits` names."""
        return {
            key: kind(
                replace(meter.accumulator, bits=bits.get(key, meter.accumulator.bits)),
                meter.mark_unchanged,
            )
            for key, meter in self._meters.items()
        }

    @contextmanager
    def measured(self, meters: Mapping[str, SumRunner]) -> Iterator[None]:
        """Let runs that this thread begins be measured by `meters`, and not by those of all."""
        token = _INSTEAD.set(meters)
        try:
            yield
        finally:
            _INSTEAD.reset(token)

    def accumulations(
        self, meters: Mapping[str, SumRunner] | None = None
    ) -> Mapping[str, Accumulation]:
        """What `meters` have seen, the usual ones unless given, by node key.

        In the order of the model; nodes that have not run are left out.
        """
        found = self._meters if meters is None else meters
        return {
            node.key: _accumulation(node, found[node.key])
            for node in self._model.nodes
            if node.key in found and found[node.key].tally is not None
        }

    def kernel(self, node: Node, plain: Kernel) -> Kernel:
        """What computes `node`: `plain` where no policy names it."""
        summing = self._summings.get(node.key)
        if summing is None:
            return plain

        def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
            meter = (_INSTEAD.get() or self._meters)[node.key]
            sums = summing(inputs, meter)
            if not meter.mark_unchanged:
                return (sums.restore(sums.integers),)
            first, *others = plain(inputs, bodies)
            return (replaced(first, sums.integers, sums.restore), *others)

        return kernel

    def _prepare(self, node: Node, rule: Rule, units: TensorScales) -> None:
        lowering = lowerings().get((node.domain, node.op_type))
        if lowering is None:
            return
        attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
        try:
            summing = lowering(NodeOperands(node, attributes, units, rule.format))
        except UnfitError as reason:
            self._why_not[node.key] = str(reason)
        else:
            self._summings[node.key] = summing
            self._meters[node.key] = SumRunner(rule.accumulator, rule.format is None)

    def _check(self, rules: Mapping[str, Rule]) -> None:
        """Every entry of the policy narrows a node at least."""
        entries: dict[int, list[str]] = defaultdict(list)
        for key, rule in rules.items():
            entries[id(rule.accumulator)].append(key)
        for keys in entries.values():
            if not any(key in self._summings for key in keys):
                raise self._nothing(keys)

    def _nothing(self, keys: Sequence[str]) -> ModelError:
        summing = [key for key in keys if key in self._why_not]
        node = next(n for n in self._model.nodes if n.key == (summing or keys)[0])
        where = f"{self._model.name}: node '{node.key}' ({node.qualified_type})"
        if not summing:
            sums = sorted({name for _, name in lowerings()})
            return ModelError(f"{where} adds nothing up", f"Operators that do: {', '.join(sums)}.")
        return ModelError(
            f"{where} has no integer arithmetic: {self._why_not[node.key]}",
            "Quantise the model, or say which fixed-point numbers its floats become.",
        )


def _accumulation(node: Node, meter: SumRunner) -> Accumulation:
    assert meter.tally is not None
    accumulator = meter.accumulator
    bounds = [reduction.bounds(accumulator) for reduction in meter.reductions]
    widest = np.max([bound.bits.max() for bound in bounds])
    channels = len(meter.tally.outputs)
    alike = all(len(bound.bits) in (1, channels) for bound in bounds)
    each = np.max(np.broadcast_arrays(*(bound.bits for bound in bounds)), 0) if alike else widest
    return Accumulation(
        node=node,
        accumulator=accumulator,
        tally=meter.tally,
        guaranteed=int(widest),
        guaranteed_any_order=int(max(bound.any_order_bits.max() for bound in bounds)),
        guaranteed_channels=np.broadcast_to(each, channels),
        datatype=max(reduction.datatype(accumulator) for reduction in meter.reductions),
    )


def _listed(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_NAMED])
    return f"{shown} and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else shown
