"""Equations of Einsum that are products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.node_operands import NoIntegerForm
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
    def parsed(cls, text: str | bytes) -> Equation:
        """Returns an equation of two tensors. Raises UnfitError for another one."""
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
    sizes = moved.shape
    middle = len(batch) + len(rows)
    return moved.reshape(
        *sizes[: len(batch)], _product(sizes[len(batch) : middle]), _product(sizes[middle:])
    )


def _product(sizes: Sequence[int]) -> int:
    return int(np.prod(sizes, dtype=np.int64))
