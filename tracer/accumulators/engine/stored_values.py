"""Values that are equal in every run: stored tensors, and what nodes compute from them alone.

Exporters of quantised networks leave weights as floats, and quantise them in the graph.
"""

from collections.abc import Collection, Mapping
from functools import cached_property

import numpy as np
import onnx

from tracer.graph import operators
from tracer.graph.model import Address, Model, Node, Scope
from tracer.graph.operators import draws_numbers
from tracer.interpreter import values
from tracer.interpreter.operators import evaluated
from tracer.interpreter.values import Value
from tracer.support.types import Array

_DOMAINS = ("", operators.QONNX_DOMAIN)
"""Domains whose operators are computed."""
_KEPT = 1 << 16
"""Bytes of a computed value that is kept; a larger one is computed whenever it is asked for."""


class StoredValues:
    """The constant values of one model.

    Weights that a feed may override are constants, unless they are `excluded`, by name.
    """

    def __init__(self, model: Model, excluded: Collection[str] = ()) -> None:
        self._model = model
        self._flow = model.dataflow
        self._folder = model.path.parent if model.path is not None else None
        self._initializers = {
            (scope.path, tensor.name): tensor
            for scope in model.scopes
            for tensor in scope.graph.initializer
            if scope.path != model.root or tensor.name not in excluded
        }
        self._computed: dict[Address, Array | None] = {}

    def has(self, name: str, scope: Scope) -> bool:
        """Whether a tensor is equal in every run."""
        return self._flow.address(name, scope) in self._constant

    def tensor(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        """The initializer of this name."""
        return self._initializers.get(self._flow.address(name, scope))

    def value(self, name: str, scope: Scope) -> Array | None:
        """A constant value; None for a tensor that depends on inputs, or that cannot be computed.

        Raises ModelError for a stored tensor that cannot be read. Where a node fails, a run tells.
        """
        address = self._flow.address(name, scope)
        if address in self._initializers:
            return values.from_tensor(self._initializers[address], self._folder)
        if address not in self._constant:
            return None
        if address in self._computed:
            return self._computed[address]
        found = self._evaluate(address)
        if found is None or found.nbytes <= _KEPT:
            self._computed[address] = found
        return found

    @cached_property
    def _constant(self) -> set[Address]:
        found = set(self._initializers)
        for node in self._model.nodes:  # makers come first
            has_body = any(a.HasField("g") or a.graphs for a in node.proto.attribute)
            if node.domain not in _DOMAINS or has_body or draws_numbers(node.op_type):
                continue
            if all(address in found for address in self._flow.read(node)):
                found.update(self._flow.outputs_of(node))
        return found

    def _evaluate(self, address: Address) -> Array | None:
        """Computes the nodes that a tensor follows from, in the order of the graph."""
        makers: dict[int, Node] = {}
        waiting = [address]
        while waiting:
            maker = self._flow.makers.get(waiting.pop())
            if maker is not None and maker.index not in makers:
                makers[maker.index] = maker
                waiting.extend(self._flow.read(maker))
        known: dict[Address, Value] = {}
        for _, node in sorted(makers.items()):
            inputs = [
                None if not name else self._value_at(self._flow.address(name, node.scope), known)
                for name in node.inputs
            ]
            try:
                opset = self._model.opsets.get(node.domain, 1)
                outputs = evaluated(node, opset, inputs, self._folder)
            except Exception:  # an operator may raise anything for values that do not fit
                return None
            known.update(zip(((node.scope.path, name) for name in node.outputs), outputs,
                             strict=False))  # fmt: skip
        found = known.get(address)
        return np.asarray(found) if isinstance(found, np.ndarray | np.generic) else None

    def _value_at(self, address: Address, computed: Mapping[Address, Value]) -> Value:
        if address in self._initializers:
            return values.from_tensor(self._initializers[address], self._folder)
        return computed.get(address)
