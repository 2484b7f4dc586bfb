"""Canonical names of operators across frameworks, and which operator may be folded into which."""

import re
from functools import lru_cache

_AFFIXES = re.compile(r"^aten::_?|^aten_|^(fused|nhwc|nchwc|qlinear|dynamicquantize|mkldnn_)(?=\w)")
_ENDINGS = re.compile(r"(function|_backward)$|_+$")
_DIMENSIONS = re.compile(r"_?(1d|2d|3d|nd(?![a-z]))")

_ALIASES = {
    "convolution": "conv", "convinteger": "conv",
    "deconvolution": "convtranspose", "conv_transpose": "convtranspose",
    "gemm": "matmul", "addmm": "matmul", "linear": "matmul", "mm": "matmul", "bmm": "matmul",
    "baddbmm": "matmul", "matmulinteger": "matmul", "dense": "matmul",
    "batch_norm": "batchnormalization", "native_batch_norm": "batchnormalization",
    "fixedbatchnormalization": "batchnormalization",
    "layer_norm": "layernormalization", "native_layer_norm": "layernormalization",
    "clippedrelu": "clip", "relu6": "clip", "hardtanh": "clip", "clamp": "clip",
    "max_pool": "maxpool", "maxpooling": "maxpool", "max_pool_with_indices": "maxpool",
    "avg_pool": "averagepool", "averagepooling": "averagepool",
    "adaptive_avg_pool": "averagepool", "globalaveragepool": "averagepool", "mean": "averagepool",
    "reducemean": "averagepool", "average": "averagepool",
    "flatten": "reshape", "view": "reshape", "squeeze": "reshape", "unsqueeze": "reshape",
    "expanddims": "reshape", "unsafe_view": "reshape",
    "permute": "transpose", "t": "transpose", "sum": "add",
    "concatenation": "concat", "cat": "concat", "embedid": "gather", "embedding": "gather",
    "scaled_dot_product_attention": "attention", "logsoftmax": "logsoftmax",
    "log_softmax": "logsoftmax", "multiply": "mul", "division": "div",
}  # fmt: skip
"""ONNX names of framework operators, by their name without affixes."""

ANY = frozenset({"*"})
_LINEAR = frozenset({"conv", "convtranspose", "matmul"})
_COMPUTING = _LINEAR | {"batchnormalization", "add", "mul", "layernormalization", "attention"}

FOLDED = {
    "batchnormalization": _LINEAR,
    "add": _LINEAR | {"batchnormalization"},
    "mul": _LINEAR | {"batchnormalization", "matmul", "averagepool"},
    "div": _LINEAR,
    "relu": _COMPUTING, "leakyrelu": _COMPUTING, "sigmoid": _COMPUTING, "tanh": _COMPUTING,
    "clip": _COMPUTING, "hardsigmoid": _COMPUTING, "hardswish": _COMPUTING, "silu": _COMPUTING,
    "gelu": _COMPUTING, "softmax": _COMPUTING,
    "pad": _LINEAR | {"maxpool", "averagepool"},
    "reshape": ANY, "transpose": ANY, "identity": ANY, "dropout": ANY, "cast": ANY,
    "contiguous": ANY, "clone": ANY, "copy": ANY, "detach": ANY, "to": ANY, "slice": ANY,
    "constant": ANY, "shape": ANY, "expand": ANY, "gather": ANY, "concat": ANY,
    "quantizelinear": ANY, "dequantizelinear": ANY,
}  # fmt: skip
"""Operators that a runtime or exporter folds into a neighbour, and into which. It tells where the
work of an operator went that only one side has."""

BACKWARD = " (backward)"
"""Ends the `op_type` of the row of an operator's backward pass."""

_CONVOLUTIONS = frozenset({"conv", "convtranspose"})


@lru_cache(maxsize=1000)
def canonical(op_type: str) -> str:
    """Returns one name for an operator: `conv` for `Conv`, `aten::conv2d`, `Convolution2DFunction`.

    A backward pass keeps its suffix: it is another layer than its forward pass.
    """
    forward = op_type.removesuffix(BACKWARD)
    name = _ENDINGS.sub("", forward.lower())
    name = _DIMENSIONS.sub("", _AFFIXES.sub("", name))
    name = _ENDINGS.sub("", name)
    return _ALIASES.get(name, name) + op_type[len(forward) :]


def is_convolution(op_type: str) -> bool:
    """Returns whether any of the operators joined by `+` is a convolution, forward or backward."""
    names = (canonical(name).removesuffix(BACKWARD) for name in op_type.split("+"))
    return any(name in _CONVOLUTIONS for name in names)


def may_fold(op: str, host: str) -> bool:
    """Returns whether `op` may be folded into a neighbour `host`; both names are canonical."""
    hosts = FOLDED.get(op, frozenset())
    return hosts is ANY or host in hosts
