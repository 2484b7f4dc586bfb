"""Lowerings turn nodes of floats whose outputs are sums into products; one file a family.

A lowering inspects a node once, when the model is prepared. It returns a function that computes the
node in a float accumulator, from its inputs.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.interpreter.values import Value
from tracer.support.types import Array

ComputeFloats = Callable[[Sequence[Value], FloatRunner], Array]
"""Computes the output of a node from its inputs with a runner."""
Prepare = Callable[[FloatOperands], ComputeFloats]
RunOperator = Callable[[], Sequence[Value]]
"""Computes the outputs of a node as usual."""
ComputeNode = Callable[[Sequence[Value], FloatRunner, RunOperator], Sequence[Value]]
"""Computes the outputs of a node from its inputs with a runner, or by its operator."""


@dataclass(frozen=True, slots=True)
class FloatLowering:
    """`prepare` inspects a node whose inputs at `floats` must be floats."""

    prepare: Callable[[FloatOperands], ComputeNode]
    floats: tuple[int, ...]


_LOWERINGS: dict[tuple[str, str], FloatLowering] = {}


def float_lowering(
    *names: str, domain: str = "", floats: tuple[int, ...] = (0, 1)
) -> Callable[[Prepare], Prepare]:
    """Registers the decorated function for operators of these names, with inputs of floats."""

    def register(function: Prepare) -> Prepare:
        def prepare(operands: FloatOperands) -> ComputeNode:
            compute = function(operands)
            return lambda inputs, runner, _: (compute(inputs, runner),)

        add(FloatLowering(prepare, floats), *names, domain=domain)
        return function

    return register


def add(lowering: FloatLowering, *names: str, domain: str = "") -> None:
    """Registers a lowering for operators of these names."""
    _LOWERINGS.update({(domain, name): lowering for name in names})


@cache
def float_lowerings() -> Mapping[tuple[str, str], FloatLowering]:
    """Returns the lowerings of every module of this folder, by domain and operator."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _LOWERINGS


def summed() -> Sequence[str]:
    """Returns the names of the operators whose products float accumulators add."""
    return sorted({name for _, name in float_lowerings()})
