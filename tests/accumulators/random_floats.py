"""Random nodes of floats in float accumulators, and their sums by the definition."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from tests.accumulators.definition import outermost
from tests.accumulators.float_definition import (
    Format,
    Rule,
    Walk,
    cast,
    times,
    to_float,
    units,
)  # fmt: skip
from tests.accumulators.patches import patches
from tests.accumulators.random_nodes import model_of, shape_of, slides
from tests.accumulators.random_rules import LOOPS
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric.windows import window


@dataclass(frozen=True)
class FloatNode:
    """A product of `left` (M, K) and `right` (K, P), floats, after or before `bias` (M)."""

    model: onnx.ModelProto
    x: np.ndarray
    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray
    shape: tuple[int, int, int, int]
    rule: Rule
    order: str
    operands: Format | None
    is_chunk: bool

    @property
    def form(self) -> str:
        """The operator."""
        return f"{self.model.graph.node[-1].op_type} floats"

    @property
    def spelled(self) -> str:
        """The accumulator as a user spells it."""
        rule, words = self.rule, [self.rule.rounding]
        words += ["saturate"] * rule.saturates + ["fused"] * rule.is_fused
        words += [] if rule.product is None else [f"product={rule.product}"]
        if self.is_chunk:
            words.append(self.order.replace("chunked(", "chunk=").rstrip(")"))
        else:
            bias = "first" if rule.is_bias_first else "last"
            words += [f"order={self.order}", f"bias={bias}"]
        return f"{rule.format}({','.join(words)})"

    def check(self) -> bool:
        """Compares the output; returns whether a sum is no number, or the largest one."""
        tree = outermost(self.order, self.shape)
        expected = np.empty((len(self.left), self.right.shape[1]))
        start = [units(number) for number in self.bias.tolist()]
        of_left, of_right = (
            [[cast(units(number), self.operands) for number in row] for row in each.tolist()]
            for each in (self.left, self.right.T)
        )
        for row, column in np.ndindex(*expected.shape):
            pairs = zip(of_left[row], of_right[column], strict=True)
            walk = Walk([times(a, b) for a, b in pairs], self.rule)
            expected[row, column] = to_float(walk.total(tree, start[row]))
        model = loading.from_proto(self.model)
        emulation = AccumulatorEmulation(
            model, parse_policy(self.spelled, operands=str(self.operands or "") or None)
        )
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        (out,) = interpreter.run(None, {"x": self.x})
        mine = np.moveaxis(out, 1, 0).reshape(out.shape[1], -1)
        np.testing.assert_array_equal(mine, expected.astype(np.float32))
        return bool(
            (~np.isfinite(expected)).any()
            or (np.abs(expected) == to_float(self.rule.format.largest)).any()
        )


def drawn(random: np.random.Generator) -> FloatNode:
    """A random Gemm or Conv, its formats and its order."""
    rows, wide = int(random.integers(1, 4)), random.random() < 0.2
    rank = int(random.integers(0, 4))
    bias = _floats(random, (rows,), wide)
    if rank == 0:
        depth = int(random.integers(1, 40))
        x, left = (_floats(random, (n, depth), wide) for n in (int(random.integers(1, 9)), rows))
        right, shape, w = x.T, (depth, 1, 1, 1), left
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    else:
        size, kernel, attributes = slides(random, rank)
        size = [min(n, 5 - rank // 2 + (k - 1) * d) for n, k, d in
                zip(size, kernel, attributes["dilations"], strict=True)]  # fmt: skip
        channels = int(random.integers(1, 5))
        x = _floats(random, (1, channels, *size), wide)
        w = _floats(random, (rows, channels, *kernel), wide)
        slid = window(size, kernel, *attributes.values(), "NOTSET")
        left, right = w.reshape(rows, -1), patches(x, slid, 0)
        shape = shape_of(channels, kernel)
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    form = _format(random)
    rule = Rule(
        form, str(random.choice(["rne", "rne", "rz", "floor"])), random.random() < 0.3,
        is_bias_first=random.random() < 0.7,
    )  # fmt: skip
    if random.random() < 0.4:
        is_fused = random.random() < 0.5
        rule = replace(rule, is_fused=is_fused, product=None if is_fused else _format(random))
    terms = Terms(shape[0], shape[1:])
    order, operands = _order(random, terms), _format(random) if random.random() < 0.4 else None
    is_chunk = order.startswith("chunked") and rule.is_bias_first
    model = model_of([node], x, w=w, b=bias)
    return FloatNode(model, x, left, right, bias, shape, rule, order, operands, is_chunk)


def _format(random: np.random.Generator) -> Format:
    kind = str(random.choice(["", "", "fn", "f"]))
    return Format(int(random.integers(3, 9 if not kind else 8)), int(random.integers(1, 23)), kind)


def _floats(random: np.random.Generator, shape: tuple[int, ...], wide: bool) -> np.ndarray:
    reach = 30 if wide else 5
    values = random.normal(0, 1, shape) * np.exp2(random.integers(-reach, reach, shape))
    return (values * (random.random(shape) < 0.9)).astype(np.float32)


def _order(random: np.random.Generator, terms: Terms) -> str:
    while True:
        spelled = _spelled_order(random)
        with suppress(UsageError):
            named(spelled).stages(terms)
            return spelled


def _spelled_order(random: np.random.Generator) -> str:
    def level(size: object) -> str:
        stride = f"x{random.integers(2, 5)}" if random.random() < 0.2 else ""
        return f"{size}{stride}{register()}"

    def register() -> str:
        if random.random() < 0.5:
            return ""
        return f":{_format(random)}{':saturate' if random.random() < 0.3 else ''}"

    size = int(random.choice([1, 2, 3, 4, 8, 16]))
    levels = [level(random.choice([2, 3, 8, "all"])) for _ in range(random.integers(1, 4))]
    tiles = f"tiles({','.join(levels)})"
    plain = ["sequential", "channelwise", f"chunked({size})", f"lanes({size})", "tree", tiles]
    choice = int(random.integers(10))
    if choice < len(plain):
        return plain[choice]
    inner = plain[random.integers(2, len(plain))]
    if choice == 6:
        return str(
            random.choice(["positionwise", f"positionwise({size})", f"positionwise({inner})"])
        )
    loops = [
        f"{name}:all{register() if random.random() < 0.4 else ''}"
        f"{random.choice(['', '', ':parallel'])}"
        for name in random.permutation(LOOPS)
    ]
    at = int(random.integers(len(loops) + 1))
    loops.insert(at, f"{random.choice(LOOPS)}:{random.integers(1, 4)}")
    return f"nest({','.join([*loops, *([inner] if random.random() < 0.3 else [])])})"
