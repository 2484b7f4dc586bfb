"""Einsum of two tensors: a product of matrices for each index that both and the output have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.engine.node_operands import UnfitError
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.accumulators.float_nodes.matmul import product_sums
from tracer.interpreter.values import Value
from tracer.support.types import Array

_DOTS = "..."


@dataclass(frozen=True, slots=True)
class _Equation:
    """Letters of the axes of both tensors and of the output, without spaces."""

    left: str
    right: str
    out: str

    @property
    def batch(self) -> str:
        """Letters of axes that both tensors and the output have."""
        return "".join(x for x in self.out if x in self.left and x in self.right)

    @property
    def summed(self) -> str:
        """Letters of axes that the products are summed over."""
        return "".join(x for x in self.left if x not in self.out)

    def alone(self, own: str) -> str:
        """Letters of axes that one tensor has alone."""
        return "".join(x for x in own if x not in self.batch + self.summed)


@float_lowering("Einsum")
def einsum(operands: FloatOperands) -> ComputeFloats:
    """Terms are added in the order of the first tensor's summed axes, row by row."""
    text = operands.attributes["equation"]
    equation = _parsed(text.decode() if isinstance(text, bytes) else str(text))

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a, b = inputs
        left, right = equation.alone(equation.left), equation.alone(equation.right)
        first = _ordered(a, equation.left, equation.batch, left, equation.summed)
        second = _ordered(b, equation.right, equation.batch, equation.summed, right)
        sums = product_sums(
            operands.matrix(0, first, -1), operands.matrix(1, second, -2), None, runner
        )
        shape = (*sums.shape[: len(equation.batch)],
                 *(a.shape[equation.left.index(x)] for x in left),
                 *(b.shape[equation.right.index(x)] for x in right))  # fmt: skip
        named = equation.batch + left + right
        out = sums.reshape(shape).transpose([named.index(x) for x in equation.out])
        return out.astype(a.dtype, copy=False)

    return compute


def _ordered(tensor: Array, letters: str, batch: str, rows: str, columns: str) -> Array:
    """The matrices of a tensor: (*batch, rows, columns), each a product of axes."""
    moved = tensor.transpose([letters.index(x) for x in batch + rows + columns])
    sizes = moved.shape
    middle = len(batch) + len(rows)
    return moved.reshape(
        *sizes[: len(batch)], _product(sizes[len(batch) : middle]), _product(sizes[middle:])
    )


def _product(sizes: Sequence[int]) -> int:
    return int(np.prod(sizes, dtype=np.int64))


def _parsed(text: str) -> _Equation:
    """Returns an equation of two tensors. Raises UnfitError for another one."""
    terms, arrow, out = text.replace(" ", "").partition("->")
    sides = terms.split(",")
    if len(sides) != 2 or _DOTS in text:
        raise UnfitError(f"the equation {text} is not one of two tensors with a letter an axis")
    left, right = sides
    if not arrow:
        both = left + right
        out = "".join(sorted(x for x in set(both) if both.count(x) == 1))
    equation = _Equation(left, right, out)
    is_repeated = any(len(set(each)) < len(each) for each in (left, right, out))
    if is_repeated or not set(left) <= set(right + out) or not set(right) <= set(left + out):
        raise UnfitError(f"the equation {text} takes diagonals, or sums over one tensor alone")
    return equation
