"""Models whose declarations lie: dimensions, types, names, metadata, stored tensors."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.corpus import case, model, relu, value

HUGE = 1 << 33
SHAPES = {
    "a negative dimension": [-5, 3],
    "the least dimension": [-(1 << 63), 1],
    "elements beyond 63 bits": [1 << 40, 1 << 40],
    "elements that wrap to 0": [1 << 32, 1 << 32, 4],
    "the largest dimension": [(1 << 63) - 1],
    "bytes beyond 63 bits": [1 << 62],
    "6 GiB of input": [3, 1 << 29],
    "8 GiB of input": [HUGE // 4],
    "rank 65": [1] * 65,
    "rank 1000": [1] * 1000,
    "an empty dimension": [0, 3],
    "an empty and a huge dimension": [0, 1 << 62],
    "rank 0": [],
}
for _name, _shape in SHAPES.items():
    case(_name)(lambda shape=_shape: relu(shape))

TYPES = {"no element type": 0, "element type 77": 77, "element type -1": -1,
         "strings into Relu": TensorProto.STRING, "complex128 into Relu": TensorProto.COMPLEX128,
         "float8 into Relu": TensorProto.FLOAT8E4M3FN,
         "float4 into Relu": TensorProto.FLOAT4E2M1}  # fmt: skip
for _name, _type in TYPES.items():
    case(_name)(lambda dtype=_type: relu([2, 3], dtype))


@case("an output of no element type")
def _():
    made = relu([2])
    made.graph.output[0].type.tensor_type.elem_type = 0
    return made


@case("a value_info of a negative dimension")
def _():
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    made = model(nodes, [value("x")], [value("y")])
    made.graph.value_info.append(value("h", [-7, 3]))
    return made


@case("a value_info that lies")
def _():
    made = model(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        [value("x")], [value("y")],
    )  # fmt: skip
    made.graph.value_info.append(value("h", [1 << 40, 3], TensorProto.STRING))
    return made


TEXTS = {
    "an escape sequence": "\x1b[31m\x1b[2J\x1b]0;owned\x07",
    "a newline": "a\ntracer: error: all is well",
    "a name of 1 MB": "n" * (1 << 20),
    "markup": "[bold red][/nope]",
    "NUL": "a\0b",
    "right to left": "\u202eabc",
    "a formula": "=cmd|' /C calc'!A0",
}


def _named(text, field):
    made = relu([2, 3])
    node = made.graph.node[0]
    if field == "node":
        node.name = text
    elif field == "operator":
        node.op_type = text
    elif field == "domain":
        node.domain = text
        made.opset_import.add(domain=text, version=1)
    elif field == "tensor":
        made.graph.input[0].name = node.input[0] = text
    elif field == "dimension":
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text
    elif field == "graph":
        made.graph.name = text
    elif field == "metadata":
        made.metadata_props.add(key=text, value=text)
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=text)
    return made


FIELDS = ("node", "operator", "domain", "tensor", "dimension", "graph", "metadata")
for _text, _content in TEXTS.items():
    for _field in FIELDS:
        case(f"{_text} as {_field}")(lambda t=_content, f=_field: _named(t, f))

for _field in FIELDS:

    @case(f"not UTF-8 as {_field}")
    def _(field=_field):
        return _named("QQQQ", field).SerializeToString().replace(b"QQQQ", b"\xff\xfe\x80Q")


def _weighed(tensor):
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model([node], [value("x")], [value("y")], weights=[tensor])


def _tensor(**fields):
    return TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, **fields})


TENSORS = {
    "a weight with too few bytes": _tensor(dims=[2, 3], raw_data=b"1234"),
    "a weight with too many bytes": _tensor(dims=[2, 3], raw_data=bytes(100)),
    "a weight without data": _tensor(dims=[2, 3]),
    "a weight of a negative dimension": _tensor(dims=[-1], raw_data=bytes(24)),
    "a weight of 2^62 elements": _tensor(dims=[1 << 62], raw_data=bytes(24)),
    "a weight that wraps": _tensor(dims=[1 << 32, 1 << 32], raw_data=b""),
    "a weight of rank 70": _tensor(dims=[1] * 70, raw_data=bytes(4)),
    "a weight of type 0": _tensor(dims=[2, 3], data_type=0, raw_data=bytes(24)),
    "a weight of type 99": _tensor(dims=[2, 3], data_type=99, raw_data=bytes(24)),
    "a weight in the wrong field": _tensor(dims=[2, 3], int32_data=[1] * 6),
    "a weight in two fields": _tensor(dims=[1], float_data=[1], raw_data=bytes(4)),
    "strings that are not UTF-8": _tensor(dims=[1], data_type=TensorProto.STRING,
                                          string_data=[b"\xff\xfe"]),
    "an empty weight": _tensor(dims=[0, 3], raw_data=b""),
    "packed int4 of an odd size": _tensor(dims=[3], data_type=TensorProto.INT4, raw_data=b"\1"),
}  # fmt: skip
for _name, _content in TENSORS.items():
    case(_name)(lambda tensor=_content: _weighed(tensor))

LOCATIONS = {
    "above": "../secret.bin", "absolute": "/etc/passwd", "a device": "/dev/zero",
    "of NUL": "a\0b", "of 5,000 characters": "x" * 5000, "missing": "gone.bin", "empty": "",
    "a folder": ".", "onnxruntime's memory": "*/_ORT_MEM_ADDR_/*",
}  # fmt: skip


def _external(location, **entries):
    tensor = _tensor(dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, content in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=content)
    return _weighed(tensor)


for _name, _location in LOCATIONS.items():
    case(f"external data {_name}")(lambda location=_location: _external(location))
case("external data of a negative offset")(lambda: _external("gone.bin", offset="-5"))
case("external data of 2^60 bytes")(lambda: _external("gone.bin", length=str(1 << 60)))
case("external data of no number")(lambda: _external("gone.bin", offset="many"))


@case("sparse indices out of range")
def _():
    return _sparse(np.array([99, 100]))


@case("negative sparse indices")
def _():
    return _sparse(np.array([-1, -2]))


@case("a sparse weight of 2^40 elements")
def _():
    return _sparse(np.array([0, 1]), dims=[1 << 40])


@case("a sparse weight of a negative dimension")
def _():
    return _sparse(np.array([0, 1]), dims=[-6])


def _sparse(indices, dims=(2, 3)):
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices), list(dims))
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x")], [value("y")])
    made.graph.sparse_initializer.append(sparse)
    return made


IMPORTS = {"opset 0": 0, "opset -1": -1, "opset 999": 999, "opset 2^62": 1 << 62}
for _name, _version in IMPORTS.items():
    case(_name)(lambda version=_version: model(relu([2]).graph.node, [value("x")], [value("y")],
                                               opset=version))  # fmt: skip


@case("an IR version of 2^62")
def _():
    made = relu([2])
    made.ir_version = 1 << 62
    return made


@case("200,000 entries of metadata")
def _():
    made = relu([2])
    for number in range(200_000):
        made.metadata_props.add(key=str(number), value="v")
    return made


@case("a truncated file")
def _():
    content = relu([2, 3]).SerializeToString()
    return content[: len(content) // 2]


for _name, _content in {"an empty file": b"", "zeros": bytes(1000), "text": b"hello there",
                        "noise": bytes(range(255, 0, -1))}.items():  # fmt: skip
    case(_name)(lambda content=_content: content)
