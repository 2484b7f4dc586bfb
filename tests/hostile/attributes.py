"""Single nodes whose integer attributes are extreme, of every operator that has some."""

from onnx import TensorProto, helper

from tests.hostile.corpus import case, model, value

F, I64, I8, U8, I32 = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8,
                       TensorProto.INT32)  # fmt: skip
IMAGE, KERNEL = ([1, 2, 4, 4], F), ([2, 2, 3, 3], F)
NODES = {
    # operator: (types of the inputs, attributes that are fine, attributes to drive to extremes)
    "GatherND": ([([2, 3], F), ([2, 1], I64)], {}, ["batch_dims"]),
    "LayerNormalization": ([([2, 3, 4], F), ([4], F), ([4], F)], {}, ["axis"]),
    "Softmax": ([([2, 3], F)], {}, ["axis"]),
    "Flatten": ([([2, 3], F)], {}, ["axis"]),
    "Concat": ([([2, 3], F), ([2, 3], F)], {}, ["axis"]),
    "Gather": ([([2, 3], F), ([2], I64)], {}, ["axis"]),
    "GatherElements": ([([2, 3], F), ([2, 3], I64)], {}, ["axis"]),
    "ScatterElements": ([([2, 3], F), ([2, 3], I64), ([2, 3], F)], {}, ["axis"]),
    "ArgMax": ([([2, 3], F)], {}, ["axis"]),
    "Split": ([([2, 3], F)], {"num_outputs": 1}, ["axis", "num_outputs"]),
    "Transpose": ([([2, 3], F)], {}, ["perm"]),
    "Shape": ([([2, 3], F)], {}, ["start", "end"]),
    "Conv": ([IMAGE, KERNEL], {}, ["group", "strides", "dilations", "pads", "kernel_shape"]),
    "ConvTranspose": ([IMAGE, KERNEL], {}, ["group", "strides", "dilations", "pads",
                                            "output_padding"]),
    "MaxPool": ([IMAGE], {"kernel_shape": [2, 2]}, ["kernel_shape", "strides", "dilations",
                                                    "pads"]),
    "AveragePool": ([IMAGE], {"kernel_shape": [2, 2]}, ["kernel_shape", "strides", "pads"]),
    "LpPool": ([IMAGE], {"kernel_shape": [2, 2]}, ["p"]),
    "LRN": ([IMAGE], {"size": 3}, ["size"]),
    "DepthToSpace": ([([1, 4, 2, 2], F)], {"blocksize": 2}, ["blocksize"]),
    "SpaceToDepth": ([IMAGE], {"blocksize": 2}, ["blocksize"]),
    "GroupNormalization": ([IMAGE, ([2], F), ([2], F)], {"num_groups": 2}, ["num_groups"]),
    "DequantizeLinear": ([([8], I8), ([8], F)], {}, ["axis"]),
    "QuantizeLinear": ([([8], F), ([8], F)], {}, ["axis"]),
    "LSTM": ([([3, 1, 2], F), ([1, 16, 2], F), ([1, 16, 4], F)], {"hidden_size": 4},
             ["hidden_size"]),
    "EyeLike": ([([2, 3], F)], {}, ["k", "dtype"]),
    "Cast": ([([2, 3], F)], {"to": 1}, ["to"]),
    "Mod": ([([2, 3], I64), ([2, 3], I64)], {}, ["fmod"]),
    "ReverseSequence": ([([4, 3], F), ([3], I64)], {}, ["batch_axis", "time_axis"]),
    "CenterCropPad": ([([4, 3], F), ([2], I64)], {}, ["axes"]),
    "RoiAlign": ([IMAGE, ([1, 4], F), ([1], I64)], {}, ["output_height", "output_width",
                                                        "sampling_ratio"]),
    "OneHot": ([([4], I64), ([], I64), ([2], F)], {}, ["axis"]),
    "TopK": ([([4, 3], F), ([1], I64)], {}, ["axis"]),
    "Compress": ([([4, 3], F), ([4], TensorProto.BOOL)], {}, ["axis"]),
    "Unique": ([([4, 3], F)], {}, ["axis"]),
    "DFT": ([([1, 4, 1], F)], {}, ["axis"]),
    "Hardmax": ([([4, 3], F)], {}, ["axis"]),
    "LpNormalization": ([([4, 3], F)], {}, ["axis", "p"]),
    "ConvInteger": ([([1, 2, 4, 4], U8), ([2, 2, 3, 3], I8)], {}, ["group", "pads"]),
}  # fmt: skip
OPSETS = {"DFT": 17}
EXTREMES = {"the largest": (1 << 63) - 1, "the least": -(1 << 63), "2^31": 1 << 31, "0": 0}
OF_AXES = {"the largest": (1 << 63) - 1, "-50": -50}
AXES = {"axis", "batch_dims", "perm", "axes", "batch_axis", "time_axis"}
LISTS = {"perm", "strides", "dilations", "pads", "kernel_shape", "axes", "output_padding"}


def _node(op_type, types, attributes):
    inputs = [value(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(types)]
    node = helper.make_node(op_type, [v.name for v in inputs], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", _result(op_type, types[0][1]), None)
    return model([node], inputs, [output], opset=OPSETS.get(op_type, 18))


def _result(op_type, first):
    results = {"Shape": I64, "ArgMax": I64, "DequantizeLinear": F, "QuantizeLinear": U8,
               "ConvInteger": I32, "OneHot": F}  # fmt: skip
    return results.get(op_type, first)


for _op, (_types, _fine, _names) in NODES.items():
    for _name in _names:
        for _text, _extreme in (OF_AXES if _name in AXES else EXTREMES).items():
            _value = [_extreme] * (4 if _name == "pads" else 2) if _name in LISTS else _extreme
            case(f"{_op} with {_text} {_name}")(
                lambda o=_op, t=_types, a={**_fine, _name: _value}: _node(o, t, a)
            )
