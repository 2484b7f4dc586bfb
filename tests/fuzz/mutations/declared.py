"""Mutations of what a model declares: shapes, types, attributes, names, weights, versions."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.mutations import extremes
from tests.fuzz.mutations.graph_parts import attributes, graphs, nodes, picked, tensors, values

ELEMENTS = sorted(TensorProto.DataType.values())
NUMBERS = [kind for kind in ELEMENTS if kind not in (TensorProto.UNDEFINED, TensorProto.STRING)]
MOST_RECAST = 100_000
NUMPY_RANK = 64
"""Most dimensions of an array."""
METADATA = (
    "namespace", "pkg.torch.onnx.stack_trace", "pkg.torch.onnx.class_hierarchy",
    "pkg.torch.onnx.name_scopes",
)  # fmt: skip
ATTRIBUTE_KINDS = sorted(onnx.AttributeProto.AttributeType.values())


def size(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes a dimension of a tensor that is declared."""
    value = picked(random, [v for v in values(model) if v.type.HasField("tensor_type")])
    dims = value.type.tensor_type.shape.dim
    match random.randrange(5):
        case 0:
            dims.add().dim_value = extremes.integer(random)
        case 1 if dims:
            del dims[random.randrange(len(dims))]
        case 2 if dims:
            picked(random, dims).dim_param = extremes.text(random)
        case 3 if dims:
            picked(random, dims).Clear()
        case _ if dims:
            picked(random, dims).dim_value = extremes.integer(random)


def element(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes the element type of a tensor that is declared."""
    kind = random.choice((*ELEMENTS, 77, -1)) if random.random() < 0.7 else TensorProto.FLOAT
    picked(random, values(model)).type.tensor_type.elem_type = kind


def input_element(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives an input of the graph another element type, which its nodes may not expect."""
    value = picked(random, model.graph.input)
    value.type.tensor_type.elem_type = random.choice(NUMBERS)


def container(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes a tensor a sequence, an optional, a map, or nothing."""
    value = picked(random, values(model))
    before = onnx.TypeProto.FromString(value.type.SerializeToString())
    value.type.Clear()
    match random.randrange(5):
        case 0:
            value.type.sequence_type.elem_type.CopyFrom(before)
        case 1:
            value.type.optional_type.elem_type.CopyFrom(before)
        case 2:
            value.type.map_type.key_type = random.choice(ELEMENTS)
            value.type.map_type.value_type.CopyFrom(before)
        case 3:
            value.type.sparse_tensor_type.elem_type = random.choice(ELEMENTS)


def attribute(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives an attribute an extreme value."""
    which = picked(random, attributes(model))
    match which.type:
        case onnx.AttributeProto.INTS if which.ints:
            which.ints[random.randrange(len(which.ints))] = extremes.integer(random)
        case onnx.AttributeProto.FLOATS if which.floats:
            which.floats[random.randrange(len(which.floats))] = extremes.floating(random)
        case onnx.AttributeProto.FLOAT:
            which.f = extremes.floating(random)
        case onnx.AttributeProto.STRING:
            which.s = extremes.text(random).encode()
        case _:
            which.i = extremes.integer(random)


def attribute_length(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes a list longer or shorter."""
    which = picked(random, attributes(model))
    entries = which.floats or which.strings or which.ints
    if entries and random.random() < 0.5:
        del entries[random.randrange(len(entries)) :]
    elif entries:
        entries.extend(list(entries) * random.choice((1, 2, 40)))
    else:
        which.ints.extend([extremes.integer(random)] * random.randrange(6))


def attribute_kind(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes an attribute one of another type, or a reference."""
    which = picked(random, attributes(model))
    if random.random() < 0.2:
        which.ref_attr_name = extremes.text(random)
    else:
        which.type = random.choice(ATTRIBUTE_KINDS)


def remove_attribute(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    having = picked(random, [node for node in nodes(model) if node.attribute])
    del having.attribute[random.randrange(len(having.attribute))]


def take_attribute(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives a node an attribute of another node, perhaps of another model."""
    source = picked(random, list(attributes(other if random.random() < 0.5 else model)))
    picked(random, nodes(model)).attribute.add().CopyFrom(source)


def name(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Renames a node, a graph, a tensor in one place, an operator or a domain."""
    text = extremes.text(random)
    match random.randrange(5):
        case 0:
            picked(random, graphs(model)).name = text
        case 1:
            picked(random, values(model)).name = text
        case 2:
            picked(random, nodes(model)).domain = text
        case 3:
            picked(random, nodes(model)).op_type = text
        case _:
            picked(random, nodes(model)).name = text


def metadata(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Adds metadata under a name that exporters use."""
    key = random.choice((*METADATA, extremes.text(random)))
    place = picked(random, [model, *graphs(model), *nodes(model)])
    place.metadata_props.add(key=key, value=random.choice((extremes.text(random), "['a', 'b']")))


def version(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes the opset, or rarely the version of the format."""
    if random.random() < 0.2:
        model.ir_version = random.choice((0, 1, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 99, 1 << 60))
    elif random.random() < 0.8 and model.opset_import:
        known = [*range(1, 28), 0, 999, 1 << 62]
        picked(random, model.opset_import).version = random.choice(known)
    else:
        model.opset_import.add(domain=extremes.text(random), version=random.randint(0, 30))


def weight_type(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    picked(random, tensors(model)).data_type = random.choice(ELEMENTS)


def recast_weight(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives a weight another element type, and as many ones of it as it had values."""
    tensor = picked(random, tensors(model))
    is_small = 0 <= math.prod(tensor.dims) <= MOST_RECAST and len(tensor.dims) <= NUMPY_RANK
    if not is_small or min(tensor.dims, default=0) < 0:
        return
    kind = helper.tensor_dtype_to_np_dtype(random.choice(NUMBERS))
    tensor.CopyFrom(numpy_helper.from_array(np.ones(tensor.dims, kind), tensor.name))


def weight_shape(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes a dimension, turns the shape around, or makes it flat."""
    tensor = picked(random, tensors(model))
    dims = list(tensor.dims)
    match random.randrange(4):
        case 0:
            dims = dims[::-1]
        case 1:
            dims = [1, *dims]
        case 2 if dims:
            dims[random.randrange(len(dims))] = extremes.integer(random)
        case _:
            dims = dims[1:]
    tensor.ClearField("dims")
    tensor.dims.extend(dims)


def weight_data(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes values: they stay as many, or become fewer or more."""
    tensor = picked(random, tensors(model))
    for field in (tensor.float_data, tensor.int32_data, tensor.int64_data):
        if field:
            real = field is tensor.float_data
            value = extremes.floating(random) if real else extremes.integer(random)
            most = 1 << (31 if field is tensor.int32_data else 63)
            field[random.randrange(len(field))] = (
                value if real else max(-most, min(value, most - 1))
            )
            return
    data = bytearray(tensor.raw_data)
    if not data:
        tensor.raw_data = random.randbytes(random.choice((1, 4, 8, 64)))
        return
    width = random.choice((1, 2, 4, 8))
    start = random.randrange(len(data)) // width * width
    fill = random.choice((b"\0", b"\xff", b"\x7f", b"\x80", random.randbytes(1)))
    data[start : start + width] = fill * min(width, len(data) - start)
    if random.random() < 0.1:
        data = data[: random.randrange(len(data))]
    tensor.raw_data = bytes(data)


def outside_data(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Says that the values of a weight lie in a file."""
    tensor = picked(random, tensors(model))
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": extremes.text(random), "offset": str(extremes.integer(random)),
                       "length": str(extremes.integer(random))}.items():  # fmt: skip
        tensor.external_data.add(key=key, value=value)


def sparse_weight(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Stores a weight as values at indices."""
    graph = picked(random, [graph for graph in graphs(model) if graph.initializer])
    place = random.randrange(len(graph.initializer))
    tensor = graph.initializer[place]
    if len(tensor.SerializeToString()) > 2_000:
        return
    indices = [extremes.integer(random) if random.random() < 0.2 else n for n in range(4)]
    index = helper.make_tensor("", TensorProto.INT64, [len(indices)], indices)
    sparse = graph.sparse_initializer.add(dims=tensor.dims)
    sparse.values.CopyFrom(tensor)
    sparse.indices.CopyFrom(index)
    del graph.initializer[place]


MUTATIONS = (
    size, size, size, element, input_element, container, attribute, attribute, attribute, attribute,
    attribute_length, attribute_kind, remove_attribute, take_attribute, name, metadata, version,
    version, weight_type, recast_weight, weight_shape, weight_data, weight_data,
    outside_data, sparse_weight,
)  # fmt: skip
