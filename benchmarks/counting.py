"""Time of `tracer count` on graphs of 10,000 and 100,000 nodes, beside onnx's shape inference."""

import itertools
import statistics
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks._measure import counts, in_turn, measure, median_ratio, python

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
        _save(path, args.nodes)
        chain = str(Path(folder) / "chain.onnx")
        _save_chain(chain, args.many)
        large = [measure(python("-m", "tracer", "count", chain)) for _ in range(args.repeats)]
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


def _save_chain(path: str, count: int) -> None:
    """Writes a chain of Relu."""
    tensors = ["x", *(f"r{i}" for i in range(count))]
    nodes = [
        helper.make_node("Relu", [read], [written], written)
        for read, written in itertools.pairwise(tensors)
    ]
    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, [1, 4]) for t in ("x", tensors[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
