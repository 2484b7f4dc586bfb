"""Proves, node by node, that no float operation of a graph rounds: one result on every machine.

The numbers of a tensor are integers from `low` to `high` times a power of two. A sum whose terms
are such integers is exact in float32, in any order and with any fusion, as long as no subset of the
terms exceeds 2^24. Bounds are Python's integers, or of int64 that cannot overflow. This module
needs nothing of tracer: it reads the graph alone, and trusts no shape in it.

What runtimes make of a quantised graph is part of the proof. They compute a layer between
DequantizeLinear and QuantizeLinear in integers, and multiply the sum, as a float, by the quotient
of scales: exact as well, since scales are powers of two. They ignore the scale of the bias, so it
must be the product of the others. Processors without VNNI add pairs of products in 16 bits, so two
weights of int8 must not exceed 128 together. Some kernels add the zero point before they round, so
it must be even where halves may occur. Kernels of a quantised Add or Mul round halves in their own
ways, so that their results must need no rounding; and as some runtimes leave out the quantiser in
front of an Add, it must round no halves. Two quantisers in a row are merged, so they must be equal.

The proof holds for finite inputs, integers neither divided by 0 nor shifted by all their bits, and
runtimes that add the products of a convolution (no Winograd, Fourier, float16) and round inputs as
ONNX says, halves to even: OpenVINO adds zero points first. Quantised zeros have either sign.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

LIMIT = 1 << 24  # float32 holds all integers up to this
_SCALES = 40  # from 2^-40 to 2^40, products and quotients of three stay normal floats
_PAIR = 128  # of two weights: times activations of 255, they stay in 16 bits
_NONE = 1 << 20  # the exponent of a zero: above all others
_FLOAT, _FLOATS = onnx.TensorProto.FLOAT, frozenset({1, 10, 11, 16, *range(17, 21), 23})
_TWINS = {("com.microsoft", "QuantizeLinear"), ("com.microsoft", "DequantizeLinear")}
_COMPARING = ("ArgMax", "ArgMin", "ConstantOfShape", "Equal", "Greater", "Less", "Shape", "Size")
_INTEGER = ("Abs", "Add", "And", "BitShift", "Cast", "Concat", "CumSum", "Div", "GreaterOrEqual",
            "LessOrEqual", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range",
            "ReduceProd", "Sign", "Sub", "Where", "Xor")  # fmt: skip
_RANGES = {np.dtype(kind): (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in "BbHh"}


@dataclass(frozen=True, slots=True)
class Exactness:
    """What is proved of a graph, by the names of nodes (or of their first outputs) and tensors.

    `inexact` nodes may round, for a reason each; `after` are nodes that read their results, and all
    others `exact`. `outputs` says which are exact. `tensors` are exact where the proof ends.
    """

    exact: tuple[str, ...]
    inexact: dict[str, str]
    after: tuple[str, ...]
    outputs: dict[str, bool]
    tensors: tuple[str, ...]


class _InexactError(Exception):
    """Why a node may round."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Integers from `low` to `high` times 2^`exponent`.

    `stored` are exponent, zero point and type of the DequantizeLinear that they come from. The
    result of an Add or a Mul that runtimes compute in integers is `fused`. Numbers are 0 or odd
    multiples of 2^k, for the k in `odd` if it is known. A quantiser may have rounded `halves`.
    `channels` have a unit of their own each: those of the sums of a layer.
    """

    exponent: int
    low: int
    high: int
    stored: tuple[int, int, str] | None = None
    fused: bool = False
    odd: frozenset[int] | None = None
    halves: bool = False
    channels: "tuple[_Numbers, ...]" = ()

    def __post_init__(self) -> None:
        if self.exponent < -126 or self.extent.bit_length() + self.exponent > 126:
            raise _InexactError("numbers are too large or too small for float32")

    @property
    def extent(self) -> int:
        return max(abs(self.low), abs(self.high))

    def on(self, exponent: int) -> "_Numbers":
        shift = self.exponent - exponent
        return _Numbers(exponent, self.low << shift, self.high << shift)

    def within_floats(self) -> "_Numbers":
        """Returns these numbers. Raises _InexactError where float32 does not hold all of them."""
        if self.extent > LIMIT:
            raise _InexactError(f"sums reach {self.extent:,} times 2^{self.exponent}, above 2^24")
        return self


_GIVEN = _Numbers(0, 0, 0)
"""Stands for numbers whose bits are given, such as inputs, which may only be moved and rounded."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """Real numbers; the int8 that are stored for them, and the scale of each, if there are."""

    values: Any
    int8: Any = None
    scale: Any = None

    def changed(self, change: Callable[[Any], Any]) -> "_Constant":
        parts = (self.values, self.int8, self.scale)
        return _Constant(*(None if each is None else change(each) for each in parts))


def prove(proto: onnx.ModelProto) -> Exactness:
    """Proves what it can of the main graph of a model, whose weights are in it."""
    graph = _Graph(proto)
    for node in graph.nodes:
        graph.visit(node)
    outputs = {value.name: value.name not in graph.lost for value in proto.graph.output}
    found = tuple(graph.exact), graph.inexact, tuple(graph.after)
    return Exactness(*found, outputs, tuple(dict.fromkeys(graph.ends)))


def _exponent_of(scale: Any) -> int:
    """Returns k for a scale of 2^k."""
    mantissa, exponent = math.frexp(float(scale))
    if scale.dtype != np.float32 or mantissa != 0.5:
        raise _InexactError(f"its scale {float(scale):.6g} ({scale.dtype}) is no power of two")
    if abs(exponent - 1) > _SCALES:
        raise _InexactError(f"its scale 2^{exponent - 1} is outside 2^-{_SCALES} to 2^{_SCALES}")
    return exponent - 1


def _lowest_bits(values: Any) -> Any:
    """Returns the exponents of the lowest bits of float64 numbers."""
    mantissas, exponents = np.frexp(values)
    integers = np.ldexp(mantissas, 53).astype(np.int64)
    _, ends = np.frexp((integers & -integers).astype(np.float64))
    return np.where(integers == 0, _NONE, exponents.astype(np.int64) - 54 + ends)


def _union(parts: Sequence[_Numbers]) -> _Numbers:
    """Returns numbers that contain all of these."""
    if any(each is _GIVEN for each in parts):
        return _GIVEN
    exponent = min(each.exponent for each in parts)
    odd = [each.odd for each in parts if each.odd is not None]
    return _Numbers(
        exponent,
        min(each.on(exponent).low for each in parts),
        max(each.on(exponent).high for each in parts),
        parts[0].stored if len({each.stored for each in parts}) == 1 else None,
        any(each.fused for each in parts),
        frozenset[int]().union(*odd) if len(odd) == len(parts) else None,
        any(each.halves for each in parts),
    )


def _stored_numbers(constant: _Constant) -> _Numbers:
    """Returns numbers that contain those of a constant."""
    exponent = int(_lowest_bits(constant.values).min(initial=_NONE))
    exponent = 0 if exponent == _NONE else exponent
    extremes = constant.values.min(initial=0), constant.values.max(initial=0)
    low, high = (int(math.ldexp(end, -exponent)) for end in extremes)
    stored = None if constant.scale is None else (exponent, 0, "constant")
    return _Numbers(exponent, low, high, stored).within_floats()


def _product(a: _Numbers, b: _Numbers) -> _Numbers:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return _Numbers(a.exponent + b.exponent, min(corners), max(corners)).within_floats()


def _option(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


class _Graph:
    """What is known of the tensors so far. `lost` tensors may differ between machines."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.known = {value.name: _GIVEN for value in proto.graph.input}
        self.constants, self.arrays = dict[str, _Constant](), dict[str, Any]()
        self.lost, self.inexact = set[str](), dict[str, str]()
        self.exact, self.after, self.ends = list[str](), list[str](), list[str]()
        plain = onnx.ModelProto()
        plain.CopyFrom(proto)
        graph, self.nodes = plain.graph, plain.graph.node
        for node in self.nodes:
            node.domain = "" if (node.domain, node.op_type) in _TWINS else node.domain
        for weight in graph.initializer:
            if weight.name not in self.known:  # a feed may replace weights that are inputs
                self.store(weight.name, numpy_helper.to_array(weight))
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(plain, data_prop=True).graph
        values = (*inferred.value_info, *inferred.input, *inferred.output)
        self.types = {v.name: v.type.tensor_type.elem_type for v in values}
        self.types |= {weight.name: weight.data_type for weight in graph.initializer}
        self.shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}

    def store(self, name: str, array: Any) -> None:
        """Makes a stored tensor known."""
        self.arrays[name] = array
        if array.dtype == np.float32:
            self.constants[name] = _Constant(array.astype(np.float64))

    def visit(self, node: onnx.NodeProto) -> None:
        """Proves one node, or tells why not."""
        name = node.name or node.output[0]
        is_after = any(each in self.lost for each in node.input) and node.op_type != "Shape"
        try:
            made = _GIVEN if is_after else self._result_of(node)
        except (_InexactError, ArithmeticError, LookupError, TypeError, ValueError) as reason:
            self.inexact[name] = str(reason)
        else:
            (self.after if is_after else self.exact).append(name)
            count = 0 if is_after else len(node.output) if node.op_type == "Split" else 1
            self.lost.update(filter(None, node.output[count:]))
            if node.output[0] not in self.constants:
                self.known.update(dict.fromkeys(filter(None, node.output[:count]), made))
        if is_after or name in self.inexact:
            self.lost.update(filter(None, node.output))
            self.ends += [e for e in node.input if self.known.get(e, _GIVEN) is not _GIVEN]

    def _result_of(self, node: onnx.NodeProto) -> _Numbers:
        kinds = {self.types.get(name) or _FLOAT for name in (*node.input, *node.output) if name}
        has_floats = not _FLOATS.isdisjoint(kinds) or bool(_option(node, "fmod", 0))
        is_integer = not has_floats and node.op_type.removeprefix("Bitwise") in _INTEGER
        is_plain = is_integer or node.op_type in _COMPARING
        if node.domain not in ("", "ai.onnx") or not (is_plain or node.op_type in _RULES):
            why = "rounds, and" if has_floats else "of integers may be computed by"
            raise _InexactError(f"{node.op_type} {why} each library in its own way")
        for name in filter(None, node.input if node.op_type != "Shape" else ()):
            if name not in self.known and name not in self.arrays and name not in self.constants:
                raise _InexactError(f"nothing is known of '{name}'")
        return _GIVEN if is_plain else _RULES[node.op_type](self, node)

    def numbers(self, name: str) -> _Numbers:
        """Returns the numbers of a tensor. Raises _InexactError where they are on no grid."""
        if name in self.constants:
            return _stored_numbers(self.constants[name])
        if (found := self.known.get(name, _GIVEN)) is _GIVEN:
            raise _InexactError(f"'{name}' is not rounded to small multiples of a power of two")
        return found

    def any_numbers(self, name: str) -> _Numbers:
        return self.known.get(name) or self.numbers(name)

    def array(self, node: onnx.NodeProto, index: int, default: Any = None) -> Any:
        """Returns a stored input of a node, or `default` where it is left out."""
        if len(node.input) <= index or not node.input[index]:
            return default
        if node.input[index] not in self.arrays:
            raise _InexactError(f"its input '{node.input[index]}' is not stored")
        return self.arrays[node.input[index]]


_Rule = Callable[[_Graph, onnx.NodeProto], _Numbers]
_RULES: dict[str, _Rule] = {}  # what is proved of each operator


def _rule(*op_types: str) -> Callable[[_Rule], _Rule]:
    """Makes a function the rule of some operators."""

    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(op_types, rule))
        return rule

    return register


@_rule("Constant")
def _constant(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    if node.attribute[0].name == "value":
        graph.store(node.output[0], numpy_helper.to_array(node.attribute[0].t))
    return _GIVEN


@_rule("QuantizeLinear")
def _quantized(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """x / 2^k is exact, and the nearest integer is defined, half to even."""
    scale, zeros = graph.array(node, 1), graph.array(node, 2, np.zeros((), np.uint8))
    if scale.size != 1 or zeros.dtype not in _RANGES or _option(node, "output_dtype", 0):
        raise _InexactError("its result does not have one stored scale, and zero point of 8 bits")
    exponent, zero, kind = _exponent_of(scale.reshape(())), int(zeros.reshape(())), zeros.dtype
    (least, most), x = _RANGES[kind], graph.any_numbers(node.input[0])
    if x is _GIVEN:
        return _Numbers(0, least, most)
    if x.stored is not None and x.stored != (exponent, zero, str(kind)):
        raise _InexactError("it quantises again, otherwise, what was quantised")
    if x.fused and x.exponent < exponent:
        raise _InexactError("its scale is coarser than those of what was added or multiplied")
    halves = x.exponent < exponent and (x.odd is None or exponent - 1 in x.odd)
    if halves and zero % 2:
        raise _InexactError(f"its zero point {zero} is odd: halves round either way")
    for each in (x.channels or (x,)) if zero else ():
        fine = min(each.exponent, exponent)
        _Numbers(fine, 0, each.on(fine).extent + (abs(zero) << exponent - fine)).within_floats()
    unit = Fraction(2) ** (x.exponent - exponent)
    low, high = (min(max(round(e * unit) + zero, least), most) for e in (x.low, x.high))
    return _Numbers(0, low, high, halves=halves)


@_rule("DequantizeLinear")
def _dequantized(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """(q - zero) * 2^k is exact. What is stored becomes a constant."""
    name, scale = node.input[0], graph.array(node, 1)
    if _option(node, "block_size", 0):
        raise _InexactError("it has a scale for each block")
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(graph.types[name]))
    zeros = graph.array(node, 2, np.zeros(scale.shape, kind))
    if name not in graph.arrays:
        if scale.size != 1 or zeros.size != 1 or kind not in _RANGES:
            raise _InexactError("its numbers are no small integers with one scale and zero point")
        exponent, zero = _exponent_of(scale.reshape(())), int(zeros.reshape(()))
        x = graph.known[name]
        low, high = _RANGES[kind] if x is _GIVEN else (x.low, x.high)
        made = _Numbers(exponent, low - zero, high - zero, (exponent, zero, str(kind)))
        return replace(made, halves=x.halves)
    stored, shape = graph.arrays[name], [1] * graph.arrays[name].ndim
    if scale.size > 1:
        shape[_option(node, "axis", 1)] = scale.size
    for each in scale.reshape(-1):
        _exponent_of(each)
    if stored.dtype == np.int32 and zeros.any():
        raise _InexactError("its int32 have a zero point, which kernels ignore in a bias")
    steps = np.broadcast_to(scale.reshape(shape).astype(np.float64), stored.shape)
    offsets = np.broadcast_to(zeros, scale.shape).reshape(shape).astype(np.float64)
    integers = stored.astype(np.float64) - offsets
    if np.abs(integers).max(initial=0) > LIMIT:
        raise _InexactError("its integers exceed 2^24")
    int8 = stored if stored.dtype == np.int8 else None
    graph.constants[node.output[0]] = _Constant(integers * steps, int8, steps)
    return _GIVEN


@_rule(
    "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool",
    "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "GatherElements", "GatherND",
)  # fmt: skip
def _of_elements(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """Elements stay what they are, and at most some are left out."""
    name = node.input[0]
    is_other = name in graph.arrays and name not in graph.constants
    return _GIVEN if is_other else graph.any_numbers(name)


@_rule("Concat")
def _of_parts(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    return _union([graph.any_numbers(name) for name in node.input])


@_rule("Pad")
def _padded(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    x, mode = graph.any_numbers(node.input[0]), _option(node, "mode", b"constant")
    if mode == b"constant" and graph.array(node, 2, np.float32(_option(node, "value", 0.0))).any():
        raise _InexactError("it pads with other numbers than 0")
    return x if x is _GIVEN else replace(x, low=min(x.low, 0), high=max(x.high, 0), stored=None)


@_rule("Relu", "Clip")
def _clipped(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    x = graph.any_numbers(node.input[0])
    if x is _GIVEN:
        return x
    if node.op_type == "Relu":
        return replace(x, low=max(x.low, 0), high=max(x.high, 0), stored=None)
    ends = [
        float(graph.array(node, 1 + n, np.float32(_option(node, part, usual))).reshape(()))
        for n, (part, usual) in enumerate((("min", -math.inf), ("max", math.inf)))
    ]
    finite = np.array([end for end in ends if math.isfinite(end)])
    exponent = int(_lowest_bits(finite).min(initial=x.exponent))
    wide, (least, most) = x.on(exponent), (math.ldexp(end, -exponent) for end in ends)
    low, high = (int(min(max(end, least), most)) for end in (wide.low, wide.high))
    return _Numbers(exponent, low, high, None, x.fused)


@_rule("Add", "Sub")
def _added(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """Both numbers are integers of the finer unit, and so is their sum."""
    parts = [graph.numbers(name) for name in node.input]
    exponent, fused = min(each.exponent for each in parts), all(each.stored for each in parts)
    a, b = (each.on(exponent) for each in parts)
    if fused and any(each.halves for each in parts):
        raise _InexactError("it adds what a quantiser rounded, maybe from halves")
    _Numbers(exponent, 0, a.extent + b.extent).within_floats()
    ends = (b.low, b.high) if node.op_type == "Add" else (-b.high, -b.low)
    return _Numbers(exponent, a.low + ends[0], a.high + ends[1], fused=fused)


@_rule("Mul")
def _multiplied(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    a, b = (graph.numbers(name) for name in node.input)
    return replace(_product(a, b), fused=bool(a.stored and b.stored))


@_rule("LeakyRelu", "PRelu")
def _sloped(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """Numbers below 0 are multiplied with a slope: the product is exact in float32."""
    x, slope = graph.numbers(node.input[0]), _Constant(np.array(_option(node, "alpha", 0.01)))
    slopes = graph.numbers(node.input[1]) if node.op_type == "PRelu" else _stored_numbers(slope)
    below = _product(replace(x, low=min(x.low, 0), high=min(x.high, 0)), slopes)
    return _union([below, replace(x, low=max(x.low, 0), high=max(x.high, 0), stored=None)])


@_rule("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum")
def _averaged(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """The sum is exact, and so is its quotient by a power of two."""
    x, shape = graph.numbers(node.input[0]), graph.shapes.get(node.input[0], [])
    if node.op_type == "AveragePool":
        sizes = _option(node, "kernel_shape", [])
        pads = any(_option(node, "pads", [])) or _option(node, "auto_pad", b"NOTSET") != b"NOTSET"
        if _option(node, "ceil_mode", 0) or (pads and not _option(node, "count_include_pad", 0)):
            raise _InexactError("windows at the edge have other numbers of terms")
    elif node.op_type == "GlobalAveragePool":
        sizes = shape[2:]
    else:
        axes = np.asarray(graph.array(node, 1, _option(node, "axes", []))).reshape(-1).tolist()
        sizes = [shape[axis] for axis in axes or range(len(shape))]
    count, is_sum = math.prod(sizes) if sizes else 0, node.op_type == "ReduceSum"
    if not count:
        raise _InexactError("the number of its terms is not known")
    if not is_sum and count & (count - 1):
        raise _InexactError(f"it divides by {count}, no power of two")
    total = _Numbers(x.exponent, count * min(x.low, 0), count * max(x.high, 0)).within_floats()
    return replace(total, exponent=x.exponent - (0 if is_sum else count.bit_length() - 1))


@_rule("Conv", "Gemm", "MatMul")
def _summed(graph: _Graph, node: onnx.NodeProto) -> _Numbers:
    """A layer with stored weights: no subset of the terms of a sum exceeds 2^24 units."""
    x, weights = graph.numbers(node.input[0]), graph.constants.get(node.input[1])
    if weights is None:
        raise _InexactError("its weights are not stored")
    rows = _rows(node, weights)
    if x.stored is not None and rows.int8 is not None:
        for sign in (1, -1):
            largest = np.sort(np.maximum(sign * rows.int8.astype(np.int16), 0), axis=1)[:, -2:]
            if largest.sum(1).max(initial=0) > _PAIR:
                raise _InexactError("pairs of products exceed 16 bits on processors without VNNI")
    units = _lowest_bits(rows.values).min(1, initial=_NONE)
    units = np.where(units == _NONE, 0, units)
    integers = np.ldexp(rows.values, -units[:, None])
    if np.abs(integers).max(initial=0) * x.extent > LIMIT:
        raise _InexactError("a product exceeds 2^24 units")
    ends = [integers.astype(np.int64) * end for end in (x.low, x.high)]
    low, high = (np.minimum(*ends).clip(max=0).sum(1), np.maximum(*ends).clip(0).sum(1))
    sums = [
        _Numbers(unit + x.exponent, least, most)
        for unit, least, most in zip(units.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    if len(node.input) > 2 and node.input[2]:
        sums = _with_bias(graph, node, x, rows, sums)
    return replace(_union([each.within_floats() for each in sums]), channels=tuple(sums))


def _rows(node: onnx.NodeProto, weights: _Constant) -> _Constant:
    """Returns the weights of a layer as matrices (outputs, terms)."""
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    if any(_option(node, name, usual) != usual for name, usual in plain.items()):
        raise _InexactError("it scales or transposes its operands")
    if node.op_type == "Conv":
        return weights.changed(lambda each: each.reshape(len(each), -1))
    if weights.values.ndim != 2:
        raise _InexactError("its weights are no matrix")
    return weights if _option(node, "transB", 0) else weights.changed(np.transpose)


def _with_bias(
    graph: _Graph, node: onnx.NodeProto, x: _Numbers, rows: _Constant, sums: list[_Numbers]
) -> list[_Numbers]:
    """Returns the sums (M) with a bias as a term of each."""
    bias = graph.constants.get(node.input[2])
    if bias is None or bias.values.shape[-1:] != (len(sums),) or bias.values.size != len(sums):
        raise _InexactError("its bias is not stored, one number for each channel")
    values = bias.values.reshape(-1)
    if x.stored is not None and rows.scale is not None:
        products = np.ldexp(rows.scale[:, 0], x.exponent)
        if (values / products % 1 != 0).any():
            raise _InexactError("its bias is no multiple of the product of the scales")
        if bias.scale is not None and (bias.scale.reshape(-1) != products).any():
            raise _InexactError("the scale of its bias is not the product of the scales")
    result = []
    for each, value, end in zip(sums, values.tolist(), _lowest_bits(values).tolist(), strict=True):
        wide = each.on(min(each.exponent, end))
        term = int(math.ldexp(value, -wide.exponent))
        odd = frozenset([end]) if end < each.exponent else None
        low, high = wide.low + min(term, 0), wide.high + max(term, 0)
        result.append(replace(wide, low=low, high=high, odd=odd))
    return result
