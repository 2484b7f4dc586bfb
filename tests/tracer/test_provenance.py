from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model

from tracer.graph.provenance import MODULE_KEY, SOURCE_KEY, module_of, source_of


def node(name="", **props):
    proto = onnx.NodeProto(name=name)
    for key, value in props.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


TORCH = {
    "pkg.torch.onnx.name_scopes": "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_3']",
}


def test_torch_names_the_module_in_the_last_scope_but_one():
    assert module_of(node(**TORCH)) == "layer1.0.conv1"


@pytest.mark.parametrize("scopes", ["", "[", "__import__('os')", "[1]", "'text'"])
def test_scopes_that_are_no_list_of_names_tell_nothing(scopes):
    assert module_of(node(**{"pkg.torch.onnx.name_scopes": scopes})) is None


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/fc/Gemm", "fc"),
        ("/Add", None),
        ("Conv_3", None),
        ("model_1/conv2d_3/BiasAdd;model_1/conv2d_3/Conv2D", "model_1.conv2d_3"),
        ("//Add", None),
        ("", None),
    ],
)
def test_exporters_leave_the_module_in_the_name(name, module):
    assert module_of(node(name)) == module


def test_a_fusion_of_onnxruntime_is_no_module(tmp_path):
    """It names a product that it scales /f2/MatMul/MatmulTransposeFusion//MatMulScaleFusion/."""
    proto = parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,4,8] x, float[1,4,8] z) => (float[1,4,4] y) {
            turned = Transpose <perm = [0, 2, 1]> (z)
            product = MatMul (x, turned)
            half = Constant <value_float = 0.5> ()
            y = Mul (product, half)
        }""")
    for node in proto.graph.node:
        node.name = f"/f2/{node.op_type}"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    cpu = ["CPUExecutionProvider"]
    onnxruntime.InferenceSession(proto.SerializeToString(), options, cpu)
    (fused,) = onnx.load(tmp_path / "optimised.onnx").graph.node
    assert fused.name.count("Fusion/") == 2
    assert module_of(fused) == "f2"


def test_our_own_metadata_comes_before_that_of_others():
    both = node("/a/b/Conv", **{MODULE_KEY: "c", SOURCE_KEY: "net.py:3"}, **TORCH)
    assert module_of(both) == "c"
    assert source_of(both) == "net.py:3"


def test_a_source_is_relative_to_the_working_directory_and_never_absolute():
    stack = 'File "{}", line 12, in forward\n    return x'
    key = "pkg.torch.onnx.stack_trace"
    inside = Path.cwd() / "nets" / "net.py"
    assert source_of(node(**{key: stack.format(inside)})) == "nets/net.py:12"
    assert source_of(node(**{key: stack.format("/else/where/net.py")})) == "net.py:12"
    assert source_of(node(**{key: "no frames"})) is None


def test_frames_of_libraries_are_passed_over():
    own = Path.cwd() / "net.py"
    stack = f'File "{own}", line 3, in forward\nFile "/x/site-packages/torch/nn/linear.py", line 9'
    assert source_of(node(**{"pkg.torch.onnx.stack_trace": stack})) == "net.py:3"


def test_of_a_model_in_a_library_the_line_is_the_librarys():
    frames = ("transformers/bert.py", "torch/nn/linear.py")
    stack = "\n".join(f'File "/x/site-packages/{frame}", line 9' for frame in frames)
    assert source_of(node(**{"pkg.torch.onnx.stack_trace": stack})) == "bert.py:9"


def test_a_node_that_no_module_made_has_none():
    scopes = "['', '_empty_nn_module_stack_from_metadata_hook', 'sym_size']"
    assert module_of(node(**{"pkg.torch.onnx.name_scopes": scopes})) is None
