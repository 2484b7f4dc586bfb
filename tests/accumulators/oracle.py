"""Random nodes in narrow accumulators against the definition in numpy.

    python -m tests.accumulators.oracle [--nodes 20000] [--seed 1]

A node is a Gemm, a Conv in one to three dimensions or a ConvTranspose between DequantizeLinear of
steps 1, so that its output are its sums; convolutions have groups, or are depthwise. Its values are
compared alone, with counts of overflows, and with statistics of all widths.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.accumulators.patches import patches
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine import oracle
from tracer.accumulators.engine.sum_runner import Counts, LimitedSums, OverflowCounter, SumRunner
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.partial_sums import Clipped, UnlimitedSums
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.windows import Window, window

ORDERS = ("sequential", "sequential", "channelwise", "chunked(5)", "chunked(16)", "lanes(4)",
          "tree", "maddubs(4)", "sorted", "tiles(6:16)", "tiles(9:14:wrap)",
          "tiles(2:15,4:15)", "positionwise", "positionwise(tiles(2:16,2))",
          "positionwise(2,chunked(18))", "tiles(6:16:>>3)", "tiles(8:14:wrap:>>5:half-even)",
          "tiles(2:17:>>1:half-up,4:15:>>2:half-away)", "tiles(spill=7:16)",
          "tiles(3:18:>>2:truncate,spill=4:13:wrap:>>3:half-even)",
          "tiles(5:u15:wrap:>>3:stochastic(7),2:18:>>1:stochastic)", "tiles(3:u16,4:u15:zero)",
          "tiles(3x2:16,spill=4:u13:>>2:stochastic(9))",
          "nest(ky,ic,kx,ic:2:17:>>2:stochastic(1),kz)", "positionwise(tiles(2:16:>>4,spill=3:12))",
          "nest(kx,ky:2:15,ic,ky,kz)",
          "nest(ic,ky,kx,ic:2:18:>>2,kz)", "nest", "nest", "nest", "nest", "nest")  # fmt: skip
"""Orders; `nest` is a random one."""
LOOPS = ("ic", "kz", "ky", "kx")
OVERFLOWS = ("saturate", "saturate", "symmetric", "wrap", "zero", "error")
ROUNDINGS = ("half-even", "half-away", "half-up", "floor", "truncate", "stochastic(7)")
ALIKE = 200
"""Nodes that follow each other with the same types, order, overflow and size of the result: each
such combination is compiled."""
SHAPES = ((1, 7), (5, 1), (20, 9), (37, 33))
"""Results of a Gemm; few, since each size of a tile is compiled."""
TYPES = ("int8", "uint8", "int8", "uint8", "int16", "uint16")


@dataclass(frozen=True)
class Part:
    """The dot products of a group: `left` (M, K) times `right` (K, P), both without zero points."""

    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray
    zeros: tuple[int, int]


@dataclass(frozen=True)
class Node:
    """A model of one node, its input, its sums by groups, and its accumulator."""

    model: onnx.ModelProto
    x: np.ndarray
    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    terms: Terms
    accumulator: Accumulator

    def check(self) -> bool:
        """Compares all ways to compute the node; returns whether a sum left the range."""
        results = [each for part, first in self._placed() for each in self._expected(part, first)]
        values = np.concatenate([value for value, _ in results])
        counts = sum((count for _, count in results), Counts())
        model = loading.from_proto(self.model)
        emulation = AccumulatorEmulation(model, Policy.of(self.accumulator))
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        for kind in (LimitedSums, OverflowCounter, SumRunner):
            runners = emulation.new_runners({}, kind)
            (runner,) = runners.values()
            with emulation.using(runners):
                try:
                    (out,) = interpreter.run(None, {"x": self.x})
                except ModelError:
                    assert kind is SumRunner, kind
                    assert self.accumulator.overflow == "error", self.accumulator
                    assert counts.saturation_events
                    continue
            if kind is SumRunner:
                assert self.accumulator.overflow != "error" or not counts.saturation_events
            mine = self._by_row(out)
            np.testing.assert_array_equal(mine, values.astype(np.float32), kind.__name__)
            if kind is not LimitedSums:
                assert _counts(runner) == counts, (kind, _counts(runner), counts)
        return counts.overflow_outputs > 0

    def _by_row(self, out: np.ndarray) -> np.ndarray:
        """An output (N, M, ...) as (M, ...)."""
        return np.moveaxis(out, 1, 0).reshape(out.shape[1], -1)

    def _placed(self) -> Iterator[tuple[Part, int]]:
        """Each part, and the number of its first channel."""
        first = 0
        for part in self.parts:
            yield part, first
            first += len(part.left)

    def _expected(self, part: Part, first: int) -> Iterator[tuple[np.ndarray, Counts]]:
        """The sums and counts of a part; of each channel, if it has a width of its own."""
        own = self.accumulator
        if not own.widths:
            yield self._summed(part, own)
            return
        for row, bits in enumerate(own.widths[first : first + len(part.left)]):
            alone = replace(part, left=part.left[[row]], bias=part.bias[[row]])
            yield self._summed(alone, replace(own, bits=bits, widths=()))

    def _summed(self, part: Part, accumulator: Accumulator) -> tuple[np.ndarray, Counts]:
        left, right = part.left, part.right
        exact = left @ right
        if accumulator.is_zero_point_in_sum:
            left, right = left + part.zeros[0], right + part.zeros[1]
        case = (left, right, part.bias, self.terms, accumulator)
        observed, clipped = oracle.observe(*case), oracle.emulate(*case)
        stored = left @ right
        changed = clipped.values != stored + part.bias[:, None]
        return clipped.values + exact - stored, _counted(observed, clipped, changed, accumulator)


def _counted(
    observed: UnlimitedSums, clipped: Clipped, changed: np.ndarray, accumulator: Accumulator
) -> Counts:
    low, high = accumulator.range
    outside = int(np.count_nonzero(clipped.events))
    lasting = int(np.count_nonzero((observed.final < low) | (observed.final > high)))
    events = int(clipped.events.sum())
    return Counts(outside, outside - lasting, lasting, events, int(np.count_nonzero(changed)))


def _counts(runner: SumRunner) -> Counts:
    """The counts of a runner, or those of its statistics."""
    if isinstance(runner, OverflowCounter):
        return runner.counts
    tally = runner.tally
    assert tally is not None
    seen = tally.overflow()
    numbers = (seen.overflow_outputs, seen.transient_outputs, seen.persistent_outputs,
               tally.saturation_events, tally.outputs_changed)  # fmt: skip
    return Counts(*(int(number.sum()) for number in numbers))


@dataclass(frozen=True)
class Draw:
    """Random choices of a node: those of its `kind`, and its own."""

    kind: np.random.Generator
    own: np.random.Generator


def drawn(seed: int, number: int) -> Node:
    """A random node."""
    kind, own = ((seed, number // ALIKE), (seed, number // ALIKE, number))
    draw = Draw(np.random.default_rng(kind), np.random.default_rng(own))
    make = draw.kind.choice(np.array([_conv, _conv, _gemm, _gemm, _conv_transpose]))
    node: Node = make(draw)
    return node


def _gemm(draw: Draw) -> Node:
    random = draw.own
    deep = random.random() < 0.05
    rows, columns = SHAPES[draw.kind.integers(len(SHAPES))]
    depth = int(random.integers(400, 900) if deep else random.integers(1, 60))
    x, xz = _quantized(draw, (rows, depth))
    w, wz = _quantized(draw, (columns, depth))
    terms = Terms(depth)
    bias = _bias(random, columns)
    part = Part(w.astype(np.int64) - wz, x.T.astype(np.int64) - xz, bias, (wz, xz))
    accumulator = _accumulator(draw, part, terms, columns)
    model = _model("Gemm", x, xz, w, wz, bias, transB=1)
    return Node(model, x.astype(np.float32) - xz, (part,), (rows, columns), terms, accumulator)


def _conv(draw: Draw) -> Node:
    random = draw.own
    rank, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 2, 3]))
    kernel, strides, dilations = (
        [int(random.integers(1, most + 1)) for _ in range(rank)] for most in (3, 2, 2)
    )
    pads = [int(random.integers(0, k)) for k in kernel * 2]
    size = [int(random.integers(6, 12 if rank < 3 else 8)) for _ in range(rank)]
    channels, maps = int(random.integers(1, 6)), int(draw.kind.choice([1, 3]))
    if groups > 1 and random.random() < 0.5:  # depthwise
        channels = 1
    x, xz = _quantized(draw, (int(random.integers(1, 4)), groups * channels, *size))
    w, wz = _quantized(draw, (groups * maps, channels, *kernel))
    slid = window(size, kernel, strides, pads, dilations, "NOTSET")
    centred = x.astype(np.int64) - xz
    return _convolution(
        draw, ("Conv", x, xz, w, wz), centred, w.astype(np.int64) - wz, slid,
        group=groups, strides=strides, dilations=dilations, pads=pads,
    )  # fmt: skip


def _conv_transpose(draw: Draw) -> Node:
    """With zeros between the elements of the input, the convolution with the turned kernel."""
    random = draw.own
    rank, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 2]))
    kernel, strides = ([int(random.integers(1, 4)) for _ in range(rank)] for _ in range(2))
    size = [int(random.integers(2, 5 if rank < 3 else 4)) for _ in range(rank)]
    channels, maps = int(random.integers(1, 5)), int(draw.kind.choice([1, 3]))
    x, xz = _quantized(draw, (int(random.integers(1, 3)), groups * channels, *size))
    w, wz = _quantized(draw, (groups * channels, maps, *kernel))
    around = [(n - 1) * s + 1 for n, s in zip(size, strides, strict=True)]
    spread = np.zeros((*x.shape[:2], *around), np.int64)
    spread[:, :, *(slice(None, None, s) for s in strides)] = x.astype(np.int64) - xz
    by_group = (w.astype(np.int64) - wz).reshape(groups, channels, maps, *kernel).swapaxes(1, 2)
    turned = np.flip(by_group, tuple(range(3, 3 + rank))).reshape(groups * maps, channels, *kernel)
    pads = [k - 1 for k in kernel] * 2
    slid = window(around, kernel, [1] * rank, pads, [1] * rank, "NOTSET")
    return _convolution(
        draw, ("ConvTranspose", x, xz, w, wz), spread, turned, slid, group=groups, strides=strides
    )


def _convolution(
    draw: Draw, stored: tuple[str, np.ndarray, int, np.ndarray, int], x: np.ndarray, w: np.ndarray,
    slid: Window, group: int, **attributes: object,
) -> Node:  # fmt: skip
    """The node of `stored` operands whose sums are those of windows over `x` times `w`."""
    op, x_stored, xz, w_stored, wz = stored
    maps, channels = len(w) // group, w.shape[1]
    terms, bias = Terms(channels, slid.kernel), _bias(draw.own, len(w))
    parts = []
    for g in range(group):
        rows = slice(g * maps, (g + 1) * maps)
        inputs = x[:, g * channels : (g + 1) * channels]
        left = w[rows].reshape(maps, -1)
        parts.append(Part(left, patches(inputs, slid, 0), bias[rows], (wz, xz)))
    accumulator = _accumulator(draw, parts[0], terms, len(w))
    model = _model(op, x_stored, xz, w_stored, wz, bias, group=group, **attributes)
    shape = (len(x), len(w), *slid.out)
    feed = x_stored.astype(np.float32) - xz
    return Node(model, feed, tuple(parts), shape, terms, accumulator)


def _order(kind: np.random.Generator) -> str:
    """An order, or a nest with axes twice, sizes, registers, parallel loops and an inner order."""
    order = str(kind.choice(ORDERS))
    if order != "nest":
        return order
    names = kind.permutation([*LOOPS, *kind.choice(LOOPS, kind.integers(0, 4))]).tolist()
    unsized = {name: kind.choice([k for k, n in enumerate(names) if n == name]) for name in LOOPS}
    loops = []
    for k, name in enumerate(names):
        size = "all" if unsized[name] == k else str(kind.integers(1, 5))
        register = kind.choice(["", "", "", "", ":14", ":15:wrap"])
        loops.append(f"{name}:{size}{register}{kind.choice(['', '', '', ':parallel'])}")
    inner = kind.choice(["", "", "", ",tree", ",lanes(3)", ",tiles(2:15,2)"])
    return f"nest({','.join(loops)}{inner})"


def _quantized(draw: Draw, shape: Sequence[int]) -> tuple[np.ndarray, int]:
    """Integers of a random type, and their zero point; some are small, some reach all numbers."""
    random, info = draw.own, np.iinfo(str(draw.kind.choice(TYPES)))
    zero = int(random.choice([0, random.integers(info.min, info.max, endpoint=True)]))
    size = int(random.choice([3, 100, 1 << 16]))
    low, high = max(zero - size, info.min), min(zero + size, info.max)
    return random.integers(low, high, shape, info.dtype, endpoint=True), zero


def _bias(random: np.random.Generator, rows: int) -> np.ndarray:
    """A bias; half of them are 0."""
    size = int(random.choice([0, 0, 1 << int(random.integers(1, 30))]))
    return random.integers(-size, size, rows, endpoint=True)


def _accumulator(draw: Draw, part: Part, terms: Terms, channels: int) -> Accumulator:
    """A random accumulator; most are about as wide as the sums, where most is decided.

    Some have a width of its own for each channel.
    """
    kind, random = draw.kind, draw.own
    sizes = np.abs(part.left).max() * np.abs(part.right).max() + 1
    near = np.log2(sizes) + np.log2(terms.count) / 2 + random.uniform(-4, 4)
    width = near if random.random() < 0.8 else random.integers(2, 54)
    products = np.log2(sizes) + random.uniform(-4, 3) if kind.random() < 0.2 else None
    shift = int(random.integers(1, 9)) if kind.random() < 0.1 else 0
    rounding = str(kind.choice(ROUNDINGS)) if shift else "half-even"
    overflow = str(kind.choice(OVERFLOWS))
    conventions = ["twos-complement", "magnitude", "unsigned"][: 2 + (overflow != "symmetric")]
    drawn = Accumulator(
        int(np.clip(width, 2, 53)),
        overflow,
        named(_order(kind)),
        None if products is None else int(np.clip(products, 2, 53)),
        str(kind.choice(["first", "first", "last"])),
        str(random.choice(conventions)),
        str(random.choice(["before", "before", "after"])),
        shift,
        rounding,
    )
    if random.random() > 0.1:
        return drawn
    widths = np.clip(drawn.bits + random.integers(-3, 4, channels), 2, 53).tolist()
    return replace(drawn, bits=max(widths), widths=tuple(widths))


def _model(
    op: str, x: np.ndarray, xz: int, w: np.ndarray, wz: int, bias: np.ndarray, **attributes: object
) -> onnx.ModelProto:
    """The operator between tensors whose steps are 1."""
    one = np.float32(1)
    stored = {"one": one, "xz": x.dtype.type(xz), "w": w, "wz": w.dtype.type(wz),
              "b": bias.astype(np.int32)}  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "one", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "one", "wz"], ["wd"]),
        helper.make_node("DequantizeLinear", ["b", "one"], ["bd"]),
        helper.make_node(op, ["xd", "wd", "bd"], ["y"], **attributes),
    ]
    kind, unknown = onnx.TensorProto.FLOAT, [None] * x.ndim
    graph = helper.make_graph(
        nodes, "node",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, unknown)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def main() -> None:
    """Prints what was covered; a mismatch ends the run with the seed of its node."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    covered: Counter[str] = Counter()
    with parallel.threads(2):
        for number in range(arguments.nodes):
            node = drawn(arguments.seed, number)
            try:
                covered["overflowing"] += node.check()
            except AssertionError:
                print(f"node {number} of seed {arguments.seed}: {node.accumulator}")
                raise
            covered.update((node.accumulator.overflow, str(node.accumulator.order)))
            if (number + 1) % 1000 == 0:
                print(f"{number + 1:,} nodes agree: {dict(sorted(covered.items()))}", flush=True)
    print(
        f"{arguments.nodes:,} nodes agree with the definition; {covered['overflowing']:,} overflow"
    )


if __name__ == "__main__":
    main()
