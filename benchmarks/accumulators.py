"""Speed of narrow accumulators ÷ the speed of numpy's float32 product.

    python -m benchmarks.accumulators [--threads 1 2] [--runs 15]

1 is as fast as BLAS, which only rounds. Prints ratios of medians in one process. Runs of the two
alternate, so that a busy machine slows both alike.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tracer.accumulators.engine import blocks
from tracer.accumulators.engine.matrices import checked
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.timing import elapsed_us

SHAPES = ((192, 576, 128), (64, 576, 4096))
WINDOW = 9
"""Terms of a channel, as in a convolution of 3 x 3."""
FUNCTIONS: dict[str, Any] = {"observe": blocks.observed, "emulate": blocks.emulated}
SMALL, WHOLE = ((-8, 8), (0, 16)), ((-128, 128), (0, 256))


@dataclass(frozen=True, slots=True)
class Case:
    """One line: a function, bits, the ranges of weights and inputs, and the order."""

    name: str
    function: str
    bits: int
    ranges: tuple[tuple[int, int], tuple[int, int]]
    target: float | None = None
    order: str = "sequential"


CASES = (
    Case("int16 lanes, 16 bits, int4 x uint4", "emulate", 16, SMALL, 1.0),
    Case("int16 lanes, 16 bits, int8 x uint8: most overflow", "emulate", 16, WHOLE, 1.0),
    Case("int16 lanes, 10 bits, int4 x uint4: most overflow", "emulate", 10, SMALL, 1.0),
    Case("int32 lanes, 24 bits, int8 x uint8", "emulate", 24, WHOLE, 0.6),
    Case("int32 lanes, 18 bits, int8 x uint8: most overflow", "emulate", 18, WHOLE, 0.6),
    Case("all widths, int4 x uint4 (int16 lanes)", "observe", 16, SMALL, 0.5),
    Case("all widths, int8 x uint8 (int32 lanes)", "observe", 16, WHOLE, 0.5),
    Case("clip, 32 bits, int8 x uint8: nothing can overflow", "emulate", 32, WHOLE),
    Case("clip, 24 bits, int8 x uint8: nothing does", "emulate", 24, WHOLE),
    Case("clip, 20 bits, int8 x uint8: some overflow", "emulate", 20, WHOLE),
    Case("channelwise, 18 bits, int8 x uint8", "emulate", 18, WHOLE, order="channelwise"),
    Case("channelwise, all widths, int8 x uint8", "observe", 16, WHOLE, order="channelwise"),
)


def main() -> None:
    """Prints a table for each shape and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
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
    result: Any = None

    def ours() -> None:
        nonlocal result
        accumulator = Accumulator(case.bits, order=named(case.order))
        terms = Terms(depth // WINDOW, WINDOW)
        result = FUNCTIONS[case.function](checked(left, right, None, terms), terms, accumulator)

    def blas() -> None:
        np.matmul(*floats)

    mine, theirs = _medians(runs, ours, blas, threads)
    events = f"{(result.events > 0).mean():6.1%}" if case.function != "observe" else ""
    target = f">= {case.target}" if case.target else ""
    print(f"  {case.name:<52}{theirs / mine:6.2f}  {target:<8}{events}", flush=True)


def _medians(
    runs: int, ours: Callable[[], None], blas: Callable[[], None], threads: int
) -> tuple[float, float]:
    """Returns the median time of each, in µs; runs alternate, after two warm-up runs."""
    mine, theirs = [], []
    with buffer_pool.pooled([]):
        for _ in range(runs + 2):
            with parallel.threads(threads):
                mine.append(elapsed_us(ours))
            with threadpool_limits(threads, "blas"):
                theirs.append(elapsed_us(blas))
    return statistics.median(mine[2:]), statistics.median(theirs[2:])


if __name__ == "__main__":
    main()
