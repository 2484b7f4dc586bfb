"""Find the parameters of each node: constant tensors that it combines with an activation.

A weight may be stored (an initializer, a Constant node), generated (ConstantOfShape, as in small
test models) or derived (transposed, dequantised). A derived tensor counts as its source, at the
bits of its numbers where a graph quantises it. What an exporter marked as a parameter is one, and
what it marked otherwise is none; without a mark, the input that reads a tensor decides.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx

from tracer.accumulators.engine.tensor_scales import ELEMENTS_KEPT
from tracer.accumulators.engine.value_ranges import StoredValues, ValueRanges
from tracer.analyzers.cost.count import Facts, Operand, Operation, find_rule, known_sum, rule_of
from tracer.graph import operators, provenance, tensor_type
from tracer.graph.model import Address, Model, Node, Scope, bodies
from tracer.graph.shape_inference import TensorTypes
from tracer.support.types import Array

_FLOAT_INPUTS: Mapping[tuple[int | None, int | None], str] = {
    # (exponent bits, mantissa bits): the type of ONNX with these
    (8, 23): "float32", (5, 10): "float16", (8, 7): "bfloat16", (4, 3): "float8_e4m3fn",
    (5, 2): "float8_e5m2", (2, 1): "float4e2m1",
}  # fmt: skip


def _of_thresholds(node: Node, thresholds: Array | None) -> str | None:
    """The type that an attribute names, else the one that counts of thresholds have."""
    named = next((a.s.decode() for a in node.proto.attribute if a.name == "out_dtype"), "")
    if named.upper() in ("BIPOLAR", "BINARY"):
        return "int1" if named.upper() == "BIPOLAR" else "uint1"
    if named.upper().startswith(("INT", "UINT")) and named[-1:].isdigit():
        return named.lower()
    if thresholds is None or not thresholds.ndim:
        return None
    return f"uint{int(thresholds.shape[-1]).bit_length()}"


def _bits(value: Array | None) -> int | None:
    if value is None or not value.size or not 0 < float(value.max()) <= 64:
        return None
    return math.ceil(float(value.max()))


_FOLLOWED = ELEMENTS_KEPT | {"Clip", "DequantizeLinear"}


class QuantizedTypes:
    """The types that the elements of a model's tensors have as factors of a product.

    Dequantised elements have the type before DequantizeLinear, also behind operators that only move
    them. Integers that a Clip limits have the bits that its limits need, as `int2`: so QCDQ models
    store fewer than 8 bits. What QONNX's Quant returns has the type that it rounds to.
    """

    def __init__(self, model: Model, types: TensorTypes) -> None:
        self._types = types
        self._flow = model.dataflow
        self._stored = StoredValues(model)
        self._ranges = ValueRanges(model, self._stored)
        self._passed_on: dict[Address, str | None] = {}
        for node in model.nodes:  # makers come first
            rounds = operators.is_qonnx_quantizer(node.domain, node.op_type)
            if rounds or node.standard_type in _FOLLOWED:
                self._passed_on.update(dict.fromkeys(self._flow.outputs_of(node), self._by(node)))

    def of(self, name: str, scope: Scope) -> str | None:
        """Returns the type of a tensor's elements; None where unknown, or no kind of number."""
        address = self._flow.address(name, scope)
        if address in self._passed_on:
            return self._passed_on[address]
        return self.declared(name, scope)

    def bits(self, name: str, scope: Scope) -> int | None:
        """Returns the bits of each element; None where the type is unknown."""
        dtype = self.of(name, scope)
        return None if dtype is None else width(dtype)

    def declared(self, name: str, scope: Scope) -> str | None:
        """Returns the type that ONNX gives a tensor; None where unknown, or no kind of number."""
        tensor = self._types.of(name, scope)
        is_number = tensor is not None and ("float" in tensor.dtype or is_integer(tensor.dtype))
        return tensor.dtype if tensor is not None and is_number else None

    def _by(self, node: Node) -> str | None:
        """Returns the type of the elements that a node passes on."""
        if operators.is_qonnx_quantizer(node.domain, node.op_type):
            return self._rounded(node) or self.declared(node.outputs[0], node.scope)
        moved = [name for name in node.inputs if name]
        moved = moved if node.op_type == "Concat" else moved[:1]
        dtypes = [self.of(name, node.scope) for name in moved]
        declared = self.declared(node.outputs[0], node.scope)
        if declared is not None and is_integer(declared):
            is_narrow = node.op_type == "Clip" or declared not in dtypes
            return self._limited(node, declared) if is_narrow else declared
        if node.op_type == "Clip":
            return declared
        floats = [each for each in dtypes if each is None or not is_integer(each)]
        return floats[0] if floats else max(filter(None, dtypes), key=width, default=None)

    def _rounded(self, node: Node) -> str | None:
        """Returns the type that a node of QONNX rounds to; None where its bits are not stored.

        A signed number of one bit is -1 or 1. The sign of Trunc in version 1, which has no
        attribute for it, is that of a signed number. Fractions of a bit are rounded up.
        """

        def stored(index: int) -> Array | None:
            name = node.inputs[index] if index < len(node.inputs) else ""
            return self._stored.value(name, node.scope) if name else None

        match node.op_type:
            case "BipolarQuant":
                return "int1"
            case "MultiThreshold":
                return _of_thresholds(node, stored(1))
            case "FloatQuant":
                exponent, mantissa = (_bits(stored(index)) for index in (2, 3))
                return _FLOAT_INPUTS.get((exponent, mantissa))
        bits = _bits(stored(max(4, len(node.inputs) - 1) if node.op_type == "Trunc" else 3))
        signed = next((a.i for a in node.proto.attribute if a.name == "signed"), 1)
        return None if bits is None else f"{'int' if signed else 'uint'}{bits}"

    def _limited(self, node: Node, declared: str) -> str:
        """Returns the type that holds the integers of a node's output, as `int2` or `uint2`."""
        try:
            found = self._ranges.of(node.outputs[0], node.scope)
        except IndexError:  # fewer or more inputs than an operator has
            return declared
        if not math.isfinite(found.low) or not math.isfinite(found.high):
            return declared
        low, high = int(found.low), int(found.high)
        if low >= 0:
            return f"uint{max(1, high.bit_length())}"
        return f"int{1 + max((-low - 1).bit_length(), max(high, 0).bit_length())}"


def is_integer(dtype: str) -> bool:
    """Returns whether a type is one of integers, of any width: `int2`, `uint8`."""
    return dtype.startswith(("int", "uint"))


def width(dtype: str) -> int:
    """Returns the bits of a type of numbers, also of integers that ONNX has no type of: `int3`."""
    prefix = dtype.rstrip("0123456789")
    return int(dtype[len(prefix) :]) if is_integer(dtype) else tensor_type.bits_of(dtype) or 0


_QUANTIZING = operators.QUANTIZERS | {"QuantizeLinear", "Clip", "DequantizeLinear"}
"""Operators whose result has fewer bits than the weight has as it is stored."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored tensor: number of weights, bytes at their width; None is unknown.

    `marked` is whether its exporter says that it is a parameter. `named` is whether it has a name
    of torch's state_dict, None in other models. `generated` tensors are computed.
    """

    size: int | None
    nbytes: int | None
    dtype: str | None
    rank: int | None
    marked: bool | None = None
    named: bool | None = None
    generated: bool = False

    def narrowed(self, bits: int | None) -> "Weight":
        """Returns the weight with numbers of so many bits, if they are fewer than its own."""
        if bits is None or self.size is None or self.nbytes is None:
            return self
        return replace(self, nbytes=min(self.nbytes, -(-self.size * bits // 8)))


Weights = dict[Address, Weight]

_MOVING = frozenset(("Slice", "Reshape", "Split", "Pad", "Tile", "Resize", "Upsample"))
"""Their result is made of the first input, also where a run tells how much of it is read."""

_MOST_SOURCES = 100
"""A constant tensor from more weights counts as itself, so that long chains of constants, each with
a weight of its own, take linear time and memory."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The weights from which tensors are derived.

    `of_tensors` has those of every constant tensor; `of_inputs` those of the constant inputs of
    each node, by its key, with their positions. A node that computes a constant has none.
    """

    of_tensors: Mapping[Address, Weights]
    of_inputs: Mapping[str, Sequence[tuple[int, Weights]]]


def owned(operations: Iterable[Operation], sources: Sources) -> dict[str, Weights]:
    """Returns the parameters of every node, by its key; one weight may belong to several nodes."""
    weights: dict[str, Weights] = {}
    for op in operations:
        rule, parts = find_rule(op.node.domain, op.op_type), list[Weights]()
        for index, source in sources.of_inputs[op.node.key]:
            if rule is not None and index in rule.settings:
                continue
            counted = {a: w for a, w in source.items() if _is_parameter(op, index, a, w)}
            if rule is not None and index in rule.packed:
                try:
                    count: int | None = rule.packed[index](op)
                except MemoryError:
                    raise
                except Exception:  # it is unknown, or an attribute does not fit
                    count = None
                counted = {address: replace(w, size=count) for address, w in counted.items()}
            parts.append(counted)
        for name in rule.learned if rule is not None else ():
            count = len(op.numbers(name))
            address = (op.node.scope.path, f"{op.node.key}.{name}")
            parts.append({address: Weight(count, 4 * count, "float32", 1)})
        weights[op.node.key] = united(parts)
    return weights


def of_idle(weights: Mapping[str, Weights], idle: Collection[str]) -> tuple[str, ...]:
    """Returns a note where parameters belong to nodes that do not run, by key, and to no others."""
    used = {weight for key, owned in weights.items() if key not in idle for weight in owned}
    pairs = ((address, weight) for key in idle for address, weight in weights[key].items())
    unused = {address: weight for address, weight in pairs if address not in used}
    if not unused:
        return ()
    some = "some" if (count := size(unused)) is None else f"{count:,}"
    return (f"parameters are those of the whole model; {some} are of branches that do not run",)


def size(weights: Mapping[Address, Weight]) -> int | None:
    """Returns the number of parameters, None if a size is unknown."""
    return known_sum(weight.size for weight in weights.values())


def nbytes(weights: Mapping[Address, Weight]) -> int | None:
    """Returns bytes of the parameters at their width, None if a size is unknown."""
    return known_sum(weight.nbytes for weight in weights.values())


def united(parts: Iterable[Weights]) -> Weights:
    """Returns the weights of all parts; one of several widths has the greatest of them."""
    union: Weights = {}
    for part in parts:
        for address, weight in part.items():
            other = union.setdefault(address, weight)
            if (weight.nbytes or 0) > (other.nbytes or 0):
                union[address] = weight
    return union


def sources(model: Model, facts: Facts, types: QuantizedTypes) -> Sources:
    """Returns the sources of every constant tensor, and of the inputs of every node."""
    origins, flow = _stored(model, facts), model.dataflow
    inputs: dict[str, Sequence[tuple[int, Weights]]] = {}
    is_torch = _is_torch(model)
    owners = {scope.owner.key for scope in model.all_scopes if scope.owner is not None}
    for node in model.nodes:
        scope = node.scope
        read = [(i, flow.address(name, scope)) for i, name in enumerate(node.inputs) if name]
        known = [(i, origins[each]) for i, each in read if each in origins]
        is_repeatable = node.key not in owners and not operators.draws_numbers(node.op_type)
        is_moved = node.standard_type in _MOVING and any(index == 0 for index, _ in known)
        is_constant = (len(known) == len(read) or is_moved) and is_repeatable
        inputs[node.key] = () if is_constant else known
        if not is_repeatable:
            given = dict(known)
            origins |= {at: given[index] for index, at in _states_kept(node) if index in given}
        if is_constant:
            data = _derived(node, known, types)
            for name in filter(None, node.outputs):
                address = (scope.path, name)
                is_stored = node.op_type == "Constant"
                marked = False if is_torch and is_stored else None  # no parameters in torch
                own = facts.operand(name, scope)
                origins[address] = data or {address: _weight(own, marked, generated=not is_stored)}
    return Sources(origins, inputs)


def _states_kept(node: Node) -> Iterator[tuple[int, Address]]:
    """Yields inputs of a Loop or Scan that its body returns unchanged, and what it calls them.

    So TensorFlow's recurrent layers read weights. A Scan hands in its sequences part by part.
    """
    for attribute, body in bodies(node.proto):
        passed = {each.output[0]: each.input[0] for each in body.node if each.op_type == "Identity"}
        if len(body.input) != len(node.inputs):  # Scan of opset 8 has one more
            continue
        given = next((a.i for a in node.proto.attribute if a.name == "num_scan_inputs"), 0)
        sequences = min(max(given, 0), len(body.input))  # it may be any number
        names, path = [value.name for value in body.input], f"{node.key}.{attribute}"
        before = 2 if node.op_type == "Loop" else 0  # a Loop's count and condition
        results = [value.name for value in body.output][before // 2 :]
        states = names[before : len(names) - sequences]
        for index, (name, result) in enumerate(zip(states, results, strict=False), before):
            while result != name and result in passed:
                result = passed[result]
            if result == name:
                yield index, (path, name)
        for index in range(len(names) - sequences, len(names)):
            yield index, (path, names[index])


def _stored(model: Model, facts: Facts) -> dict[Address, Weights]:
    """Returns the sources of the initializers: each its own, but for those made of others."""
    origins: dict[Address, Weights] = {}
    marks: dict[Address, tuple[str, ...]] = {}
    for scope in model.scopes:
        told = provenance.parameter_marks(scope.graph)
        may_name = _is_torch(model) and not told  # TorchScript's exporter marks nothing
        for proto in scope.graph.initializer:
            address, name = (scope.path, proto.name), proto.name
            if name in told:
                marks[address] = told[name]
            weight = _weight(
                facts.operand(name, scope),
                marked=bool(told[name]) if name in told else None,
                named=provenance.in_state_dict(name) if may_name else None,
            )
            origins[address] = {address: weight}
        for sparse in scope.graph.sparse_initializer:
            address = (scope.path, sparse.values.name)
            values, indices = map(tensor_type.from_initializer, (sparse.values, sparse.indices))
            nbytes = known_sum((values.nbytes, indices.nbytes))
            weight = Weight(values.size, nbytes, values.dtype, len(sparse.dims))
            origins[address] = {address: weight}
    for copy, originals in _copies(model, facts, marks):
        origins[copy] = united(origins[original] for original in originals)
    return origins


def _is_torch(model: Model) -> bool:
    """Returns whether an exporter of torch wrote the model, with its weights as initializers.

    Those of quantised modules are constants, which DequantizeLinear reads.
    """
    if model.proto.producer_name != "pytorch" or not model.graph.initializer:
        return False
    makers = {name: node.op_type for node in model.nodes for name in node.outputs}
    readers = (node.inputs[:1] for node in model.nodes if node.op_type == "DequantizeLinear")
    read = {makers.get(name) for names in readers for name in names}
    return "Constant" not in read


def _derived(node: Node, sources: Sequence[tuple[int, Weights]], types: QuantizedTypes) -> Weights:
    """Returns the weights that the outputs of a constant node are made of; many are none."""
    rule, data = find_rule(node.domain, node.op_type), Weights()
    for index, source in sources:
        if (rule is None or index not in rule.settings) and len(data) <= _MOST_SOURCES:
            data = united((data, source))
    if len(data) > _MOST_SOURCES:
        return {}
    if node.op_type in _QUANTIZING:
        bits = types.bits(node.outputs[0], node.scope)
        data = {address: weight.narrowed(bits) for address, weight in data.items()}
    return data


def _is_parameter(op: Operation, index: int, address: Address, weight: Weight) -> bool:
    """Returns whether a tensor behind an input is a parameter, by its mark or by its reader."""
    if weight.marked is not None:
        return weight.marked
    if weight.rank == 0 and not weight.named:
        return False  # a literal
    role = _role(op, index, weight.dtype, weight.named)
    if role != "combined":
        return role == "weight"
    if weight.generated:
        return False
    path, name = address
    scope = next((scope for scope in op.node.scope.outward() if scope.path == path), None)
    return not _is_mask(op, None if scope is None else op.facts.value(name, scope))


def _weight(
    tensor: Operand,
    marked: bool | None = None,
    named: bool | None = None,
    *,
    generated: bool = False,
) -> Weight:
    rank = None if tensor.known_shape is None else len(tensor.known_shape)
    size, nbytes = tensor.known_size, tensor.nbytes
    return Weight(size, nbytes, tensor.dtype, rank, marked, named, generated)


_ALL = frozenset({
    # products; their settings are in their rules
    *(name for name, product in operators.PRODUCTS.items() if product.weights is not None),
    "FusedMatMulActivation",
    # normalisations and embeddings
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
    "SkipGroupNorm", "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
    "QEmbedLayerNormalization", "GatherBlockQuantized",
    # biases and slopes
    "PRelu", "BiasAdd", "BiasGelu", "BiasSplitGelu", "FastGelu", "BiasSoftmax", "MultiThreshold",
})  # fmt: skip
_PRODUCTS_OF_INTEGERS = frozenset({"MatMul", "Gemm", "Conv", "Einsum"})
"""Their weights may be int64."""
_TABLES = {"Gather": 0, "GatherElements": 0, "GatherND": 0}
"""Operators that read rows of a table: the input that is the table."""
_ELEMENTWISE = frozenset(("Add", "Mul", "Sum", "QLinearAdd", "QLinearMul"))
"""A bias or a scale, written as an operator of its own."""
_JOINING = frozenset(("Concat", "Expand", "Where"))
"""Operators that put a trained token beside activations."""
_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
_BLOCKED = -1000.0
"""At most so large is the number that a mask adds to scores; a trained bias is never so small."""


_Role = Literal["weight", "combined", "other"]
"""What an input reads by its place: weights, weights or constants of the code, no weights."""


def _role(op: Operation, index: int, stored: str | None, named: bool | None) -> _Role:
    """Returns the role of the input at `index`, which is no setting.

    `stored` is the type of the stored tensor that the input is made of, and `named` whether it has
    a name of a state_dict, which a constant of the code has not; None where names tell nothing.
    """
    name = op.op_type
    if stored in ("bool", "string") or (stored == "int64" and name not in _PRODUCTS_OF_INTEGERS):
        return "other"
    if name in _ALL or rule_of(op) is None:
        return "weight"
    if name in _TABLES:
        return "weight" if index == _TABLES[name] and stored != "int32" else "other"
    if name in _JOINING:
        return "combined" if stored in _FLOATS and named is not False else "other"
    if named and stored in _FLOATS and name in _ELEMENTWISE:
        return "combined"
    fits = op.input(index).dtype in _FLOATS or name.startswith("QLinear")
    if name not in _ELEMENTWISE or not fits:
        return "other"
    size, shape = op.input(index).known_size, op.output().known_shape
    # one number serves several elements, as the scale of attention does; or scales of weights are
    # multiplied by that of an activation
    is_factor = size == 1 and (shape is None or math.prod(shape[-1:]) != 1)
    is_factor |= size != 1 and len(op.inputs()) == 2 and op.input(1 - index).known_size == 1
    return "other" if is_factor else "combined"


def _is_mask(op: Operation, values: Array | None) -> bool:
    """Returns whether numbers are a mask, a state or padding of one number, or waves of positions.

    A row of waves has a cosine for each sine, so the mean of its squares is a half.
    """
    if values is None or values.dtype.kind != "f" or not values.size:
        return False
    if values.ndim > 1 and np.allclose(np.square(values, dtype=np.float64).mean(-1), 0.5, 1e-3):
        return True
    if op.op_type in _JOINING:
        return bool((values == values.flat[0]).all())
    hides = values <= _BLOCKED
    return bool(hides.any() and (hides | (values == 0)).all())


def _copies(
    model: Model, facts: Facts, marks: Mapping[Address, Sequence[str]]
) -> Iterator[tuple[Address, Sequence[Address]]]:
    """Yields each tensor that is made of other stored ones, and those.

    `marks` has the names of the parameters that a tensor is made of. Where they tell nothing, a
    table that is stored transposed as well is found by its values.
    """
    stored = {weight.name: (model.root, weight.name) for weight in model.graph.initializer}
    single = {names[0]: address for address, names in marks.items() if len(names) == 1}
    for address, names in marks.items():
        known = stored if len(names) == 1 else single | stored
        if names and address[1] not in names and all(name in known for name in names):
            yield address, [known[name] for name in names]
    by_shape: dict[tuple[int, ...], list[onnx.TensorProto]] = defaultdict(list)
    for weight in model.graph.initializer:
        if len(weight.dims) == 2 and (model.root, weight.name) not in marks:
            by_shape[tuple(weight.dims)].append(weight)
    main = next(scope for scope in model.scopes if scope.path == model.root)
    tables = {node.inputs[0] for node in model.nodes if node.op_type == "Gather" and node.inputs}
    for table in tables:
        tensor = facts.types.weight(table, main)
        if tensor is None or (model.root, table) in marks:
            continue
        values = facts.value(table, main)
        if values is None or not (values != values.flat[:1]).any():
            continue  # equal numbers throughout tell nothing
        for other in by_shape[tuple(tensor.dims)[::-1]]:
            own = None if other.name == table else facts.value(other.name, main)
            if own is not None and own.dtype == values.dtype and np.array_equal(values.T, own):
                yield (model.root, other.name), [(model.root, table)]
