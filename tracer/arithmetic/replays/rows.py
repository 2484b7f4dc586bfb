"""Softmax and normalisations of rows: the lanes in which they add, and the way to the deviation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.replays.interpreter import of_floats
from tracer.arithmetic.rule import Facts, NotKnown, Rule, are_equal
from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"
_FAR_BELOW = np.float32(-1e4)
_BY_AXIS = 13
"""From this opset on, a softmax is along one axis; before, along all axes from one on."""
_WAYS = {
    # whether rows are centred: in the order of `VECTORS` and others in `kernels.rows`
    True: (
        "mean in 4 lanes of float64, squares of deviations in 8 lanes with fused multiply-add",
        "one after the other, mean and variance by Welford's updates",
        "one after the other, mean of squares less square of the mean",
    ),
    False: ("squares in 8 lanes with fused multiply-add", "squares one after the other"),
}


@dataclass(frozen=True)
class _Softmax:
    is_log: bool

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        for lanes in (16, 8):
            text = f"exp by a polynomial, sums in {lanes} lanes, then a product with the reciprocal"
            rule = Rule(text, {"lanes": lanes})
            if self._has_floor(kernel, rule):
                yield rule

    def _has_floor(self, kernel: Kernel, rule: Rule) -> bool:
        """Whether the rule has the kernel's result far below the largest number, as masks are."""
        ((name, (_, shape)),) = kernel.inputs.items()
        feeds = {name: np.full(shape, _FAR_BELOW)}
        feeds[name].flat[0] = 0
        return bool(
            are_equal(kernel.run(feeds)[0], self.replay(kernel, rule.facts, feeds)[0]).all()
        )

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (values,) = kernel.values(inputs)
        by_axis = kernel.opsets[""] >= _BY_AXIS
        axis = kernel.attributes.get("axis", -1 if by_axis else 1)
        turned = np.moveaxis(values, axis, -1) if by_axis else values
        shape = turned.shape
        width = shape[-1] if by_axis else int(np.prod(shape[axis:]))
        rows = np.ascontiguousarray(turned).reshape(-1, width)
        out = np.empty_like(rows)
        loaded("rows", _PACKAGE).softmax(rows, facts["lanes"] == 16, self.is_log, out)
        turned = out.reshape(shape)
        return [np.moveaxis(turned, -1, axis) if by_axis else turned]


@dataclass(frozen=True)
class _Normalization:
    """Of rows that begin at an axis; `skips` says that another input is added before."""

    is_centred: bool
    skips: bool = False

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        for way, text in enumerate(_WAYS[self.is_centred]):
            yield Rule(text, {"way": way})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, *others = kernel.values(inputs)
        axis = -1 if self.skips else kernel.attributes.get("axis", -1)
        if self.skips:
            skip, *others = others
            bias = others.pop(1 + self.is_centred) if len(others) > 1 + self.is_centred else None
            x = np.asarray(x + skip if bias is None else x + skip + bias)
        shape = x.shape
        rows = np.ascontiguousarray(x).reshape(int(np.prod(shape[:axis])), -1)
        scale, *biases = [np.ravel(each) for each in others if each is not None]
        bias = biases[0] if biases else np.empty(0, np.float32)
        if scale.size != rows.shape[1] or bias.size not in (0, scale.size):
            raise NotKnown("scale and bias differ between rows")
        epsilon = kernel.attributes.get("epsilon", 1e-5)
        out, statistics = np.empty_like(rows), np.empty((2, len(rows)), np.float32)
        settings = facts["way"], self.is_centred, np.float32(epsilon)
        loaded("rows", _PACKAGE).normalize(rows, scale, bias, settings, out, statistics)
        reduced = (*shape[:axis], *[1] * len(shape[axis:]))
        outputs = [out.reshape(shape), *[each.reshape(reduced) for each in statistics], x]
        if not (self.is_centred or self.skips):
            del outputs[1]
        names = kernel.node.output
        return [output for name, output in zip(names, outputs, strict=False) if name]


REPLAYS = of_floats(
    {
        "Softmax": _Softmax(is_log=False),
        "LogSoftmax": _Softmax(is_log=True),
        "LayerNormalization": _Normalization(is_centred=True),
        "RMSNormalization": _Normalization(is_centred=False),
        "SimplifiedLayerNormalization": _Normalization(is_centred=False),
        "com.microsoft:SkipLayerNormalization": _Normalization(is_centred=True, skips=True),
        "com.microsoft:SkipSimplifiedLayerNormalization": _Normalization(
            is_centred=False, skips=True
        ),
    }
)
