"""Time of `tracer count` on a graph of 10,000 nodes, compared with onnx's shape inference."""

import statistics
import tempfile
from pathlib import Path

import onnx

from benchmarks._measure import counts, in_turn, median_ratio, python
from benchmarks._networks import deep

INFER = """
import sys, onnx
onnx.checker.check_model(sys.argv[1])
onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)
"""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, nodes=10_000, repeats=5)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "deep.onnx")
        onnx.save(deep(args.nodes), path)
        ours, inference = in_turn(
            python("-m", "tracer", "count", path), python("-c", INFER, path), args.repeats
        )
    seconds = statistics.median(usage.seconds for usage in ours)
    print(f"tracer count of {args.nodes:,} nodes: {seconds:.2f} s (target ≤ 2)")
    print(f"÷ check and shape inference alone: {median_ratio(ours, inference):.1f}")


if __name__ == "__main__":
    main()
