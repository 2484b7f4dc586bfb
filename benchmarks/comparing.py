"""False alarms and detections of `tracer compare`: LeNet with itself, and with a slower one.

The slower one has a chain of an operator whose cost is measured first. With `--busy 1` a program
computes on every core meanwhile.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx

from benchmarks._measure import counts, machine
from tracer.api.compare import compare
from tracer.api.compare.settings import SideSettings

MODEL = Path("models/lenet/lenet.onnx")
AFTER = -2
"""Index of the node that the chain reads: the last Relu, whose tensor is the smallest."""
_SLOWER = 0.02
_CALIBRATED = 40
"""Operators in the chain that tells the cost of one; alone it is as small as the noise."""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, comparisons=100, slowdowns=40, busy=0)
    print(machine() + (", every core busy" if args.busy else ""))
    with tempfile.TemporaryDirectory() as folder:
        one = cost_of_one(Path(folder))
        print(f"an operator of the chain takes {one:.2%} of a run")
        with load() if args.busy else nothing():
            totals("the same model twice", [MODEL] * args.comparisons)
            count = max(1, round(_SLOWER / one))
            totals(f"{count * one:.1%} slower", [slowed(Path(folder), count)] * args.slowdowns)


def cost_of_one(folder: Path) -> float:
    """Returns the time that one operator of the chain adds, as a share of a run."""
    settings = SideSettings(threads=1, precision=0.005)
    sides = [str(MODEL), str(slowed(folder, _CALIBRATED))]
    comparison = compare(sides, by="model", settings=settings)
    return float(comparison.totals["ratio"].iloc[1] - 1) / _CALIBRATED


def slowed(folder: Path, count: int) -> Path:
    """Writes LeNet with a chain of `count` operators that nothing can fold away."""
    model, path = onnx.load(MODEL), folder / f"slower{count}.onnx"
    before = model.graph.node[AFTER]
    name = before.output[0]
    before.output[0] = "chain_0"
    nodes = [
        onnx.helper.make_node("Floor", [f"chain_{index}"], [f"chain_{index + 1}"], f"chain{index}")
        for index in range(count)
    ]
    nodes[-1].output[0] = name
    at = len(model.graph.node) + AFTER + 1
    for node in reversed(nodes):
        model.graph.node.insert(at, node)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def totals(label: str, others: Sequence[Path]) -> None:
    """Compares whole runs of LeNet with each of `others`; prints how many differ."""
    settings, began = SideSettings(threads=1), time.perf_counter()
    results = [compare([str(MODEL), str(o)], by="model", settings=settings) for o in others]
    if not results:
        return
    rows = [comparison.totals.iloc[1] for comparison in results]
    different = sum(bool(row["significant"]) for row in rows)
    ratios = sorted(float(row["ratio"]) for row in rows)
    widths = statistics.median(float(row["ratio_high"] - row["ratio_low"]) for row in rows)
    print(
        f"{label}: different in {different} of {len(rows)}; ratio {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f}), interval {widths:.4f} wide, "
        f"{(time.perf_counter() - began) / len(rows):.1f} s each"
    )


@contextmanager
def load() -> Iterator[None]:
    """Keeps every core busy."""
    programs = [multiprocessing.Process(target=compute, daemon=True) for _ in range(cores())]
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.kill()


@contextmanager
def nothing() -> Iterator[None]:
    """Leaves the cores as they are."""
    yield


def cores() -> int:
    """Returns the number of cores of this process."""
    return len(os.sched_getaffinity(0))


def compute() -> None:
    """Computes without end."""
    value = 0
    while True:
        value = (value * 1_103_515_245 + 12_345) % 2**31


if __name__ == "__main__":
    main()
