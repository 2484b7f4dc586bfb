"""Lowerings turn nodes whose outputs are sums into dot products; one file a family of operators.

A lowering inspects a node once, when the model is prepared. It returns a function that computes the
node: `lowering` registers one for sums of integers, which raises `NoIntegerForm` if the node has no
integer arithmetic; `float_lowering` registers one for products in a float accumulator.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tracer.accumulators.engine import integer_arithmetic
from tracer.accumulators.engine.float_arithmetic import FloatOperands, FloatRunner
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.errors import TracerError
from tracer.graph.model import Model, Node
from tracer.graph.operators import PRODUCTS, integer_attribute, multiplies
from tracer.interpreter import values
from tracer.shapes import infer
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class NodeSums:
    """The sums of a node, and the output's function of them.

    `compute` returns the sums, int64 in the shape of the output, or the output itself for a
    `Finish`; None where no kernel finishes these sums. `finish` is that of the node, if it has one.
    `further` are the outputs of the node after the first one.
    """

    compute: Callable[[integer_arithmetic.Finish | None], Array | None]
    restore: integer_arithmetic.Restore
    finish: integer_arithmetic.Finish | None = None
    further: tuple[Array, ...] = ()

    @property
    def outputs(self) -> tuple[Array, ...]:
        """All outputs of the node."""
        return self.output, *self.further

    @property
    def output(self) -> Array:
        """The first output of the node."""
        finished = None if self.finish is None else self.compute(self.finish)
        if finished is not None:
            return finished
        sums = self.compute(None)
        assert sums is not None
        return self.restore(sums)


def computed(sums: Array, restore: integer_arithmetic.Restore) -> NodeSums:
    """Sums that no kernel finishes."""
    return NodeSums(lambda finish: sums if finish is None else None, restore)


def finished(output: Array, *further: Array) -> NodeSums:
    """The outputs themselves, where sums are many or have become floats on their way."""
    return replace(computed(output, np.asarray), further=further)


def requantizing(compute: Callable[[integer_arithmetic.Finish | None], Array | None], factor: Array,
                 zero: Array) -> NodeSums:  # fmt: skip
    """Sums that become bytes: times one `factor`, or one for each channel, plus `zero`."""
    restore = integer_arithmetic.Requantize(factor, zero)
    return NodeSums(compute, restore, restore.finish())


ComputeSums = Callable[[Sequence[values.Value], SumRunner], NodeSums]
"""Computes the sums of a node from its inputs with a runner."""


def followed(
    compute: ComputeSums, then: Callable[[Array, Sequence[values.Value]], Array]
) -> ComputeSums:
    """The sums of `compute`; the output is `then` of its output and of the inputs."""

    def both(inputs: Sequence[values.Value], runner: SumRunner) -> NodeSums:
        sums = compute(inputs, runner)
        return NodeSums(sums.compute, lambda numbers: then(sums.restore(numbers), inputs))

    return both


Lowering = Callable[[integer_arithmetic.NodeOperands], ComputeSums]
ComputeFloats = Callable[[Sequence[values.Value], FloatRunner], Array]
"""Computes the output of a node, in any float type, from its inputs with a runner."""
RunOperator = Callable[[], Sequence[values.Value]]
"""Computes the outputs of a node as usual."""
FloatLowering = Callable[
    [FloatOperands],
    Callable[[Sequence[values.Value], FloatRunner, RunOperator], Sequence[values.Value]],
]
"""Returns what computes the outputs of a node from its inputs with a runner, or by its operator.

It raises NoIntegerForm for inputs that are no floats.
"""
_LOWERINGS: dict[tuple[str, str], Lowering] = {}
_FLOAT_LOWERINGS: dict[tuple[str, str], FloatLowering] = {}


def lowering(*names: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Registers the decorated function for operators of these names."""

    def register(function: Lowering) -> Lowering:
        _LOWERINGS.update({(domain, name): function for name in names})
        return function

    return register


def float_lowering(
    *names: str, domain: str = "", floats: tuple[int, ...] = (0, 1)
) -> Callable[[Callable[[FloatOperands], ComputeFloats]], None]:
    """Registers the decorated function for operators whose inputs at `floats` are floats."""

    def register(function: Callable[[FloatOperands], ComputeFloats]) -> None:
        def prepare(operands: FloatOperands) -> Callable[..., Sequence[values.Value]]:
            compute = function(operands)

            def outputs(inputs: Sequence[values.Value], runner: FloatRunner, _: RunOperator) -> Any:
                operands.check(inputs, floats)
                return (compute(inputs, runner).astype(inputs[0].dtype, copy=False),)

            return outputs

        add_float_lowering(prepare, *names, domain=domain)

    return register


def add_float_lowering(lowering: FloatLowering, *names: str, domain: str = "") -> None:
    """Registers a lowering to floats for operators of these names."""
    _FLOAT_LOWERINGS.update({(domain, name): lowering for name in names})


def lowerings() -> Mapping[tuple[str, str], Lowering]:
    """Returns the lowerings to integers of all modules of this folder, by domain and operator."""
    _import_all()
    return _LOWERINGS


def float_lowerings() -> Mapping[tuple[str, str], FloatLowering]:
    """Returns the lowerings to floats of all modules of this folder, by domain and operator."""
    _import_all()
    return _FLOAT_LOWERINGS


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def rules_of(policy: Policy, model: Model) -> dict[str, Rule]:
    """Returns the rules of the nodes of a model by key, as `Policy.assign` does.

    Presets tell apart nodes with "uint8 weights", operators of integers with "int8 activations",
    and "depthwise" convolutions: an output channel for each input channel, which alone it reads.
    """
    if not any(entry.instead for entry in policy.accumulators):
        return policy.assign(model.nodes)
    scales, types = TensorScales(model), infer(model, {})

    def traits(node: Node) -> tuple[str, ...]:
        product = PRODUCTS.get(node.op_type)
        if product is None or product.weights is None or len(node.inputs) <= product.weights:
            return ()
        found = []
        for index, what in ((0, "activations"), (product.weights, "weights")):
            scale = scales.of(node.inputs[index], node.scope)
            if scale is not None:  # activations of a qdq graph, whatever their type
                found += [f"{scale.dtype} {what}"] if index else []
                continue
            # the tensor's type, or where it is not known that of its zero point, two inputs on
            tensors = [types.of(name, node.scope) for name in node.inputs[index : index + 3 : 2]]
            known = [each.dtype for each in tensors if each is not None and each.dtype]
            found += [f"{dtype} {what}" for dtype in known[:1]]
        groups = integer_attribute(node.proto, "group", 1)
        kernel = types.of(node.inputs[product.weights], node.scope)
        if kernel is not None and groups > 1 and (kernel.shape or ())[:2] == (groups, 1):
            found.append("depthwise")
        return tuple(found)

    return policy.assign(model.nodes, traits)


def nodes_that_sum(model: Model) -> tuple[str, ...]:
    """Returns the keys of the nodes whose sums an accumulator computes, in order.

    Products count in any arithmetic; sums without products, as of Add, where they are integers.
    """
    scales = TensorScales(model)

    def adds_integers(node: Node) -> bool:
        lowering = lowerings().get((node.domain, node.op_type))
        if lowering is None:
            return False
        try:
            attributes = values.attributes_of(node.proto)
            lowering(integer_arithmetic.NodeOperands(node, attributes, scales, None))
        except (integer_arithmetic.NoIntegerForm, TracerError):
            return False
        return True

    return tuple(node.key for node in model.nodes if multiplies(node) or adds_integers(node))
