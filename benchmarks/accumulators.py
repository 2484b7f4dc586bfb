"""Speed of narrow accumulators ÷ the speed of numpy's float32 product.

    python -m benchmarks.accumulators [--threads 1 2] [--runs 15]

1 is as fast as BLAS, which only rounds. Prints ratios of medians in one process. Runs of the two
alternate, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks._measure import machine
from tracer.accumulators.engine import dots, tile_sums
from tracer.accumulators.engine.tile_sums import Matrices, SumLanes, checked, program
from tracer.accumulators.spec import Overflow
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.interpreter.numeric import parallel, tensors
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.support.measurements import elapsed_us
from tracer.support.types import Array

SHAPES = ((192, 576, 128), (64, 576, 4096))
WINDOW = 9
"""Terms of a channel, as in a convolution of 3 x 3."""
SMALL, WHOLE = ((-8, 8), (0, 16)), ((-128, 128), (0, 256))


def values(block: Block) -> Callable[[], Any]:
    """Limited sums alone; the factors are laid out before, as those of a node are."""
    factors, columns, out = _prepared(block)
    return lambda: factors.clip(columns, out, None)


def counts(block: Block) -> Callable[[], Any]:
    """Limited sums, the exact ones where they may differ, and counts of sums and of steps."""
    factors, columns, out = _prepared(block)
    return lambda: factors.count(columns, out, None, False)


def rare_counts(block: Block) -> Callable[[], Any]:
    """The same, the way that is faster where few sums overflow."""
    factors, columns, out = _prepared(block)
    return lambda: factors.count(columns, out, None, True)


def emulate(block: Block) -> Callable[[], Any]:
    """Limited sums and their events, from operands in int8."""
    return lambda: dots.emulated(block.matrices(), block.terms, block.accumulator)


def observe(block: Block) -> Callable[[], Any]:
    """Sums without a range and their extremes, from operands in int8."""
    return lambda: dots.observed(block.matrices(), block.terms, block.accumulator)


def _prepared(block: Block) -> tuple[tile_sums.Factors, Columns, Array]:
    matrices, plan = block.matrices(), program(block.accumulator.order, block.terms)
    assert plan is not None
    lanes = SumLanes(matrices, plan, block.accumulator)
    columns = tile_sums.of_matrix(matrices, plan.sequence)
    factors = tile_sums.Factors.of(lanes, plan, lanes.limited_bits)
    return factors, columns, np.empty(matrices.shape, np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """A matrix product, and how it is summed."""

    left: Array
    right: Array
    terms: Terms
    accumulator: Accumulator

    def matrices(self) -> Matrices:
        """The operands as kernels read them."""
        return checked(self.left, self.right, None, self.terms)


@dataclass(frozen=True, slots=True)
class Case:
    """One line: a function, bits, ranges of weights and inputs, targets, order and overflow."""

    name: str
    function: Callable[[Block], Callable[[], Any]]
    bits: int
    ranges: tuple[tuple[int, int], tuple[int, int]]
    targets: tuple[float, float] | None = None
    order: str = "sequential"
    overflow: Overflow = "saturate"


CASES = (
    Case("values, 18 bits, int8 x uint8: most overflow", values, 18, WHOLE, (0.8, 1.2)),
    Case("values, 10 bits, int4 x uint4: most overflow", values, 10, SMALL, (0.8, 1.2)),
    Case("counts, 18 bits, int8 x uint8: most overflow", counts, 18, WHOLE),
    Case("counts, 22 bits, int8 x uint8: few overflow", rare_counts, 22, WHOLE),
    Case("values and events of each sum, 18 bits", emulate, 18, WHOLE),
    Case("all widths, int8 x uint8", observe, 16, WHOLE),
    Case("channelwise, 18 bits: values and events", emulate, 18, WHOLE, order="channelwise"),
    Case("chunked(32), 18 bits: values and events", emulate, 18, WHOLE, order="chunked(32)"),
    Case("lanes(16), 18 bits: values and events", emulate, 18, WHOLE, order="lanes(16)"),
    Case("tree, 18 bits: values and events", emulate, 18, WHOLE, order="tree"),
    Case("maddubs, 18 bits: values and events", emulate, 18, WHOLE, order="maddubs"),
    Case("wrap, 18 bits: values and events", emulate, 18, WHOLE, overflow="wrap"),
)


def main() -> None:
    """Prints a table for each shape and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    kernels = {each["architecture"] for each in threadpool_info() if each["user_api"] == "blas"}
    print(f"{machine()} · BLAS: {', '.join(sorted(kernels))}")
    for threads in arguments.threads:
        for shape in SHAPES:
            print(f"\n{'x'.join(map(str, shape))}, {threads} thread(s)")
            for case in CASES:
                _report(case, shape, threads, arguments.runs)


def _report(case: Case, shape: tuple[int, int, int], threads: int, runs: int) -> None:
    rows, depth, columns = shape
    random = np.random.default_rng(1)
    left = random.integers(*case.ranges[0], (rows, depth)).astype(np.int8)
    right = random.integers(*case.ranges[1], (depth, columns)).astype(np.uint8)
    floats = left.astype(np.float32), right.astype(np.float32)

    terms = Terms(depth // WINDOW, (WINDOW,))
    accumulator = Accumulator(case.bits, case.overflow, named(case.order))
    ours = case.function(Block(left, right, terms, accumulator))

    def blas() -> None:
        np.matmul(*floats)

    mine, theirs = _medians(runs, ours, blas, threads)
    target = f">= {case.targets[SHAPES.index(shape)]}" if case.targets else ""
    print(f"  {case.name:<48}{theirs / mine:6.2f}  {target}", flush=True)


def _medians(
    runs: int, ours: Callable[[], Any], blas: Callable[[], None], threads: int
) -> tuple[float, float]:
    """Returns the median time of each, in µs; runs alternate, after two warm-up runs."""
    mine, theirs = [], []
    with tensors.pooled([]):
        for _ in range(runs + 2):
            with parallel.threads(threads):
                mine.append(elapsed_us(ours))
            with threadpool_limits(threads, "blas"):
                theirs.append(elapsed_us(blas))
    return statistics.median(mine[2:]), statistics.median(theirs[2:])


if __name__ == "__main__":
    main()
