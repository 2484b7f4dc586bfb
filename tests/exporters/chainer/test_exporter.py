import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.examples import at_night, examples
from tracer.api.export import export
from tracer.errors import ModelError, ThresholdError, UsageError
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.records import ExportOptions
from tracer.graph import loading

chainer_ready()
chainer = pytest.importorskip("chainer")
F, L = chainer.functions, chainer.links


class Block(chainer.Chain):
    """Experiment 1's: a shortcut only where the stride is not 1, and unused links elsewhere."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.stride = stride
        with self.init_scope():
            self.conv1 = L.Convolution2D(inside, outside, 3, stride, 1, nobias=True)
            self.bn1 = L.BatchNormalization(outside)
            self.conv2 = L.Convolution2D(outside, outside, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(outside)
            self.conv3 = L.Convolution2D(inside, outside, 1, stride, nobias=True)
            self.bn3 = L.BatchNormalization(outside)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.stride != 1:
            h = h + self.bn3(self.conv3(x))
        return F.relu(h)


class ResNet20(chainer.Chain):
    def __init__(self):
        super().__init__()
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2
        widths += [(32, 64, 2)] + [(64, 64, 1)] * 2
        with self.init_scope():
            self.conv = L.Convolution2D(3, 16, 3, 1, 1, nobias=True)
            self.bn = L.BatchNormalization(16)
            self.res = chainer.ChainList(*(Block(*width) for width in widths))
            self.fc = L.Linear(None, 10)

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        for block in self.res:
            h = block(h)
        h = F.average_pooling_2d(h, h.shape[2:])
        return self.fc(F.reshape(h, (h.shape[0], -1)))


def chain(forward, **links):
    """A chain of these links with this forward pass."""

    class Model(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                for name, link in links.items():
                    setattr(self, name, link)

        def forward(self, x):
            return forward(self, x)

    return Model()


@pytest.fixture(scope="module")
def resnet20(tmp_path_factory):
    path = tmp_path_factory.mktemp("resnet20") / "m.onnx"
    return ResNet20(), path


@pytest.fixture(scope="module")
def exported(resnet20):
    model, path = resnet20
    return export(model, path, input_shape=(1, 3, 32, 32)), loading.load(path)


@pytest.mark.nightly
def test_resnet20_gives_the_66_functions_of_experiment_1(exported):
    _, model = exported
    assert Counter(node.op_type for node in model.nodes) == {
        "Conv": 21,
        "BatchNormalization": 21,
        "Relu": 19,
        "Add": 2,
        "AveragePool": 1,
        "Reshape": 1,
        "Gemm": 1,
    }


def test_every_node_of_resnet20_has_its_link(exported):
    _, model = exported
    by_op = {}
    for node in model.nodes:
        by_op.setdefault(node.op_type, []).append(node.module)
    stem = ["conv", *(f"res.{i}.conv{j}" for i in range(9) for j in (1, 2))]
    stem += ["res.3.conv3", "res.6.conv3"]
    assert sorted(by_op["Conv"]) == sorted(stem)
    assert sorted(by_op["BatchNormalization"]) == sorted(n.replace("conv", "bn") for n in stem)
    assert by_op["Add"] == ["res.3", "res.6"]
    assert Counter(by_op["Relu"]) == {"": 1, **{f"res.{i}": 2 for i in range(9)}}
    assert (by_op["AveragePool"], by_op["Reshape"], by_op["Gemm"]) == ([""], [""], ["fc"])


def test_every_node_has_a_unique_name_and_the_line_of_the_call(exported):
    _, model = exported
    names = [node.proto.name for node in model.nodes]
    assert len(set(names)) == len(names) == 66
    line = next(
        n
        for n, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "h + self.bn3" in text
    )
    add = next(node for node in model.nodes if node.op_type == "Add")
    assert add.source == f"tests/exporters/chainer/test_exporter.py:{line}"


def test_the_file_has_no_weights_among_its_inputs_and_no_constant_nodes(exported):
    record, model = exported
    assert [value.name for value in model.graph.input] == ["x"]
    assert model.proto.ir_version == record.ir_version == 10
    assert "Constant" not in {node.op_type for node in model.nodes}


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_onnxruntime_equals_chainer_at_any_batch(resnet20, exported, batch):
    model, path = resnet20
    x = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32)).astype("f")
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        wanted = model(x).array
    result = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("opset", at_night([7, 13, 18, 22], but=[7, 22]))
def test_another_opset_keeps_nodes_modules_and_values(resnet20, tmp_path, opset):
    model, _ = resnet20
    options = ExportOptions(opset=opset)
    record = export(model, tmp_path / "m.onnx", input_shape=(1, 3, 32, 32), options=options)
    nodes = loading.load(tmp_path / "m.onnx").nodes
    assert (record.opset, len(nodes)) == (opset, 66)
    assert all(node.module is not None and node.source for node in nodes)


def test_nodes_that_the_version_converter_adds_belong_to_the_function(tmp_path):
    model = chain(lambda self, x: F.squeeze(self.fc(F.sum(x, axis=2)), axis=1), fc=L.Linear(3, 1))
    options = ExportOptions(opset=18)
    export(model, tmp_path / "m.onnx", input_shape=(1, 3, 5), options=options)
    nodes = loading.load(tmp_path / "m.onnx").nodes
    assert [(n.op_type, n.module) for n in nodes] == [
        ("ReduceSum", ""),
        ("Gemm", "fc"),
        ("Squeeze", ""),
    ]


def test_a_function_of_several_nodes_gives_all_of_them_its_module(tmp_path):
    model = chain(lambda self, x: self.prelu(x), prelu=L.PReLU((3,)))
    for opset in (11, 18):
        options = ExportOptions(opset=opset, force=True)
        export(model, tmp_path / "m.onnx", input_shape=(1, 3, 5, 5), options=options)
        nodes = loading.load(tmp_path / "m.onnx").nodes
        assert [(n.op_type, n.module) for n in nodes] == [
            ("Unsqueeze", "prelu"),
            ("PRelu", "prelu"),
        ]


def test_parameters_are_those_of_chainer(tmp_path):
    fixed = np.ones((4, 2), np.float32)
    model = chain(
        lambda self, x: F.matmul(self.linear(self.norm(x)), fixed),
        norm=chainer.links.BatchNormalization(3),
        linear=chainer.links.Linear(3, 4),
    )
    export(model, tmp_path / "m.onnx", input_shape=(2, 3))
    assert tracer.count(tmp_path / "m.onnx").model.params == model.count_params() == 6 + 12 + 4


def test_a_parameter_used_by_its_parent_belongs_to_its_own_link(tmp_path):
    model = chain(lambda self, x: F.linear(x, self.fc.W.T), fc=L.Linear(4, 4))
    export(model, tmp_path / "m.onnx", input_shape=(1, 4))
    nodes = loading.load(tmp_path / "m.onnx").nodes
    assert [(n.op_type, n.module) for n in nodes] == [("Transpose", "fc"), ("Gemm", "")]


def test_links_within_chainer_have_no_source_of_the_users_but_the_call(tmp_path):
    model = chainer.Sequential(L.Linear(4, 3), F.relu)
    export(model, tmp_path / "m.onnx", input_shape=(1, 4))
    nodes = loading.load(tmp_path / "m.onnx").nodes
    assert [(n.module, n.source) for n in nodes] == [("0", None), ("", None)]


def test_a_batch_in_the_middle_of_a_reshape_is_freed(tmp_path):
    model = chain(lambda self, x: F.reshape(x, (3, x.shape[0], -1)))
    record = export(model, tmp_path / "m.onnx", input_shape=(2, 3, 4))
    assert record.dynamic_batch
    assert record.batches == (2, 4)


@examples(30)
@given(st.data())
def test_a_reshape_is_freed_rightly_or_refused(data):
    """The export compares at two batches, so that a wrong repair would be a ThresholdError."""
    inside = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    outside = ["batch", *inside]
    joined = data.draw(st.booleans())
    order = data.draw(st.permutations(outside))

    def forward(self, x):
        target = [x.shape[0] if size == "batch" else size for size in order]
        target = [target[0] * target[1], *target[2:]] if joined else target
        return F.reshape(x, target)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        assert export(chain(forward), path, input_shape=(2, *inside)).dynamic_batch


def test_a_batch_that_is_baked_in_names_the_node_and_its_line(tmp_path):
    model = chain(lambda self, x: F.broadcast_to(F.sum(x), (x.shape[0], 2)))
    with pytest.raises(ModelError, match=r"'BroadcastTo_0' \(Expand\) at .*test_exporter\.py:\d+"):
        export(model, tmp_path / "m.onnx", input_shape=(2, 3))
    options = ExportOptions(dynamic_batch=False)
    assert export(model, tmp_path / "m.onnx", input_shape=(2, 3), options=options).batches == (2,)


def test_a_graph_that_grows_with_the_batch_is_refused(tmp_path):
    model = chain(lambda self, x: F.concat([x[i : i + 1] for i in range(len(x))], axis=0))
    with pytest.raises(ModelError, match=r"batch.*Give options\.dynamic_batch=False"):
        export(model, tmp_path / "m.onnx", input_shape=(2, 3))


def test_statistics_of_the_batch_are_not_passed_off_as_constants(tmp_path):
    model = chain(lambda self, x: F.batch_normalization(x, np.ones(3, "f"), np.zeros(3, "f")))
    with pytest.raises(ModelError, match=r"baked into node 'BatchNormalization_0'"):
        export(model, tmp_path / "m.onnx", input_shape=(4, 3))


def test_an_unsupported_function_is_named_with_where_it_is_called(tmp_path):
    model = chain(lambda self, x: F.erf(self.fc(x)), fc=L.Linear(4, 4))
    with pytest.raises(ModelError, match=r"function Erf, called .*chainer/test_exporter\.py:\d+"):
        export(model, tmp_path / "m.onnx", input_shape=(1, 4))


def test_arguments_that_have_no_conversion_are_named_with_where(tmp_path):
    model = chain(lambda self, x: F.normalize(x, eps=1e-2))
    with pytest.raises(ModelError, match=r"NormalizeL2, called .*:\d+, cannot be converted"):
        export(model, tmp_path / "m.onnx", input_shape=(1, 4))


def test_a_wrong_conversion_is_caught_and_named(tmp_path):
    model = chain(lambda self, x: F.relu(F.resize_images(x, (7, 7))))
    options = ExportOptions(opset=9)  # in which ONNX cannot align the corners
    with pytest.raises(ThresholdError, match=r"first node that differs is 'ResizeImages_0' \(Up"):
        export(model, tmp_path / "m.onnx", input_shape=(2, 3, 4, 4), options=options)
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_do_not_fit_end_in_chainers_own_words(tmp_path):
    with pytest.raises(ModelError, match=r"inputs of \[1, 4, 32, 32\].*Convolution2DFunction"):
        export(ResNet20(), tmp_path / "m.onnx", input_shape=(1, 4, 32, 32))


def test_batchnorm_always_stays_so_the_option_is_refused(tmp_path):
    options = ExportOptions(keep_batchnorm=True)
    with pytest.raises(UsageError, match=r"options\.keep_batchnorm is for torch"):
        export(L.Linear(3, 3), tmp_path / "m.onnx", input_shape=(1, 3), options=options)


def test_several_inputs_and_integers(tmp_path):
    class Two(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.embed = L.EmbedID(7, 4)

        def forward(self, ids, scale):
            return self.embed(ids) * scale

    shapes = [(2, 3), (2, 3, 4)]
    dtypes = ["int64", "float32"]
    export(Two(), tmp_path / "m.onnx", input_shape=shapes, input_dtype=dtypes)
    assert [i.name for i in loading.load(tmp_path / "m.onnx").inputs] == ["ids", "scale"]


def test_the_line_of_a_call_is_the_users_not_that_of_a_library_between(tmp_path, monkeypatch):
    library = tmp_path / "site-packages" / "shorthand.py"
    library.parent.mkdir()
    library.write_text("def activated(function, x):\n    return function(x)\n")
    monkeypatch.syspath_prepend(library.parent)
    import shorthand

    model = chain(lambda self, x: shorthand.activated(F.relu, x))
    export(model, tmp_path / "m.onnx", input_shape=(1, 4))
    source = loading.load(tmp_path / "m.onnx").nodes[0].source
    assert source.startswith("tests/exporters/chainer/test_exporter.py:")
