"""Checks the element types of nodes by ONNX's schemas: which are allowed, and which are equal.

Inputs and outputs of a schema have types by name, as `T`, and all of one name are equal. Runtimes
and kernels rely on it, and onnx's checker does not look. Types are texts, as schemas spell them:
`seq(tensor(float))`; None where a type is not known.
"""

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.graph.model import Model, Node, bodies, describe, expanded_keys, signature
from tracer.graph.tensor_type import dtype_name

_OPERATORS = {
    "TT T": "BiasGelu FastGelu FusedMatMul TransposeMatMul",
    "TT-T T": "ConvTransposeWithDynamicPads",
    "TUT U": "DequantizeLinear",
    "TUUT-TTTTUTU TTT": "DynamicQuantizeLSTM",
    "TUTUT T": "DynamicQuantizeMatMul",
    "TTUUUUUTT UTU": "EmbedLayerNormalization",
    "T T": "ExpandDims GatherND Gelu Inverse NhwcMaxPool QuickGelu Tokenizer Trilu UnfoldTensor"
    " Unique",
    "TTTT T": "FusedConv",
    "TTT T": "FusedGemm Range",
    "TT ": "GridSample",
    "TUVVTUV V": "MatMulIntegerToFloat",
    "T-T T": "Pad",
    "-T T": "QLinearConcat",
    "TTUUUUUTVVVVVUUUUU VT": "QEmbedLayerNormalization",
    "TUTVUV-U ": "QGemm",
    "T-TT-T-T T": "QLinearAdd QLinearMul",
    "T-T-T T": "QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearReduceMean"
    " QLinearSigmoid QLinearSoftmax",
    "T-TU-U-V V": "QLinearConv",
    "-TUTTUTUT T": "QLinearWhere",
    "TTU U": "QuantizeLinear",
    "TTTTT TUUT": "SkipLayerNormalization",
    "TTTT TUUT": "SkipSimplifiedLayerNormalization",
}
VARIABLES = {f"com.microsoft.{name}": text for text, names in _OPERATORS.items()
             for name in names.split()}  # fmt: skip
"""By operator a letter for each input, a blank, and one for each output; '-' may be any type."""
Kind = str | None
"""A type as text, or None."""
Kinds = tuple[Kind, ...]
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_REMEDY = "Cast one of them, or export the model again."
_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that are the element type of an output which no input has."""
_VALUES = {
    "value_float": "float", "value_floats": "float", "value_int": "int64", "value_ints": "int64",
    "value_string": "string", "value_strings": "string",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input or output of an operator.

    All of one `variable` have one type; those of '' any type that is `allowed`, None for all.
    """

    name: str
    variable: str
    allowed: frozenset[str] | None


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The parameters of an operator; the last one takes all further values if it `repeats`."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    inputs_repeat: bool = False
    outputs_repeat: bool = False

    def of_inputs(self, given: Sequence[Any]) -> Iterator[tuple[Any, Parameter]]:
        """Yields each input with its parameter; surplus ones are left out."""
        rest = repeat(self.inputs[-1]) if self.inputs_repeat else ()
        return zip(given, chain(self.inputs, rest), strict=False)

    def of_outputs(self, given: Sequence[Any]) -> Iterator[tuple[Any, Parameter]]:
        """Yields each output with its parameter; surplus ones are left out."""
        rest = repeat(self.outputs[-1]) if self.outputs_repeat else ()
        return zip(given, chain(self.outputs, rest), strict=False)


@cache
def signature_of(domain: str, op_type: str, opset: int) -> Signature | None:
    """Returns the types of an operator by ONNX's schema, or by `VARIABLES`; None for others."""
    letters = VARIABLES.get(f"{domain}.{op_type}")
    if letters is not None:
        read, written = letters.split(" ")
        return Signature(_lettered("input", read), _lettered("output", written))
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    allowed = {each.type_param_str: frozenset(each.allowed_type_strs)
               for each in schema.type_constraints}  # fmt: skip
    inputs, outputs = list(schema.inputs), list(schema.outputs)
    return Signature(
        tuple(_parameter(each, allowed) for each in inputs),
        tuple(_parameter(each, allowed) for each in outputs),
        bool(inputs) and inputs[-1].option == _VARIADIC,
        bool(outputs) and outputs[-1].option == _VARIADIC,
    )


@lru_cache(maxsize=4096)
def fault(of: Signature, inputs: Kinds, outputs: Kinds) -> str:
    """Returns which type is not allowed, or which two differ; '' if all fit."""
    bound: dict[str, tuple[str, str]] = {}
    for kind, parameter in chain(of.of_inputs(inputs), of.of_outputs(outputs)):
        if kind is None:
            continue
        here = f"{parameter.name} is {_spelled(kind)}"
        if parameter.allowed is not None and kind not in parameter.allowed:
            return f"{here}, which may be {_listed(parameter.allowed)}"
        first, before = bound.setdefault(parameter.variable, (kind, here))
        if parameter.variable and first != kind:
            allowed = "" if parameter.allowed is None else f": {_listed(parameter.allowed)}"
            return f"{before} and {here}, which must be one type{allowed}"
    return ""


def check_values(of: Signature, kinds: Sequence[Any]) -> None:
    """Raises ModelError, without the node, for inputs of `kinds` that do not fit: see `kind_of`."""
    problem = fault(of, tuple(_observed(kind, each) for kind, each in of.of_inputs(kinds)), ())
    if problem:
        raise ModelError(problem, _REMEDY)


def kind_of(value: Any) -> Any:
    """Returns the element type of a value, for `check_values`; None for what has none."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype
    return (kind_of(value[0]),) if isinstance(value, list) and value else None


def check(model: Model) -> None:
    """Raises ModelError, which names the node, for the first one whose types do not fit.

    Types are followed from inputs and weights through the graph, its bodies and its functions,
    also past what no value_info declares; a type that is not known fits.
    """
    _outputs_of_model(model, ())


def _outputs_of_model(model: Model, given: Kinds) -> Kinds:
    """Checks a model whose inputs have types `given` as well; returns the types of its outputs."""
    owners = {node.scope.owner.key for node in model.nodes if node.scope.owner is not None}
    return _Pass(model, owners).graph(model.graph, model.root, {}, given)


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass over the nodes of a model; `owners` are the keys of those with nodes in bodies."""

    model: Model
    owners: Set[str]

    def graph(
        self, graph: onnx.GraphProto, path: str, outer: MutableMapping[str, Kind], given: Kinds
    ) -> Kinds:
        """Checks a graph whose inputs have types `given` as well; returns the types of outputs."""
        declared = {v.name: _text(v.type) for v in chain(graph.value_info, graph.output)}
        own = {value.name: _text(value.type) for value in graph.input}
        for value, kind in zip(graph.input, given, strict=False):
            known = own[value.name] = own[value.name] or kind
            if kind is not None and known != kind:
                problem = f"is declared as {_spelled(known)}, and gets {_spelled(kind)}"
                raise ModelError(
                    f"{self.model.name}: input '{value.name}' of {path} {problem}", _REMEDY
                )
        for weight in graph.initializer:
            own[weight.name] = _tensor(weight.data_type)
        for sparse in graph.sparse_initializer:
            own[sparse.values.name] = _tensor(sparse.values.data_type)
        types = ChainMap(own, outer) if outer else own
        for node in self.model.nodes_by_graph.get(path, ()):
            inputs = tuple([types.get(name) for name in node.inputs])
            outputs = tuple([declared.get(name) for name in node.outputs])
            own.update(zip(node.outputs, self._node(node, inputs, outputs, types), strict=False))
            own.pop("", None)  # what a node leaves out is no input that another one leaves out
        return tuple(types.get(value.name) for value in graph.output)

    def _node(
        self, node: Node, inputs: Kinds, declared: Kinds, types: MutableMapping[str, Kind]
    ) -> Kinds:
        """Checks a node and its bodies; returns the types of its outputs."""
        results = []
        for name, body in bodies(node.proto) if node.key in self.owners else ():
            given: Kinds = ()
            if node.op_type == "Loop":
                given = ("tensor(int64)", "tensor(bool)", *inputs[2:])
            elif node.op_type == "Scan" and body.input:
                given = inputs[-len(body.input) :]
            results.append(self.graph(body, f"{node.key}.{name}", types, given))
        functions = self.model.functions
        function = functions.get(signature(node.proto)) if functions else None
        if function is not None:
            # a function that could not be inlined: its body is checked as a model
            proto = onnx.ModelProto(opset_import=function.opset_import)
            proto.functions.extend(self.model.proto.functions)
            proto.graph.node.extend(function.node)
            proto.graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
            keys = tuple(f"{node.key}/{key}" for key in expanded_keys(proto))
            called = Model(proto, None, "", keys, root=node.key, subject=self.model.name)
            return _outputs_of_model(called, inputs)
        opset = self.model.opsets.get(node.domain, 0)
        of = signature_of(node.domain, node.op_type, opset)
        if of is None:
            return declared
        problem = fault(of, inputs, declared)
        if problem:
            pairs = zip(node.inputs, inputs, strict=True)
            named = ", ".join(f"{name}: {_spelled(kind)}" for name, kind in pairs if name and kind)
            where = f"{describe(self.model, (node,), opset)} with {named or 'no inputs'}"
            raise ModelError(f"{where}: {problem}", _REMEDY)
        known = _outputs(of, inputs, declared)
        if None not in known:
            return known
        # bodies, attributes or the operator tell the others
        guesses = chain(_of_bodies(node, results), repeat(_own_type(node, inputs)))
        return tuple(
            kind or (guess if each.allowed is None or guess in each.allowed else None)
            for (kind, each), guess in zip(of.of_outputs(known), guesses, strict=False)
        )


@lru_cache(maxsize=4096)
def _outputs(of: Signature, inputs: Kinds, declared: Kinds) -> Kinds:
    """Returns the types of outputs: as declared, those of inputs, or the only ones allowed."""
    bound = {each.variable: kind for kind, each in of.of_inputs(inputs) if kind and each.variable}
    return tuple(
        kind or bound.get(each.variable)
        or (next(iter(each.allowed)) if each.allowed and len(each.allowed) == 1 else None)
        for kind, each in of.of_outputs(declared)
    )  # fmt: skip


def _own_type(node: Node, inputs: Kinds) -> Kind:
    """Returns the type of an output that an attribute tells, or the operator, and no schema."""
    for attribute in node.proto.attribute:
        kind: Kind = None
        if attribute.name in _ATTRIBUTES and attribute.i:
            kind = _tensor(attribute.i)
        elif attribute.name == "value" and attribute.HasField("t"):
            kind = _tensor(attribute.t.data_type)
        elif attribute.name in _VALUES:
            kind = f"tensor({_VALUES[attribute.name]})"
        if kind:
            return kind
    first, second = (*inputs, None, None)[:2]
    match node.op_type:
        case "ConstantOfShape" | "RandomNormal" | "RandomUniform":
            return "tensor(float)"
        case "EyeLike" | "Bernoulli" | "RandomNormalLike" | "RandomUniformLike":
            return first
        case "DequantizeLinear":
            return second
        case "SequenceConstruct" | "SplitToSequence" if first:
            return f"seq({first})"
        case "SequenceAt" | "ConcatFromSequence" if first:
            return first.removeprefix("seq(")[:-1]
    return None


def _of_bodies(node: Node, results: Sequence[Kinds]) -> Kinds:
    """Returns the types of a node's outputs that its bodies compute."""
    match node.op_type:
        case "If" if len(results) == 2:
            return tuple(a if a == b else None for a, b in zip(*results, strict=False))
        case "Loop" if results:
            return results[0][1:]
        case "Scan" if results:
            return results[0]
    return ()


def _lettered(role: str, letters: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"{role} {at}", letter.strip("-"), None)
                 for at, letter in enumerate(letters))  # fmt: skip


def _parameter(of: Any, allowed: Mapping[str, frozenset[str]]) -> Parameter:
    """Returns a parameter of a schema; one that takes several types at once has no variable."""
    variable = of.type_str if of.type_str in allowed and of.is_homogeneous else ""
    return Parameter(of.name, variable, allowed.get(of.type_str, frozenset([of.type_str])))


def _text(proto: onnx.TypeProto) -> Kind:
    """Returns a type as schemas spell it; None for maps and sparse tensors."""
    element = proto.tensor_type.elem_type  # 0 where it is no tensor
    if element:
        return _tensor(element)
    match proto.WhichOneof("value"):
        case "sequence_type":
            inner = _text(proto.sequence_type.elem_type)
            return inner and f"seq({inner})"
        case "optional_type":
            inner = _text(proto.optional_type.elem_type)
            return inner and f"optional({inner})"
    return None


@cache
def _tensor(element: int) -> Kind:
    names = onnx.TensorProto.DataType
    known = element in names.values() and element != names.UNDEFINED
    return f"tensor({names.Name(element).lower()})" if known else None


def _observed(kind: Any, parameter: Parameter) -> Kind:
    """Returns the type of a value; an optional one where the parameter takes no other."""
    depth = 0
    while isinstance(kind, tuple):
        kind, depth = kind[0], depth + 1
    text = None if kind is None else _of_dtype(kind)
    text = text and "seq(" * depth + text + ")" * depth
    allowed = parameter.allowed or ()
    return f"optional({text})" if text not in allowed and f"optional({text})" in allowed else text


@cache
def _of_dtype(dtype: np.dtype[Any]) -> Kind:
    if dtype.kind in "OUS":
        return "tensor(string)"
    return _tensor(onnx.helper.np_dtype_to_tensor_dtype(dtype))


def _spelled(kind: Kind) -> str:
    """Returns a type as messages spell it: `float32`, and `seq(tensor(float))` as it is."""
    if kind is None or not kind.startswith("tensor("):
        return kind or "unknown"
    return dtype_name(onnx.TensorProto.DataType.Value(kind[7:-1].upper()))


def _listed(allowed: frozenset[str]) -> str:
    *others, last = sorted(map(_spelled, allowed))
    return f"{', '.join(others)} or {last}" if others else last
