"""The language models: their cache, their export, and what the shipped ones know."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from models import data, families
from models.data.text import TextSplit
from models.training.learner import new_learner
from tracer.api.export import export
from tracer.errors import InputError, ModelError, UsageError
from tracer.exporters.records import ExportOptions
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import find
from tracer.quantization.options import WeightOptions
from tracer.quantization.quantizer import quantize_weights

torch = pytest.importorskip("torch")
FAMILIES = tuple(name for name in families.names() if families.recipe(name).data == "kjv")
SMALL = {"width": 32, "layers": 2}
TEST = "models/data/texts/kjv.test.txt"


def empty(model, rows):
    return {
        value.name: np.zeros((rows, *(d.dim_value for d in value.type.tensor_type.shape.dim[1:])),
                             np.float32)
        for value in model.inputs[1:]
    }  # fmt: skip


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=FAMILIES)
def exported(request, tmp_path_factory):
    torch.manual_seed(1)
    net = families.build(request.param, "torch", SMALL)
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    export(net, path, in_process=True)
    return net, loading.load(path)


@pytest.mark.nightly
def test_tensors_have_the_names_and_axes_of_genai(exported):
    _, model = exported

    def axes(value):
        return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]

    assert [v.name for v in model.inputs[:3]] == [
        "input_ids", "past_key_values.0.key", "past_key_values.0.value",
    ]  # fmt: skip
    assert [v.name for v in model.graph.output][-2:] == ["present.1.key", "present.1.value"]
    assert axes(model.inputs[0]) == ["batch", "sequence"]
    batch, _, past, size = axes(model.inputs[1])
    assert (batch, past, size) == ("batch", "past", 8)


@pytest.mark.parametrize("past", [0, 1, 6])
def test_onnxruntime_and_interpreter_compute_what_torch_does(exported, past):
    net, model = exported
    rng = np.random.default_rng(past)
    ids = rng.integers(0, 256, (2, 5))
    shapes = [(2, v.type.tensor_type.shape.dim[1].dim_value, past, 8) for v in model.inputs[1:]]
    cache = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(ids), *map(torch.from_numpy, cache))
    feeds = dict(zip([v.name for v in model.inputs], [ids, *cache], strict=True))
    for runner in (session(model.path), Interpreter(model)):
        for ours, theirs in zip(runner.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)


def test_a_prefill_is_its_tokens_one_by_one(exported):
    _, model = exported
    ids = np.random.default_rng(7).integers(0, 256, (2, 6))
    for runner in (session(model.path), Interpreter(model)):
        cache = empty(model, 2)
        whole = runner.run(None, {"input_ids": ids, **cache})
        for place in range(6):
            logits, *present = runner.run(None, {"input_ids": ids[:, [place]], **cache})
            np.testing.assert_allclose(logits[:, 0], whole[0][:, place], atol=2e-5)
            cache = dict(zip(cache, present, strict=True))
        for ours, theirs in zip(present, whole[1:], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_model_that_misdescribes_its_inputs_is_refused(tmp_path):
    class Two(torch.nn.Module):
        tensor_names = (("x", "y"), ("z",))

        def forward(self, x):
            return x + 1

    with pytest.raises(ModelError, match=r"tensor_names describes 2 tensors, and the model has 1"):
        export(Two(), tmp_path / "m.onnx", input_shape=(2, 3), in_process=True)


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("llama", {"heads": 3}, "width 128 is not 3 heads"),
        ("llama", {"groups": 3}, "3 groups do not divide 4 heads"),
        ("gpt", {"heads": 3}, "3 heads do not divide width 128"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(family, arguments, message):
    with pytest.raises(UsageError, match=message):
        families.build(family, "torch", arguments)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_steps_learn_a_text(family):
    text = TextSplit(np.frombuffer(b"abcdefgh" * 40, np.uint8), 16)
    learner = new_learner(family, "torch", SMALL, 1e-2, 0)
    x, y = text.batch(slice(0, 8))
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    first = learner.step(x, y)[0]
    for _ in range(30):
        last, right = learner.step(x, y)
    assert last < first / 3
    assert 0 < right <= 8


def test_windows_cover_a_text_without_overlap():
    split = TextSplit(np.arange(11, dtype=np.uint8), 5)
    x, y = split.batch(slice(None))
    np.testing.assert_array_equal(x.ravel(), np.arange(10))
    np.testing.assert_array_equal(y.ravel(), np.arange(1, 11))


def test_no_verse_of_the_test_text_is_in_the_training_text():
    train, test = (
        set((families.FOLDER / "data" / "texts" / f"kjv.{part}.txt").read_text("ascii").split("\n"))
        for part in ("train", "test")
    )
    assert not {line for line in test & train if line}


def test_a_short_or_missing_text_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_bytes(b"abc")
    with pytest.raises(InputError, match="are no window of 16"):
        data.load(f"text:{path}").fitted((16,))
    with pytest.raises(InputError, match="cannot be read"):
        data.load(f"text:{tmp_path / 'none.txt'}")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_shipped_model_knows_more_than_the_last_four_bytes_do(family):
    """Counts of five bytes in a row in the training text need 2.07 bits a byte."""
    path = families.shipped(family, "torch")
    assert path.stat().st_size < 3e6
    model = loading.load(path)
    (batch,) = open_dataset(f"text:{TEST}", model, limit=48).batches(48)
    logits = session(path).run(["logits"], dict(batch.inputs))[0]
    bits = find("perplexity").scores({"logits": logits}, batch.labels).mean()
    assert bits < 2
    assert all(node.module is not None for node in model.nodes)
    for node in model.nodes:
        if node.op_type == "MatMul":
            assert str(node.source).startswith(f"models/{family}/torch_net.py:"), node.key


def test_the_shipped_int4_model_is_what_quantize_makes_of_the_float_one():
    path = families.shipped("llama", "torch")
    options = WeightOptions(accuracy_level=4)
    made = quantize_weights(loading.load(path), options).proto
    kept = loading.load(path.with_suffix(".int4.onnx")).proto
    assert [node.name for node in made.graph.node] == [node.name for node in kept.graph.node]
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in kept.graph.initializer}
    for weight in made.graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), weights[weight.name])


@pytest.mark.nightly
def test_options_of_an_export_may_fix_the_batch(tmp_path):
    net = families.build("llama", "torch", SMALL)
    options = ExportOptions(dynamic_batch=False)
    record = export(net, tmp_path / "m.onnx", options=options, in_process=True)
    model = loading.load(record.path)
    assert [d.dim_param or d.dim_value for d in model.inputs[0].type.tensor_type.shape.dim] == [
        1, "sequence",
    ]  # fmt: skip
