"""Time of `tracer count` on a graph of 10,000 nodes, compared with onnx's shape inference."""

import statistics
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks._measure import counts, in_turn, median_ratio, python

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
        _save(path, args.nodes)
        ours, inference = in_turn(
            python("-m", "tracer", "count", path), python("-c", INFER, path), args.repeats
        )
    seconds = statistics.median(usage.seconds for usage in ours)
    print(f"tracer count of {args.nodes:,} nodes: {seconds:.2f} s (target ≤ 2)")
    print(f"÷ check and shape inference alone: {median_ratio(ours, inference):.1f}")


def _save(path: str, count: int) -> None:
    """Writes a deep residual net that repeats Conv, BatchNormalization, Relu, Add."""
    weights = {"w": np.zeros((8, 8, 3, 3)), **{n: np.ones(8) for n in ("s", "b", "m", "v")}}
    nodes = []
    last = "x"
    for i in range(count // 4):
        nodes += [
            helper.make_node("Conv", [last, "w"], [f"c{i}"], f"c{i}", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{i}", *"sbmv"], [f"n{i}"], f"n{i}"),
            helper.make_node("Relu", [f"n{i}"], [f"r{i}"], f"r{i}"),
            helper.make_node("Add", [f"r{i}", last], [f"a{i}"], f"a{i}"),
        ]
        last = f"a{i}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "deep",
        [value("x", TensorProto.FLOAT, ["N", 8, 16, 16])],
        [value(last, TensorProto.FLOAT, ["N", 8, 16, 16])],
        [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
