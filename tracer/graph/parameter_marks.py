"""Reads what exporters say of stored tensors: which are parameters of the model, which are not."""

import ast
import re
from collections.abc import Collection, Mapping
from typing import TypeAlias

import onnx

PARAMETER_KEY = "io.github.tracer-onnx.parameter"
"""Written by our exporters on initializers: names of the parameters it is made of, or nothing."""

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_TARGET = re.compile(r"^\w+: (?P<kind>[A-Z_]+) target='(?P<name>[^']+)'", re.MULTILINE)
_BUFFERS = frozenset({
    "running_mean", "running_var", "num_batches_tracked", "position_ids", "token_type_ids",
    "inv_freq", "original_inv_freq", "cos_cached", "sin_cached", "cos_cache", "sin_cache",
})  # fmt: skip
"""Last names of tensors that torch, transformers and onnxruntime-genai never train."""

Marks: TypeAlias = Mapping[str, tuple[str, ...]]
"""The parameters that an initializer is made of, by its name; none where it is no parameter."""


def of_graph(graph: onnx.GraphProto) -> Marks:
    """Returns the marks of a graph's initializers; one without a mark is missing.

    A mark is our own, else of torch's exporter: the kind of an input of the program, the tensors
    that a constant was folded from, the signature of the program. A name may be a mark, too.
    """
    kinds = _signature(graph)
    values = {value.name: value for value in graph.value_info if value.metadata_props}
    marks: dict[str, tuple[str, ...]] = {}
    for weight in graph.initializer:
        known = {entry.key: entry.value for entry in weight.metadata_props}
        if weight.name in values:
            known |= {entry.key: entry.value for entry in values[weight.name].metadata_props}
        parameters = _parameters(weight.name, known, kinds)
        if parameters is not None:
            marks[weight.name] = parameters
    return marks


def write(weight: onnx.TensorProto, parameters: Collection[str]) -> None:
    """Marks an initializer as made of these parameters of the model; as no parameter, of none."""
    weight.metadata_props.add(key=PARAMETER_KEY, value=" ".join(parameters))


def in_state_dict(name: str) -> bool:
    """Returns whether torch's TorchScript exporter took a name from the model, or made it up."""
    return "::" not in name and not name.startswith("/")


def _parameters(
    name: str, known: Mapping[str, str], kinds: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Returns the parameters that a tensor is made of; None where no mark tells."""
    if PARAMETER_KEY in known:
        return tuple(known[PARAMETER_KEY].split())
    kind = known.get(_KIND) or kinds.get(name)
    if kind:
        return (name,) if kind == "PARAMETER" else ()
    if kinds and _FOLDED in known:
        return _folded(known[_FOLDED], kinds)
    return () if name.rpartition(".")[2] in _BUFFERS else None


def _folded(text: str, kinds: Mapping[str, str]) -> tuple[str, ...] | None:
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if not isinstance(names, Collection):
        return None
    return tuple(n for n in names if isinstance(n, str) and kinds.get(n) == "PARAMETER")


def _signature(graph: onnx.GraphProto) -> Mapping[str, str]:
    """Returns the kind of each stored input of torch's exported program, by name."""
    text = next((e.value for e in graph.metadata_props if e.key == _SIGNATURE), "")
    return {found["name"]: found["kind"] for found in _TARGET.finditer(text)}
