"""Configurations of FINN and hls4ml: names, layout and types, read back by their own packages."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyzers.toolchains import networks
from tests.interpreter.models import quick
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import narrowed
from tracer.analyzers.views.file_formats import toolchains as files
from tracer.analyzers.views.narrowed import products
from tracer.graph import loading

IMAGE = (1, 3, 5, 5)


def model(net, shape, output):
    return loading.from_proto(net.model("qdq", shape, output))


def convolutions():
    return model(networks.convolutions(), IMAGE, "last")


def widths(loaded, bits=16):
    return {each.key: bits + place for place, each in enumerate(products(loaded))}


def test_products_without_weights_are_numbered_but_not_by_finn():
    loaded = convolutions()
    named = {each.key: each.name for each in products(loaded)}
    assert named == {
        "whole": "Conv_0", "depth": "Conv_1", "fc": "MatMul_0", "pairs": "MatMul_1",
        "last": "MatMul_2",
    }  # fmt: skip
    assert narrowed.finn_configuration(loaded, widths(loaded)) == {
        "Defaults": {},
        "MVAU_0": {"accDataType": "INT16"},
        "VVAU_0": {"accDataType": "INT17"},
        "MVAU_1": {"accDataType": "INT18"},
        "MVAU_2": {"accDataType": "INT20"},
    }
    layers = narrowed.hls4ml_configuration(loaded, {"last": 13})["LayerName"]
    assert layers == {"MatMul_2": {"Precision": {"accum": "fixed<13,13>"}}}
    assert narrowed.finn_configuration(loaded, {"last": 13}) == {
        "Defaults": {}, "MVAU_2": {"accDataType": "INT13"},
    }  # fmt: skip


@quick
@given(st.integers(-12, 4), st.integers(-12, 4), st.integers(2, 40))
def test_a_unit_of_the_accumulator_is_the_product_of_the_scales(first, second, bits):
    net = networks.perceptron((2.0**first, 2.0**second, 0.3, 2.0**second))
    loaded = model(net, (1, 12), "second")
    layers = narrowed.hls4ml_configuration(loaded, {"first": bits, "second": bits})["LayerName"]
    unit = [Fraction(2) ** first * Fraction(2) ** second, Fraction(2) ** second]
    for name, step in zip(("MatMul_0", "MatMul_1"), unit, strict=True):
        text = layers[name]["Precision"]["accum"].removeprefix("fixed<").removesuffix(">")
        width, integers = map(int, text.split(","))
        assert width == bits
        assert Fraction(2) ** (integers - width) == step


def test_files_are_json_and_yaml():
    yaml = pytest.importorskip("yaml")
    loaded = convolutions()
    for configuration, render, read in (
        (narrowed.finn_configuration, files.render_json, json.loads),
        (narrowed.hls4ml_configuration, files.render_yaml, yaml.safe_load),
    ):
        for bits in (widths(loaded), {}):
            document = configuration(loaded, bits)
            assert read(render(document, ViewOptions())) == document


def test_qonnx_lowers_the_products_in_the_order_that_finn_is_told():
    pytest.importorskip("qonnx", reason="qonnx is not installed: pip install qonnx")
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.transformation.lower_convs_to_matmul import LowerConvsToMatMul
    from qonnx.util.cleanup import cleanup_model

    quant = networks.convolutions().model("quant", IMAGE, "last")
    lowered = cleanup_model(ModelWrapper(quant), preserve_qnt_ops=False)
    lowered = lowered.transform(LowerConvsToMatMul())
    theirs, counts = {}, {"MVAU": 0, "VVAU": 0}
    for node in lowered.graph.node:
        weights = lowered.get_initializer(node.input[1]) if len(node.input) > 1 else None
        if node.op_type == "MatMul" and weights is not None:
            unit = "MVAU" if lowered.get_tensor_sparsity(node.input[1]) is None else "VVAU"
            theirs[f"{unit}_{counts[unit]}"] = weights.shape
            counts[unit] += 1
    assert theirs == {"MVAU_0": (27, 4), "VVAU_0": (36, 4), "MVAU_1": (100, 5)}
    loaded = convolutions()
    told = {
        name: next(iter(narrowed.finn_configuration(loaded, {name: 9}).keys() - {"Defaults"}))
        for name in ("whole", "depth", "fc")
    }
    assert list(told.values()) == list(theirs)


def test_qonnx_gives_products_these_names():
    pytest.importorskip("qonnx", reason="qonnx is not installed: pip install qonnx")
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    cleaned = cleanup_model(ModelWrapper(networks.convolutions().model("quant", IMAGE, "last")))
    theirs = {n.name for n in cleaned.graph.node if n.op_type in ("Conv", "MatMul")}
    ours = {each.name for each in products(convolutions())}
    assert theirs == ours - {"MatMul_2"}  # which still is a Gemm there


def test_finn_has_the_types_of_the_accumulators():
    pytest.importorskip("qonnx", reason="qonnx is not installed: pip install qonnx")
    from qonnx.core.datatype import DataType

    loaded = convolutions()
    for name, node in narrowed.finn_configuration(loaded, widths(loaded)).items():
        if name != "Defaults":
            kind = DataType[node["accDataType"]]
            assert kind.min() == -(1 << kind.bitwidth() - 1)
            assert kind.max() == (1 << kind.bitwidth() - 1) - 1


@pytest.mark.parametrize("scales", [(0.5, 0.125, 0.25, 0.0625), (0.5, 0.1, 0.3, 0.0625)])
def test_hls4ml_reads_the_accumulators(scales, tmp_path):
    pytest.importorskip("hls4ml", reason="hls4ml is not installed: pip install hls4ml qonnx")
    yaml = pytest.importorskip("yaml")
    from hls4ml.converters import convert_from_onnx_model
    from hls4ml.utils import config_from_onnx_model
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    net = networks.perceptron(scales)
    loaded = model(net, (1, 12), "second")
    own = narrowed.hls4ml_configuration(loaded, {"first": 19, "second": 17})
    quant = cleanup_model(ModelWrapper(net.model("quant", (1, 12), "second"))).model
    config = config_from_onnx_model(quant, granularity="name", backend="Vitis")
    read = yaml.safe_load(files.render_yaml(own, ViewOptions()))
    for name, layer in read["LayerName"].items():
        config["LayerName"][name]["Precision"].update(layer["Precision"])
    built = convert_from_onnx_model(
        quant, hls_config=config, backend="Vitis", output_dir=str(tmp_path / "hls")
    )
    sums = {each.name: each for each in built.get_layers() if each.class_name == "Dense"}
    assert set(sums) == {"Dense_MatMul_0", "Dense_MatMul_1"}
    for name, layer in own["LayerName"].items():
        accumulator = sums[f"Dense_{name}"].types["accum_t"].precision
        weights = sums[f"Dense_{name}"].weights["weight"].type.precision
        inputs = sums[f"Dense_{name}"].get_input_variable().type.precision
        width, integers = accumulator.width, accumulator.integer
        assert layer["Precision"]["accum"] == f"fixed<{width},{integers}>"
        # a unit of the sum is a unit of the input times a unit of the weights: nothing is lost
        assert width - integers == weights.fractional + inputs.fractional
