"""Which tensors of the model equal each tensor of a graph, told by numpy for all pairs."""

import numpy as np
import onnx
import pytest
from onnx import reference

from tests.graphs import parse
from tracer.containment.activity import silent
from tracer.errors import ModelError
from tracer.executors.onnxruntime import fusion_check
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.limits import Limits

LENGTH = 30
ONE_THREAD = OrtSettings(threads=1)


def transposes():
    """Squares are transposed in a row, and halfway a constant is added: two kinds and two more."""
    nodes = [f"t{i + 1} = Transpose (t{i})" for i in range(LENGTH) if i != LENGTH // 2]
    nodes.insert(LENGTH // 2, f"t{LENGTH // 2 + 1} = Add (t{LENGTH // 2}, c)")
    text = f"g (int64[N,N] t0) => (int64[N,N] t{LENGTH}) <int64 c = {{1}}> {{ {' '.join(nodes)} }}"
    return parse(f'<ir_version: 10, opset_import: ["": 21]> {text}')


def test_tensors_of_the_same_values_are_compared_once(tmp_path, monkeypatch):
    proto, calls = transposes(), []
    match = fusion_check.match
    monkeypatch.setattr(
        fusion_check, "match", lambda *arguments: calls.append(0) or match(*arguments)
    )
    onnx.save(proto, tmp_path / "g.onnx")
    equal_at_first = np.array([[1, 2], [2, 5]])
    inputs = [{"t0": equal_at_first}, {"t0": np.array([[1, 2], [3, 5]])}]
    found = fusion_check.evidence(
        loading.from_proto(proto), tmp_path / "g.onnx", inputs, ONE_THREAD, Limits(), silent
    )
    inner = [onnx.ValueInfoProto(name=node.output[0]) for node in proto.graph.node[:-1]]
    proto.graph.output.extend(inner)
    runs = [{**feeds, **values(proto, feeds)} for feeds in inputs]
    names = [f"t{i}" for i in range(LENGTH + 1)]
    for name in names:
        alike = [n for n in names if all(np.array_equal(run[n], run[name]) for run in runs)]
        assert found.equal[name] == tuple(alike)
    assert 2 < len({found.equal[name] for name in names}) < 6
    assert len(calls) < LENGTH  # of which the pairs of both graphs have the square


def test_tensors_of_more_dimensions_than_numpy_has_name_their_node(tmp_path):
    proto = parse("""<ir_version: 10, opset_import: ["": 21]>
    g (int64[N] sizes, float[2] x) => (float[2] z) {
      wide = ConstantOfShape (sizes)
      half = Cast <to = 16> (x)
      z = Cast <to = 1> (half)
    }""")
    onnx.save(proto, tmp_path / "g.onnx")
    feeds = {"sizes": np.ones(70, np.int64), "x": np.float32([1, -1])}
    with pytest.raises(ModelError, match=r"ConstantOfShape.*64"):
        fusion_check.evidence(
            loading.from_proto(proto), tmp_path / "g.onnx", [feeds], ONE_THREAD, Limits(), silent
        )


def values(proto, feeds):
    """All outputs of onnx's reference, by name."""
    names = [output.name for output in proto.graph.output]
    return dict(zip(names, reference.ReferenceEvaluator(proto).run(names, feeds), strict=True))
