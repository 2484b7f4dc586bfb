from collections import Counter

import pytest

from tracer.api.export import export
from tracer.exporters.records import ExportOptions
from tracer.graph import loading

torch = pytest.importorskip("torch")
nn = torch.nn


def operators(path):
    return [(node.op_type, node.module) for node in loading.load(path).nodes]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.fc = nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


@pytest.mark.nightly
def test_the_sizes_of_a_dynamic_batch_belong_to_the_module_they_serve(tmp_path):
    export(Recurrent(), tmp_path / "m.onnx", input_shape=(2, 3, 4))
    modules = Counter(node.module for node in loading.load(tmp_path / "m.onnx").nodes)
    assert modules.keys() == {"lstm", "fc", ""}
    assert modules["fc"] == 1


def test_a_model_that_returns_its_input_is_the_roots(tmp_path):
    export(nn.Identity(), tmp_path / "m.onnx", input_shape=(2, 3))
    assert operators(tmp_path / "m.onnx") == [("Identity", "")]


@pytest.mark.nightly
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4)), (2, 4, 6, 6)),
        (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1),
            (2, 5, 8),
        ),
    ],
)
def test_no_more_nodes_are_left_than_by_torchs_own_optimizing(tmp_path, keep, net, shape):
    options = ExportOptions(keep_batchnorm=keep)
    export(net, tmp_path / "m.onnx", input_shape=shape, options=options)
    program = torch.onnx.export(
        net.eval(), (torch.ones(shape),), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
    )
    theirs = Counter(node.op_type for node in program.model_proto.graph.node)
    assert Counter(op for op, _ in operators(tmp_path / "m.onnx")) == theirs
