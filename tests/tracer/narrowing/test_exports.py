"""Files for toolchains, as `tracer narrow --export` and `Narrowed.save` write them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import tracer
import tracer.cli
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter


def test_the_command_writes_the_guaranteed_widths(folder, tmp_path, capfd):
    names = ("acc.onnx", "a.finn.json", "a.hls4ml.yml", "a.json")
    acc, finn, hls4ml, table = (str(tmp_path / name) for name in names)
    argv = ["narrow", folder / "net.onnx", "--bits", "second=15,*=30", "--data",
            folder / "data.npz", "--metric", "noise", "-o", acc, "-o", table, "--export", finn,
            "--export", hls4ml]  # fmt: skip
    assert tracer.cli.main([str(each) for each in argv]) == 0
    assert "a.finn.json" in capfd.readouterr().err
    nodes = {
        n["node"]: n["guaranteed"] for n in json.loads((tmp_path / "a.json").read_bytes())["nodes"]
    }
    assert nodes["first"] == 18 and nodes["second"] <= 15
    assert json.loads((tmp_path / "a.finn.json").read_bytes()) == {
        "Defaults": {},
        "MVAU_0": {"accDataType": "INT18"},
        "MVAU_1": {"accDataType": f"INT{nodes['second']}"},
    }
    lines = (tmp_path / "a.hls4ml.yml").read_text().split("\n")
    assert [line.strip() for line in lines] == [
        "LayerName:", "MatMul_0:", "Precision:", 'accum: "fixed<18,17>"',
        "MatMul_1:", "Precision:", f'accum: "fixed<{nodes["second"]},{nodes["second"]}>"', "",
    ]  # fmt: skip


def test_a_model_in_qonnx_has_the_same_guarantee_and_values(folder, tmp_path):
    result = tracer.narrow(folder / "net.onnx", "14", folder / "data.npz", metric="noise")
    qdq, quant = result.save(tmp_path / "n.onnx"), result.save(tmp_path / "n.qonnx.onnx")
    operators = {node.op_type for node in onnx.load(quant).graph.node}
    assert "Quant" in operators and "QuantizeLinear" not in operators
    bits = {}
    for path in (qdq, quant):
        (run,) = tracer.interpret(path, accumulator=14, inputs=[folder / "data.npz"]).runs
        bits[path] = {sums.node: sums.guaranteed_any_order for sums in run.sums}
    assert len(bits[qdq]) == 2
    assert bits[qdq] == bits[quant]
    x = np.load(folder / "data.npz")["x"]
    (want,) = ort.InferenceSession(qdq).run(None, {"x": x})
    (got,) = Interpreter(loading.load(quant)).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_result_is_saved_as_any_of_them(folder, tmp_path):
    result = tracer.narrow(folder / "net.onnx", "20", folder / "data.npz", metric="noise")
    saved = result.save(tmp_path / "finn.json")
    assert set(json.loads(saved.read_bytes())) == {"Defaults", "MVAU_0", "MVAU_1"}
    with pytest.raises(UsageError, match=r"finn\.json.*hls4ml\.yml"):
        result.save(tmp_path / "x.tcl")


def test_sums_of_tiles_have_no_file_and_those_of_data_have_the_width_asked_for(folder, tmp_path):
    result = tracer.narrow(folder / "net.onnx", "20", folder / "data.npz", metric="noise")
    tiles = replace(result, settings={**result.settings, "tile": 4})
    with pytest.raises(UsageError, match="not one for tiles"):
        tiles.save(tmp_path / "x.finn.json")
    wide = tuple(replace(node, bits=10) for node in result.nodes)
    settings = {**result.settings, "guarantee": "this-data"}
    on_data = replace(result, settings=settings, nodes=wide, certificate=None)
    saved = json.loads(on_data.save(tmp_path / "y.finn.json").read_bytes())
    assert saved["MVAU_0"] == {"accDataType": "INT10"}


def test_an_export_is_for_a_toolchain(folder, tmp_path, capfd):
    argv = ["narrow", folder / "net.onnx", "--bits", "16", "--data", folder / "data.npz",
            "--metric", "noise", "--export", tmp_path / "acc.json"]  # fmt: skip
    assert tracer.cli.main([str(each) for each in argv]) == 2
    assert "acc.json: the extension names no toolchain" in capfd.readouterr().err
    assert not (tmp_path / "acc.json").exists()


@pytest.mark.parametrize("name", ["acc.finn.json", "acc.hls4ml.yml"])
def test_tiles_are_told_before_the_work(folder, tmp_path, name, capfd):
    argv = ["narrow", folder / "net.onnx", "--bits", "16", "--data", folder / "data.npz", "--tile",
            "4", "-o", tmp_path / "n.onnx", "--export", tmp_path / name]  # fmt: skip
    assert tracer.cli.main([str(each) for each in argv]) == 2
    assert "one width for a sum, not one for tiles" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("guarantee", "shown", "hidden"),
    [("any-input", "any input after", "on data after"),
     ("this-data", "on data after", "any input after")],
)  # fmt: skip
def test_a_narrow_terminal_shows_the_widths_that_were_asked_for(
    folder, guarantee, shown, hidden, capfd, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "64")
    argv = ["narrow", folder / "net.onnx", "--bits", "15", "--data", folder / "data.npz",
            "--metric", "noise", "--guarantee", guarantee]  # fmt: skip
    assert tracer.cli.main([str(each) for each in argv]) == 0
    out = capfd.readouterr().out
    assert shown in out and hidden not in out


def narrowed_in_qonnx(folder, tmp_path):
    """The network of one scale for each tensor, narrowed, with one sample in a batch."""
    result = tracer.narrow(folder / "net.onnx", "15", folder / "data.npz", metric="noise")
    assert all(node.measure == "activations" for node in result.nodes)
    proto = onnx.load(result.save(tmp_path / "n.qonnx.onnx"))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return result, proto


def test_weights_of_one_scale_keep_one(folder, tmp_path):
    _, proto = narrowed_in_qonnx(folder, tmp_path)
    values = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    made = {name: node for node in proto.graph.node for name in node.output}
    layers = [node for node in proto.graph.node if node.op_type == "MatMul"]
    assert [values[made[node.input[1]].input[1]].size for node in layers] == [1, 1]


def test_hls4ml_builds_a_narrowed_model_of_one_scale_for_each_tensor(folder, tmp_path):
    pytest.importorskip("hls4ml", reason="hls4ml is not installed: pip install hls4ml qonnx")
    yaml = pytest.importorskip("yaml")
    from hls4ml.converters import convert_from_onnx_model
    from hls4ml.utils import config_from_onnx_model
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    result, proto = narrowed_in_qonnx(folder, tmp_path)
    quant = cleanup_model(ModelWrapper(proto)).model
    config = config_from_onnx_model(quant, granularity="name", backend="Vitis")
    widths = yaml.safe_load(result.save(tmp_path / "n.hls4ml.yml").read_text())
    for name, layer in widths["LayerName"].items():
        config["LayerName"][name]["Precision"].update(layer["Precision"])
    built = convert_from_onnx_model(
        quant, hls_config=config, backend="Vitis", output_dir=str(tmp_path / "hls")
    )
    sums = [each for each in built.get_layers() if each.class_name == "Dense"]
    accumulators = [each.types["accum_t"].precision for each in sums]
    assert [each.width for each in accumulators] == [node.guaranteed for node in result.nodes]
