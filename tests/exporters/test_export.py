import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tracer
from tracer.api.export import export
from tracer.errors import InputError, ThresholdError, UsageError
from tracer.exporters import frameworks, pipeline, records
from tracer.exporters.records import _DTYPES, Conversion, ExportOptions, InputSpec, draw
from tracer.exporters.writing import write
from tracer.graph import loading

torch = pytest.importorskip("torch")


class Untouchable(torch.nn.Module):
    def forward(self, x):
        pytest.fail("the model was run")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "m.onnx"


def test_an_existing_file_is_refused_before_the_work_and_left_as_it_is(target):
    target.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"m\.onnx: the file exists.*options\.force"):
        export(Untouchable(), target, input_shape=(1, 3))
    assert target.read_bytes() == b"mine"


def test_force_overwrites(target):
    target.write_bytes(b"mine")
    export(torch.nn.ReLU(), target, input_shape=(2, 3), options=ExportOptions(force=True))
    assert target.read_bytes() != b"mine"


def test_a_name_that_is_no_models_is_refused_before_the_work(tmp_path):
    with pytest.raises(UsageError, match=r"m\.txt: not the name of a model.*\.onnx"):
        export(Untouchable(), tmp_path / "m.txt", input_shape=(1, 3))


def test_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        export(Untouchable(), tmp_path / "gone" / "m.onnx", input_shape=(1, 3))
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        export(Untouchable(), tmp_path / "folder.onnx", input_shape=(1, 3))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(target, monkeypatch):
    import onnx

    target.write_bytes(b"mine")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(InputError, match=r"m\.onnx: cannot be written \(full\)"):
        write(onnx.ModelProto(ir_version=10), target)
    assert [file.name for file in target.parent.iterdir()] == ["m.onnx"]
    assert target.read_bytes() == b"mine"


def test_the_written_file_has_the_usual_permissions(target):
    export(torch.nn.ReLU(), target, input_shape=(2, 3))
    usual = target.with_suffix(".txt")
    usual.touch()
    assert target.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExportOptions(opset=99), "opset 99 is newer than the installed onnxruntime"),
        (ExportOptions(framework="caffe"), "no framework 'caffe'. There are chainer, torch"),
        (ExportOptions(framework="chainer"), "is not a chainer model"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_before_the_work(target, options, message):
    with pytest.raises(UsageError, match=message):
        export(Untouchable(), target, input_shape=(1, 3), options=options)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (None, "float32", "shape of the input is not known.*input_shape="),
        ((0, 3), "float32", r"\[0, 3\] is not a shape"),
        ((1, 3), "float31", "no element type 'float31'. There are bool, float16"),
        ((1, 3), "bfloat16", "'bfloat16'. Neither torch nor onnxruntime takes numpy arrays"),
        ((1, 3), ["float32", "int64"], "2 element types for 1 inputs"),
    ],
)
def test_inputs_that_make_no_sense_are_refused(target, shape, dtype, message):
    with pytest.raises(UsageError, match=message):
        export(Untouchable(), target, input_shape=shape, input_dtype=dtype)


def test_an_object_of_no_framework_is_named_by_its_type(target):
    with pytest.raises(UsageError, match=r"object of type builtins\.dict is not a model of"):
        export({}, target, input_shape=(1, 3))


def test_a_package_that_exporting_needs_is_named_with_its_extra(target, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxscript"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"needs 'onnxscript'.*'tracer-onnx\[torch\]'"):
        export(torch.nn.ReLU(), target, input_shape=(2, 3))


class Half(torch.nn.Module):
    def forward(self, x, unused):
        return x + 1


def test_an_input_that_the_model_does_not_read_stays_an_input(target):
    export(Half(), target, input_shape=[(2, 3), (2, 5)])
    assert [value.name for value in loading.load(target).inputs] == ["x", "unused"]


def test_a_model_may_be_named_and_takes_arguments_then(target, tmp_path):
    file = tmp_path / "net.py"
    file.write_text("import torch\ndef net(size):\n    return torch.nn.Linear(size, 2)\n")
    export(f"{file}:net", target, args={"size": 5}, input_shape=(1, 5))
    assert loading.load(target).nodes[0].op_type == "Gemm"


def test_a_live_model_takes_no_arguments(target):
    with pytest.raises(UsageError, match="args and weights apply to a model that is named"):
        export(Untouchable(), target, args={"size": 5}, input_shape=(1, 5))


def test_the_former_names_of_the_packages_still_import_and_warn():
    code = (
        "import exporters.records, tracer.exporters.records as records;"
        "import analyzers.timing, tracer.analyzers.timing as timing;"
        "print(exporters.records is records, analyzers.timing is timing)"
    )
    root = Path(tracer.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.stdout == "True True\n", done.stderr
    assert "DeprecationWarning: exporters is tracer.exporters now" in done.stderr
    assert "DeprecationWarning: analyzers is tracer.analyzers now" in done.stderr


def test_every_framework_has_an_exporter_of_its_name():
    assert frameworks() == ["chainer", "torch"]
    assert [exporter.name for exporter in records.all_exporters()] == ["chainer", "torch"]


@pytest.mark.parametrize("dtype", _DTYPES)
def test_random_inputs_suit_their_type(dtype):
    values = InputSpec((50, 4), dtype).draw(np.random.default_rng(0))
    assert (values.dtype, values.shape) == (np.dtype(dtype), (50, 4))
    assert len(np.unique(values)) > 1
    if dtype.endswith(("16", "32", "64")) and values.dtype.kind == "i":
        assert set(np.unique(values)) == {0, 1}  # rows that every table has


class Baking:
    """A framework that writes the value of the traced input in place of a function of it."""

    name = "baking"

    def convert(self, model, inputs, options):
        import onnx
        from onnx import helper, numpy_helper

        def run(arrays):
            return [np.floor(arrays[0])]

        shape = list(inputs[0].shape)
        value = numpy_helper.from_array(run(draw(inputs, options.seed))[0], "y")
        x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy")
        node = helper.make_node("Constant", [], ["y"], value=value)
        proto = helper.make_model(
            helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)]
        )
        return Conversion(proto, run, lambda arrays: {"y": run(arrays)[0]}, tuple(inputs))


def test_a_value_of_the_traced_input_does_not_pass_for_a_function_of_it(target):
    options = ExportOptions(dynamic_batch=False)
    with pytest.raises(ThresholdError, match="differs from baking"):
        pipeline.convert(Baking(), None, [InputSpec((2, 4))], options, target)


@pytest.mark.nightly
def test_a_model_with_an_input_shape_needs_none_to_be_given(tmp_path):
    class Sum(torch.nn.Module):
        input_shape = ((2, 3), (3,))

        def forward(self, x, y):
            return (x + y[:, None]).sum(1)

    exported = export(Sum(), tmp_path / "sum.onnx")
    shapes = [
        [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in loading.load(exported.path).inputs
    ]
    assert shapes == [["batch", 2, 3], ["batch", 3]]
