"""Products of matrices: MatMul, Gemm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.arithmetic.sums import products, sum_rules
from tracer.support.types import Array


class _MatMul:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        shapes = kernel.shape(0), kernel.shape(1)
        left, right = (np.ones(shape or (), np.float32) for shape in shapes)
        stored = [place for place in (0, 1) if kernel.constant(place) is not None]
        if left.ndim < 2 or right.ndim < 2 or len(stored) == 2:
            raise NotKnown("products of vectors are not known")
        probed = kernel.with_constants({place: (left, right)[place] for place in stored})
        computed = right if stored == [0] else left  # where the terms go
        along = computed.ndim - (2 if computed is right else 1)

        def add(terms: Array) -> float:
            row = computed.reshape(-1, *computed.shape[-2:])[0]
            (row[:, 0] if computed is right else row[0])[:] = terms
            names = [name for name in kernel.node.input if name in kernel.inputs]
            feeds = dict(zip(names, (right,) if stored == [0] else (left, right), strict=False))
            return float(probed.run(feeds)[0].flat[0])

        yield from sum_rules(add, computed.shape[along])

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        left, right = kernel.values(inputs)
        assert left is not None and right is not None
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        a = np.broadcast_to(left, (*batch, *left.shape[-2:])).reshape(-1, *left.shape[-2:])
        b = np.broadcast_to(right, (*batch, *right.shape[-2:])).reshape(-1, *right.shape[-2:])
        out = np.stack([products(facts, x, y) for x, y in zip(a, b, strict=True)])
        return [out.reshape(*batch, *out.shape[-2:])]


REPLAYS = {"MatMul": _MatMul()}
