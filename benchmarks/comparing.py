"""False alarms and detections of `tracer compare`: LeNet with itself, and with one more node."""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from analyzers.compare import Comparison
from benchmarks._measure import counts
from tracer.api.compare import compare
from tracer.api.compare.settings import SideSettings

MODEL = Path("models/lenet/lenet.onnx")
AFTER = 1
"""Index of the node that the extra node reads: the first Relu, whose tensor is the largest."""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, comparisons=100, slowdowns=40, rounds=20, runs=60)
    same = comparisons(MODEL, args.comparisons, args.rounds, args.runs)
    report("the same model twice", same)
    with tempfile.TemporaryDirectory() as folder:
        slower = Path(folder) / "slower.onnx"
        onnx.save(with_extra_node(onnx.load(MODEL)), slower)
        report("one more node", comparisons(slower, args.slowdowns, args.rounds, args.runs))


def comparisons(other: Path, count: int, rounds: int, runs: int) -> list[Comparison]:
    """Compares LeNet with `other` so many times."""
    sides, settings = [str(MODEL), str(other)], SideSettings(threads=1)
    return [compare(sides, settings=settings, rounds=rounds, runs=runs) for _ in range(count)]


def with_extra_node(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with an Erf of a feature map inserted, which nothing can fold away."""
    before = model.graph.node[AFTER]
    name = before.output[0]
    before.output[0] = f"{name}_before"
    extra = onnx.helper.make_node("Erf", [f"{name}_before"], [name], name="extra")
    model.graph.node.insert(AFTER + 1, extra)
    onnx.checker.check_model(model)
    return model


def report(label: str, results: Sequence[Comparison]) -> None:
    """Prints how many totals and tables of layers had a significant difference."""
    if not results:
        return
    rows = [comparison.totals.iloc[1] for comparison in results]
    slower = sum(bool(row["significant"]) for row in rows)
    layers = sum(bool(comparison.layers["significant_b"].any()) for comparison in results)
    failed = sum(bool(row["ratio_low"] > 1.05) for row in rows)
    ratios = sorted(float(row["ratio"]) for row in rows)
    widths = statistics.median(float(row["ratio_high"] - row["ratio_low"]) for row in rows)
    print(
        f"{label}: total different in {slower} of {len(rows)}, any layer in {layers}, "
        f"--fail-above 5% fails {failed}; ratio {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f}), interval {widths:.3f} wide"
    )


if __name__ == "__main__":
    main()
