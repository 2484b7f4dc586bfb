"""Einsum of two tensors: a product of matrices for each index that both and the output have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracer.accumulators import nodes
from tracer.accumulators.engine.float_arithmetic import FloatOperands, FloatRunner
from tracer.accumulators.engine.integer_arithmetic import NodeOperands, NoIntegerForm, Operand
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes.matmul import float_sums, product_sums
from tracer.interpreter.values import Value
from tracer.support.types import Array

_DOTS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """Letters of the axes of two tensors and of the output, without spaces.

    It is a product of matrices for each index that both tensors and the output have.
    """

    left: str
    right: str
    out: str

    @classmethod
    def parsed(cls, text: str | bytes) -> "Equation":
        """Returns an equation of two tensors. Raises NoIntegerForm for another one."""
        text = text.decode() if isinstance(text, bytes) else text
        terms, arrow, out = text.replace(" ", "").partition("->")
        sides = terms.split(",")
        if len(sides) != 2 or _DOTS in text:
            raise NoIntegerForm(
                f"the equation {text} is not one of two tensors with a letter an axis"
            )
        left, right = sides
        if not arrow:
            both = left + right
            out = "".join(sorted(x for x in set(both) if both.count(x) == 1))
        equation = cls(left, right, out)
        is_repeated = any(len(set(each)) < len(each) for each in (left, right, out))
        if is_repeated or not set(left) <= set(right + out) or not set(right) <= set(left + out):
            raise NoIntegerForm(
                f"the equation {text} takes diagonals, or sums over one tensor alone"
            )
        return equation

    @property
    def batch(self) -> str:
        """Letters of axes that both tensors and the output have."""
        return "".join(x for x in self.out if x in self.left and x in self.right)

    @property
    def summed(self) -> str:
        """Letters of axes that the products are summed over, in the order of the first tensor."""
        return "".join(x for x in self.left if x not in self.out)

    def rows(self, tensor: Array) -> Array:
        """The first tensor as matrices (*batch, rows, terms)."""
        return _ordered(tensor, self.left, self.batch, self._own_axes(self.left), self.summed)

    def columns(self, tensor: Array) -> Array:
        """The second tensor as matrices (*batch, terms, columns)."""
        return _ordered(tensor, self.right, self.batch, self.summed, self._own_axes(self.right))

    def arranged(self, sums: Array, left: Sequence[int], right: Sequence[int]) -> Array:
        """Products (*batch, rows, columns) of tensors of these shapes, as the output has them."""
        own, theirs = self._own_axes(self.left), self._own_axes(self.right)
        shape = (*sums.shape[: len(self.batch)],
                 *(left[self.left.index(x)] for x in own),
                 *(right[self.right.index(x)] for x in theirs))  # fmt: skip
        named = self.batch + own + theirs
        return sums.reshape(shape).transpose([named.index(x) for x in self.out])

    def _own_axes(self, own: str) -> str:
        """Letters of axes that one tensor has alone."""
        return "".join(x for x in own if x not in self.batch + self.summed)


def _ordered(tensor: Array, letters: str, batch: str, rows: str, columns: str) -> Array:
    """The matrices of a tensor: (*batch, rows, columns), each a product of axes."""
    moved = tensor.transpose([letters.index(x) for x in batch + rows + columns])
    sizes, middle = moved.shape, len(batch) + len(rows)
    flat = math.prod(sizes[len(batch) : middle]), math.prod(sizes[middle:])
    return moved.reshape(*sizes[: len(batch)], *flat)


@nodes.lowering("Einsum")
def einsum(operands: NodeOperands) -> nodes.ComputeSums:
    """Terms are added in the order of the first tensor's summed axes, row by row."""
    equation = Equation.parsed(operands.attributes["equation"])
    a, b = operands.weights(0), operands.weights(1)
    step = _steps(a, equation.left, equation.out) * _steps(b, equation.right, equation.out)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        left, right = a.integers(inputs[0]), b.integers(inputs[1])
        rows = replace(left, numbers=equation.rows(left.numbers))
        columns = replace(right, numbers=equation.columns(right.numbers))
        is_turned = rows.constant and not columns.constant  # stored rows are channels
        if is_turned:
            rows, columns = (
                replace(each, numbers=each.numbers.swapaxes(-1, -2)) for each in (columns, rows)
            )
        sums = product_sums(runner, rows, columns, None, None)
        assert sums is not None
        sums = sums.swapaxes(-1, -2) if is_turned else sums
        arranged = equation.arranged(sums, left.numbers.shape, right.numbers.shape)
        kind = operands.float_type(inputs[0])
        return nodes.computed(arranged, lambda sums: (sums * step).astype(kind))

    return compute


@nodes.float_lowering("Einsum")
def float_einsum(operands: FloatOperands) -> nodes.ComputeFloats:
    """Terms are added in the same order."""
    equation = Equation.parsed(operands.attributes["equation"])

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a, b = inputs
        left = operands.matrix(0, equation.rows(a), -1)
        right = operands.matrix(1, equation.columns(b), -2)
        return equation.arranged(float_sums(left, right, None, runner), a.shape, b.shape)

    return compute


def _steps(operand: Operand, letters: str, out: str) -> Array:
    """One step, or one for each index of an axis of the output, in the shape of the output.

    Raises NoIntegerForm where the step varies along an axis that is summed.
    """
    for axis, letter in enumerate(letters):
        if letter not in out:
            continue
        try:
            steps = operand.steps(axis)
        except NoIntegerForm:  # it varies along another axis
            continue
        shape = [1] * len(out)
        shape[out.index(letter)] = steps.size
        return np.reshape(steps, shape) if steps.size > 1 else steps
    return operand.steps(None)
