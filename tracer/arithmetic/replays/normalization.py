"""Softmax, normalisations of rows and of channels, and the mean of several tensors.

Rows are added in lanes, and there are several ways to their deviation. The steps of channels are
each rounded. Source of the Normalizer: onnxruntime's `core/providers/cpu/ml/normalizer.cc`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tracer.arithmetic import c_library, packets
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule, are_equal
from tracer.arithmetic.replays import of_floats
from tracer.arithmetic.replays.elementwise import Elementwise, indices_of, runs_of
from tracer.graph.operators import CLASSICAL
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
_F = np.float32


@dataclass(frozen=True)
class _Softmax:
    is_log: bool

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        ((name, (_, shape)),) = kernel.inputs.items()
        feeds = {name: np.full(shape, _FAR_BELOW)}  # the largest number, as masks are
        feeds[name].flat[0] = 0
        output = kernel.run(feeds)[0]
        for lanes in (16, 8):
            text = f"exp by a polynomial, sums in {lanes} lanes, then a product with the reciprocal"
            rule = Rule(text, {"lanes": lanes})
            if are_equal(output, self.replay(kernel, rule.facts, feeds)[0]).all():
                yield rule

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


def _by_channel(values: Array, x: Array) -> Array:
    return values.reshape(-1, *[1] * (x.ndim - 2))


def _batch(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, a: Mapping[str, Any]
) -> Array:
    factor = scale * (_F(1) / np.sqrt(variance + _F(a.get("epsilon", 1e-5))))
    return np.asarray(x * _by_channel(factor, x) + _by_channel(bias - mean * factor, x))


def _instance(x: Array, scale: Array, bias: Array, a: Mapping[str, Any]) -> Array:
    """Means are summed in lanes from an aligned number on, squares in lanes from the first on."""
    rows = np.ascontiguousarray(x).reshape(x.shape[0] * x.shape[1], -1)
    kernels = loaded("rows", _PACKAGE)
    totals = np.empty((2, len(rows)), _F)
    kernels.in_lanes(rows, True, totals[0])
    mean = totals[0] / _F(rows.shape[1])
    kernels.in_lanes(np.square(rows - mean[:, None]), False, totals[1])
    deviation = np.sqrt(totals[1] / _F(rows.shape[1]) + _F(a.get("epsilon", 1e-5)))
    factor = (_F(1) / deviation).reshape(len(x), -1) * scale
    shift = bias - mean.reshape(len(x), -1) * factor
    out: Array = rows * factor.reshape(-1, 1) + shift.reshape(-1, 1)
    return out.reshape(x.shape)


class _LocalResponse:
    """LRN: the window of squares moves by an addition and a subtraction; then a power."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if float(kernel.attributes.get("beta", 0.75)).is_integer():
            raise NotKnown("integral powers are not known")
        ((name, (_, shape)),) = kernel.inputs.items()
        drawn = np.random.default_rng(0).uniform(0.5, 20, (4096, 1, 1, 1)).astype(_F)
        # one value in all places tells it of the channels whose results by both ways differ
        values = np.broadcast_to(drawn, (4096, shape[1], 1, 1))
        scale, exponent = self._scale(kernel, values)
        vector, single = packets.power(scale, exponent), c_library.power(scale, exponent)
        tells = (values * vector != values * single)[:, :, 0, 0]
        if not tells.any(axis=0).all():
            raise NotKnown("vectors and the C library have the same results")
        places = np.zeros(shape, bool)
        seen = np.zeros(shape[1], bool)
        while not seen.all():
            best = int(np.argmax((tells & ~seen).sum(axis=1)))
            out = kernel.run({name: np.full(shape, drawn[best].item(), _F)})[0]
            differs = tells[best][None, :, None, None]
            places |= differs & (out == (values * single)[best])
            seen |= tells[best]
        text = f"a power in vectors, {places.sum()} left over by the C library"
        yield Rule(text, {"rest": runs_of(places.ravel())})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        scale, exponent = self._scale(kernel, x)
        power = packets.power(scale, exponent)
        places = indices_of(facts["rest"])
        power.flat[places] = c_library.power(scale.flat[places], exponent)
        return [np.asarray(x * power)]

    def _scale(self, kernel: Kernel, x: Array) -> tuple[Array, Any]:
        """Returns what is raised to a power, and the exponent."""
        a = kernel.attributes
        size, channels = a["size"], x.shape[1]
        factor = _F(a.get("alpha", 1e-4)) / _F(size)
        squares = np.zeros((len(x), channels + size - 1, *x.shape[2:]), _F)
        first = (size - 1) // 2
        squares[:, first : first + channels] = x * x
        scale = np.full(x.shape, _F(a.get("bias", 1)))
        for offset in range(size):
            scale[:, 0] += factor * squares[:, offset]
        for channel in range(1, channels):
            head = scale[:, channel - 1] + factor * squares[:, channel + size - 1]
            scale[:, channel] = head + -factor * squares[:, channel - 1]
        return scale, -_F(a.get("beta", 0.75))


class _Normalizer:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("a row's numbers added one after the other")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        norm = kernel.attributes.get("norm", "MAX")
        if norm == "MAX":
            total = x.max(-1, keepdims=True)
            return [np.where(total != 0, x / total, x)]
        parts = np.abs(x) if norm == "L1" else x * x
        total = np.add.accumulate(parts, -1)[..., -1:]
        roots = np.sqrt(parts / total)
        scaled = x / total if norm == "L1" else np.where(x < 0, -roots, roots)
        return [np.where(total != 0, scaled, x)]


REPLAYS = of_floats(
    {
        "BatchNormalization": Elementwise(
            "a factor and a shift by channel, multiply, then add", _batch
        ),
        "InstanceNormalization": Elementwise(
            "sums in 8 lanes, then a factor and a shift", _instance
        ),
        "LRN": _LocalResponse(),
        f"{CLASSICAL}:Normalizer": _Normalizer(),
        "Mean": Elementwise(
            "one after the other, then a product with the reciprocal",
            lambda *x: np.asarray(reduce(np.add, x[:-1]) * (_F(1) / _F(len(x) - 1))),
        ),
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
