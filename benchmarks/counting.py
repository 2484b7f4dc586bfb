"""Time of `tracer count` on graphs of 10,000 and 100,000 nodes, beside onnx's shape inference."""

import statistics
import tempfile
from pathlib import Path

import onnx

from benchmarks._measure import counts, in_turn, measure, median_ratio, python
from benchmarks._networks import chain, deep

INFER = """
import sys, onnx
onnx.checker.check_model(sys.argv[1])
onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)
"""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, nodes=10_000, many=100_000, repeats=5)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "deep.onnx")
        onnx.save(deep(args.nodes), path)
        long = str(Path(folder) / "chain.onnx")
        onnx.save(chain(args.many), long)
        large = [measure(python("-m", "tracer", "count", long)) for _ in range(args.repeats)]
        ours, inference = in_turn(
            python("-m", "tracer", "count", path), python("-c", INFER, path), args.repeats
        )
    seconds = statistics.median(usage.seconds for usage in ours)
    print(f"tracer count of {args.nodes:,} nodes: {seconds:.2f} s (target ≤ 2)")
    print(f"÷ check and shape inference alone: {median_ratio(ours, inference):.1f}")
    seconds = statistics.median(usage.seconds for usage in large)
    peak = max(usage.peak_mib for usage in large)
    print(
        f"a chain of {args.many:,}: {seconds:.2f} s (target ≤ 5), {peak:.0f} MiB (target ≤ 1,024)"
    )


if __name__ == "__main__":
    main()
