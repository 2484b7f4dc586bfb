"""Transposed convolutions: products of matrices, of which those that meet in a pixel are added."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.orders import orders_of_products
from tracer.arithmetic.regions import Sample, find_regions, replay_regions
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.arithmetic.sums import Operands
from tracer.interpreter.ops.conv import geometry
from tracer.support.types import Array

_SAMPLES = 3
_SHAPING = "strides", "pads", "dilations", "auto_pad", "output_padding", "output_shape"


class _ConvTranspose:
    """The order of products is found where no windows overlap: there a pixel is one product."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if kernel.shape(1) is None or any(t != np.float32 for t, _ in kernel.inputs.values()):
            raise NotKnown("transposed convolutions of other types than float32 are not known")
        apart = _without_overlap(kernel)
        random = np.random.default_rng(1)
        samples = []
        for _ in range(_SAMPLES):
            inputs = apart.draw(random)
            x, w = apart.values(inputs)[:2]
            assert x is not None and w is not None
            operands = _operands(x[0], w, kernel.attributes.get("group", 1))
            samples.append(Sample(operands, _columns(apart.run(inputs)[0][0], w)))
        terms = samples[0].operands.a.shape[2]
        rule = find_regions(samples, lambda row, column: orders_of_products(terms, False, False))
        yield Rule(f"products {rule.text}; position by position of the window", dict(rule.facts))

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        x, w, bias = (*kernel.values(inputs), None)[:3]
        assert x is not None and w is not None
        values, group, rank = kernel.attributes, kernel.attributes.get("group", 1), x.ndim - 2
        strides, dilations = (values.get(n, [1] * rank) for n in ("strides", "dilations"))
        full, before, size = geometry(
            x.shape[2:], w.shape[2:], strides, dilations, values.get("pads"),
            values.get("output_padding"), values.get("output_shape"),
            values.get("auto_pad", "NOTSET"),
        )  # fmt: skip
        maps = w.shape[1] * group
        spans = [max(f, b + n) for f, b, n in zip(full, before, size, strict=True)]
        out = np.zeros((len(x), maps, *spans), np.float32)
        for image, target in zip(x, out, strict=True):
            columns = replay_regions(facts, _operands(image, w, group))
            columns = columns.reshape(maps, *w.shape[2:], *x.shape[2:])
            for position in np.ndindex(*w.shape[2:]):
                pixels = (
                    slice(p * d, p * d + (n - 1) * s + 1, s)
                    for p, d, n, s in zip(position, dilations, x.shape[2:], strides, strict=True)
                )
                target[(slice(None), *pixels)] += columns[(slice(None), *position)]
        out = out[:, :, *(slice(b, b + n) for b, n in zip(before, size, strict=True))]
        shown = out if bias is None else out + bias.reshape(-1, *[1] * rank)
        return [np.ascontiguousarray(shown)]


def _operands(image: Array, w: Array, group: int) -> Operands:
    """Returns the products of weights (C, M / group, *kernel) and an image (C, *size)."""
    a = w.reshape(group, len(w) // group, -1).swapaxes(1, 2)
    return Operands(a, image.reshape(group, len(w) // group, -1))


def _without_overlap(kernel: Kernel) -> Kernel:
    """Returns the kernel with random weights, no bias, and windows that lie side by side."""
    weights = kernel.constant(1)
    if weights is not None:
        drawn = np.random.default_rng(0).standard_normal(weights.shape).astype(np.float32)
        kernel = kernel.with_constants({1: drawn})
    kernel = kernel.without_attributes(*_SHAPING)
    node = onnx.NodeProto()
    node.CopyFrom(kernel.node)
    unused = set(node.input[2:]) - set(node.input[:2])
    del node.input[2:]
    node.attribute.append(helper.make_attribute("strides", (kernel.shape(1) or ())[2:]))
    return replace(
        kernel,
        node=node,
        inputs={name: kept for name, kept in kernel.inputs.items() if name not in unused},
        constants={name: kept for name, kept in kernel.constants.items() if name not in unused},
    )


def _columns(image: Array, w: Array) -> Array:
    """Returns products (M * positions, pixels) of an image (M, *size) of windows side by side."""
    kernel, maps = w.shape[2:], len(image)
    cut = [n for size, k in zip(image.shape[1:], kernel, strict=True) for n in (size // k, k)]
    rank = len(kernel)
    inner, outer = range(2, 2 * rank + 1, 2), range(1, 2 * rank + 1, 2)
    return image.reshape(maps, *cut).transpose(0, *inner, *outer).reshape(
        maps * math.prod(kernel), -1
    )  # fmt: skip


REPLAYS = {"ConvTranspose": _ConvTranspose()}
