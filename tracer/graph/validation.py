"""Checks that a file or protobuf is a valid ONNX model, and repairs what runtimes accept.

Each fault is one clear error. Exporters write unsorted nodes, missing imports and sizes of 0.

Later stages rely on declarations that onnx's checker lets through: shapes, element types, texts
and axes. The checks take time linear in the size of the graph and read no weights.
"""

import math
import stat
from collections.abc import Iterable, Sequence
from copy import deepcopy
from heapq import heapify, heappop, heappush
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx.external_data_helper import uses_external_data

from tracer.containment import activity
from tracer.errors import ModelError, locate_errors
from tracer.graph import operators, stored_weights
from tracer.graph.model import (
    bodies,
    canonical_domain,
    encoded,
    names_read,
    node_protos,
    source_names,
)
from tracer.graph.tensor_type import UNKNOWN_SIZE
from tracer.text import agree, printable

TAKEN_AS_OPEN = "taken as an open size: exporters write 0 for an unknown one"
"""Ends the note on a declared size that is not the one of a run."""
UNSORTED_NOTE = "the nodes are not sorted in the file: each is taken after those that it reads"
_QONNX_VERSION = 1
"""The version of QONNX's domain where nothing imports it."""
_MOST_AXES = 64
"""Dimensions that a tensor of numpy may have."""
_MOST_ELEMENTS = 2**63 - 1
"""Sizes are 64-bit integers, in ONNX as in numpy."""
_LONGEST_NAME = 10_000
"""Characters. Paths of modules have hundreds; a megabyte would fill every table and message."""
_ELEMENTS = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_AXES = frozenset({
    "axis", "axes", "batch_axis", "time_axis", "perm", "scan_input_axes", "scan_output_axes",
})  # fmt: skip
"""Attributes that number dimensions. onnx's shape inference believes what it reads there, and ends
the process where they are far outside; of `num_outputs` it makes a list."""
_PLACES, _DIGITS = ("offset", "length"), 18
"""What says where external data are in their file, and the most digits of it."""
_REPAIR = "Export the model again, or repair the graph."
_References: TypeAlias = list[tuple[onnx.NodeProto, onnx.AttributeProto]]
IN_MEMORY = "<model in memory>"
"""The name, in messages, of a model that is not from a file."""
_FAILURES = (onnx.checker.ValidationError, ValueError, RuntimeError, OSError)
"""What the checker raises: its own error, and what C++ says of paths that cannot be."""
_OF_ONNXRUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization", "GroupNormalization")
"""Operators that onnxruntime has in the domain of ONNX, at every version; the last one also where
ONNX deprecates it."""
_ACCEPTED = (
    "Field 'shape' of 'type' is",
    "Field 'type' of 'value_info' is",
    *(f"No Op registered for {op_type} with" for op_type in _OF_ONNXRUNTIME),
    *(f"No opset import for domain '{name}'" for name in sorted(operators.QONNX_DOMAINS)),
    "Op registered for GroupNormalization is deprecated",
    "Nodes in a graph must be topologically sorted",
)
"""How the checker begins where it refuses a model that runtimes accept."""
_OTHER_DOMAIN = "tracer.onnxruntime"
"""A domain that the checker does not know, and so does not look into."""
_NOT_ONNX = (
    # first bytes of a file, its format, remedy
    (b"PK\x03\x04", "a zip archive", "Unpack it first; a .pt file is exported first."),
    (b"\x80\x02", "a pickle", "Name a file written by onnx.save or an exporter."),
    (b"ir_version", "a text protobuf", "Write it as binary: onnx.save(onnx.load(...), ...)."),
    (b"\x89HDF", "an HDF5 file", "Export the model to ONNX first."),
)
_PRINTABLE = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\r\n")
"""Bytes of text; a model begins with 0x08, the tag of its IR version, which is not text."""


def check_format(file: Path) -> None:
    """Raises ModelError for a file that is not ONNX by its first bytes, before it is parsed."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{file}: not a regular file", "Name an .onnx file.")
    try:
        str(file.resolve()).encode()
    except UnicodeEncodeError as error:
        raise ModelError(
            f"{file}: onnx opens no file whose path is not UTF-8", "Rename the file or folder."
        ) from error
    if status.st_size == 0:
        raise ModelError(f"{file}: the file is empty", "Export or download the model again.")
    try:
        with file.open("rb") as stream:
            head = stream.read(16)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from error
    for magic, kind, remedy in _NOT_ONNX:
        if head.startswith(magic):
            raise ModelError(f"{file}: not an ONNX model but {kind}", remedy)
    if head[4:8] == b"ORTM":
        raise ModelError(
            f"{file}: not an ONNX model but an .ort file, which nothing converts back",
            "Name the .onnx file that it was made of, or export that again.",
        )
    if all(byte in _PRINTABLE for byte in head):
        raise ModelError(f"{file}: not an ONNX model but a text file", "Name the .onnx file.")
    if head[8:10] == b'{"':
        raise ModelError(
            f"{file}: not an ONNX model but safetensors weights", "Name the .onnx file."
        )


def check_proto(proto: onnx.ModelProto, name: str = IN_MEMORY, file: Path | None = None) -> bool:
    """Returns whether onnx's checker accepts a model as it is.

    Raises ModelError for a model that neither the checker nor runtimes accept.

    `file` has `proto`, if it is not in memory: onnx reads models beyond protobuf's 2 GB by path.
    What runtimes accept and the checker does not is in `_ACCEPTED`. For that a copy is checked,
    with every rank filled in, with onnxruntime's operators in their own domain, with QONNX's domain
    imported, and sorted. The checker looks for external data next to a file, and the copy has none:
    they are checked here, and the copy's tensors are empty.
    """
    checked = encoded(proto, name) if file is None else str(file)
    try:
        with activity.doing(name, f"onnx {onnx.__version__} checked the model"):
            onnx.checker.check_model(checked)
        return True
    except _FAILURES as error:
        if not str(error).startswith(_ACCEPTED):
            raise _invalid(name, proto, error) from error
    copy = deepcopy(proto)
    for value in copy.graph.input:
        if value.type.WhichOneof("value") is None:
            raise ModelError(
                f"{name}: input '{value.name}' has no type",
                "Export the model again with its types.",
            )
    for value in (*copy.graph.input, *copy.graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            value.type.tensor_type.elem_type = 1  # any type: runtimes infer it
        if kind in (None, "tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.dim.add()
    _set_apart(copy)
    sort_nodes(copy.graph)
    add_qonnx_imports(copy, missing_qonnx_imports(copy))
    try:
        for tensor in filter(uses_external_data, stored_weights.stored_tensors(copy)):
            stored_weights.probe_external(tensor, Path() if file is None else file.parent)
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
        onnx.checker.check_model(encoded(copy, name))
    except _FAILURES as error:
        raise _invalid(name, copy, error) from error
    return False


def check_declarations(proto: onnx.ModelProto, name: str) -> None:
    """Raises ModelError, which begins with `name`, for the first declaration that cannot be."""
    with locate_errors(name):
        _check_names("the model", (entry.domain for entry in proto.opset_import))
        _check_metadata("the model", (*proto.metadata_props, *proto.graph.metadata_props))
        for node, attribute in _check_graph(proto.graph)[:1]:
            raise ModelError(
                f"attribute '{attribute.name}' of node '{node.name}' ({node.op_type}) "
                f"refers to the attribute '{attribute.ref_attr_name}' of a function",
                f"Only nodes of functions may. {_REPAIR}",
            )
        for function in proto.functions:
            names = (function.name, function.domain, *function.input, *function.output)
            _check_names("a function", names)
            _check_nodes(function.node)


def repaired(proto: onnx.ModelProto, accepted: bool) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Returns `proto`, or a repaired copy, and notes of what was assumed.

    The copy is sorted, imports QONNX's domain, and leaves an input's size open where 0 is declared:
    some exporters write 0 for an unknown size, and runtimes would take no other. A matrix of
    weights without a row or a column shows that a size of 0 is meant. `accepted`, which
    `check_proto` returns, tells imports and order, if not that of what bodies return.
    """
    weights = {weight.name for weight in proto.graph.initializer}
    means_zero = any(len(each.dims) > 1 and 0 in each.dims for each in proto.graph.initializer)
    empty = [
        (place, axis)
        for place, value in enumerate(proto.graph.input)
        if value.name not in weights
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.HasField("dim_value") and dim.dim_value == 0 and not means_zero
    ]
    missing = () if accepted else missing_qonnx_imports(proto)
    is_told = accepted and not any(map(bodies, proto.graph.node[:]))
    sorts = not is_told and not is_sorted(proto.graph)
    if not (empty or missing or sorts):
        return proto, ()
    copy = deepcopy(proto)
    zeros = dict[str, list[str]]()
    for place, axis in empty:
        zeros.setdefault(copy.graph.input[place].name, []).append(str(axis))
        copy.graph.input[place].type.tensor_type.shape.dim[axis].Clear()
    add_qonnx_imports(copy, missing)
    if sorts:
        sort_nodes(copy.graph)
    notes: tuple[str, ...] = (UNSORTED_NOTE,) if sorts else ()
    for name, axes in zeros.items():
        where = f"{agree(len(axes), 'axis', 'axes')} {', '.join(axes)}"
        notes += (f"input '{printable(name)}' declares size 0 on {where}, {TAKEN_AS_OPEN}",)
    if missing:
        listed = " and ".join(f"'{domain}'" for domain in missing)
        assumed = f"version {_QONNX_VERSION} of QONNX's operators is assumed"
        notes = (f"the model does not import {listed}: {assumed}", *notes)
    return copy, notes


def missing_qonnx_imports(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of QONNX's domain that nodes of the main graph use and nothing imports."""
    imported = {entry.domain for entry in proto.opset_import}
    used = {node.domain for node in node_protos(proto.graph)}
    return tuple(sorted((used & operators.QONNX_DOMAINS) - imported))


def add_qonnx_imports(proto: onnx.ModelProto, domains: tuple[str, ...]) -> None:
    """Imports `domains` in `proto`."""
    for domain in domains:
        proto.opset_import.add(domain=domain, version=_QONNX_VERSION)


def is_sorted(graph: onnx.GraphProto) -> bool:
    """Whether no node of a graph reads, itself or in a body, what a later node computes."""
    nodes = graph.node[:]
    outputs = [node.output[:] for node in nodes]
    late = set(chain.from_iterable(outputs)) - {""}
    for node, written in zip(nodes, outputs, strict=True):
        if not late.isdisjoint(names_read(node)):
            return False
        late.difference_update(written)
    return True


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Puts nodes after those that they read, else in their order; a cycle stays where it is.

    Converters to float16 add nodes at the end. onnxruntime sorts graphs, but not their bodies.
    """
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    waits = [{makers[name] for name in names_read(node) if name in makers} for node in graph.node]
    order = _order(waits)
    if len(order) == len(graph.node):
        nodes = [onnx.NodeProto.FromString(graph.node[at].SerializeToString()) for at in order]
        del graph.node[:]
        graph.node.extend(nodes)


def order_fault(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> str:
    """Returns what is wrong with the order of a graph or of its bodies; '' if nothing is.

    `outer` holds the tensors of outer graphs that are computed before this graph runs.
    """
    sources = source_names(graph)
    message = _own_fault(graph.node, sources, graph.name, outer)
    available = {*outer, *sources}
    for index, node in enumerate(graph.node):
        for _, body in bodies(node):
            inner = "" if message else order_fault(body, frozenset(available))
            if inner:
                message = f"{inner}, in body '{body.name}' of {_label(node, index)}"
        available.update(node.output)
    return message


def _check_graph(graph: onnx.GraphProto) -> _References:
    _check_names("a graph", (graph.name,))
    for value in (*graph.input, *graph.output, *graph.value_info):
        _check_names("a tensor", (value.name,))
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", "sparse_tensor_type"):
            continue
        tensor_type = getattr(value.type, kind)
        what, dims = f"tensor '{value.name}'", tensor_type.shape.dim
        if tensor_type.elem_type:
            _check_element(what, tensor_type.elem_type)
        _check_names(f"a dimension of {what}", (dim.dim_param for dim in dims))
        sizes = (dim.dim_value if dim.HasField("dim_value") else UNKNOWN_SIZE for dim in dims)
        _check_shape(what, [1 if size == UNKNOWN_SIZE else size for size in sizes])
    for value in graph.input:
        if value.type.HasField("tensor_type"):  # the type of others may be left open
            _check_element(f"input '{value.name}'", value.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        _check_tensor(f"weight '{tensor.name!s:.40}'", tensor)
    for sparse in graph.sparse_initializer:
        what = f"sparse weight '{sparse.values.name!s:.40}'"
        _check_tensor(what, sparse.values)
        _check_tensor(what, sparse.indices)
        _check_shape(what, sparse.dims)
    return _check_nodes(graph.node[:])


def _check_nodes(nodes: Sequence[onnx.NodeProto]) -> _References:
    """Returns the attributes that refer to those of a function, in the order of `node_protos`."""
    for index, node in enumerate(nodes):
        # a short node of ASCII has names that are so, and is told in a tenth of the time
        if node.ByteSize() > _LONGEST_NAME or not node.SerializeToString().isascii():
            names = [node.name, node.op_type, node.domain, *node.input[:], *node.output[:]]
            _check_names(f"node {index} of its graph", names)
    references: _References = []
    for index, node in enumerate(nodes):
        attributes, metadata = node.attribute, node.metadata_props
        if not attributes and not metadata:
            continue
        what = f"node '{node.name or f'{node.op_type}_{index}'}' ({node.op_type})"
        _check_metadata(what, metadata)
        for attribute in attributes:
            _check_attribute(what, node, attribute)
            if attribute.ref_attr_name:
                references.append((node, attribute))
        for _, body in bodies(node):
            references += _check_graph(body)
    return references


def _check_attribute(where: str, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    _check_names(where, (attribute.name, attribute.ref_attr_name))
    what = f"attribute '{attribute.name}' of {where}"
    for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
        _check_tensor(what, tensor)
    if canonical_domain(node.domain) or attribute.ref_attr_name:
        return
    if attribute.name in _AXES:
        least, most = -_MOST_AXES, _MOST_AXES
    elif attribute.name in ("batch_dims", "num_outputs"):
        is_count = attribute.name == "num_outputs"
        least, most = (1, len(node.output)) if is_count else (0, _MOST_AXES)
    else:
        return
    for number in (attribute.i, *attribute.ints):
        if not least <= number <= most:
            raise ModelError(f"{what} is {number}", f"It may be {least} to {most}.")


def _check_tensor(what: str, tensor: onnx.TensorProto) -> None:
    _check_names(what, (tensor.name,))
    _check_element(what, tensor.data_type)
    _check_shape(what, tensor.dims)
    for entry in tensor.external_data:
        _check_names(f"the external data of {what}", (entry.key, entry.value))
        digits = entry.value.strip()
        if entry.key in _PLACES and not (
            digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS
        ):
            raise ModelError(
                f"{what} has external data whose {entry.key} is '{entry.value}'",
                f"It is a number of bytes from 0 on. {_REPAIR}",
            )


def _check_element(what: str, number: int) -> None:
    if number not in _ELEMENTS:
        raise ModelError(
            f"{what} is of element type {number}, which ONNX does not have",
            f"Element types are {min(_ELEMENTS)} (float32) to {max(_ELEMENTS)}.",
        )


def _check_shape(what: str, sizes: Sequence[int]) -> None:
    if len(sizes) > _MOST_AXES:
        raise ModelError(f"{what} has {len(sizes)} dimensions", f"At most {_MOST_AXES} may be.")
    least = min(sizes, default=0)
    if least < 0:
        raise ModelError(
            f"{what} has a dimension of {least}", f"Leave out unknown sizes. {_REPAIR}"
        )
    # zeros left out: numpy refuses an array without elements, too, if its other sizes are too large
    if math.prod(filter(None, sizes)) > _MOST_ELEMENTS:
        raise ModelError(
            f"{what} has a shape of 2^63 elements or more, {list(sizes)}",
            f"Sizes are 64-bit integers, and so is their product. {_REPAIR}",
        )


def _check_names(where: str, names: Iterable[str]) -> None:
    for name in names:
        if isinstance(name, bytes):
            raise _undecodable(where, name)
        if len(name) > _LONGEST_NAME:
            raise ModelError(
                f"{where} has a name of {len(name):,} characters, '{name[:20]}…'",
                f"Names have at most {_LONGEST_NAME:,} characters.",
            )


def _check_metadata(where: str, entries: Iterable[onnx.StringStringEntryProto]) -> None:
    """Checks texts of any length, as a stack trace is."""
    for entry in entries:
        for text in (entry.key, entry.value):
            if isinstance(text, bytes):
                raise _undecodable(f"the metadata of {where}", text)


def _undecodable(where: str, text: bytes) -> ModelError:
    """Protobuf returns bytes for a text that does not decode."""
    return ModelError(f"{where} has the text {text[:40]!r}, which is not UTF-8", _REPAIR)


def _set_apart(proto: onnx.ModelProto) -> None:
    """Moves onnxruntime's operators out of the domain of ONNX, where the checker knows none."""
    holders: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    for graph in holders:
        for node in node_protos(graph):
            if node.op_type in _OF_ONNXRUNTIME and not canonical_domain(node.domain):
                node.domain = _OTHER_DOMAIN
    for opsets in (proto.opset_import, *(each.opset_import for each in proto.functions)):
        opsets.add(domain=_OTHER_DOMAIN, version=1)


def _invalid(name: str, proto: onnx.ModelProto, error: Exception) -> ModelError:
    misorder = order_fault(proto.graph)
    if misorder:
        return ModelError(f"{name}: {misorder}", _REPAIR)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    context = [line for line in lines[1:] if line.startswith("==> Context")]
    problem = lines[0].rstrip(".") if lines else type(error).__name__
    if context:
        problem += f" ({context[-1].removeprefix('==> Context: ')})"
    remedy = _REPAIR
    if "symbolic link" in problem or "hardlink" in problem or "hard link" in problem:
        remedy = "A model hub's cache stores links: download real files, or copy with cp -L."
    elif "external" in problem.lower() or "Data of TensorProto" in problem:
        remedy = (
            "Put the external data file next to the model, by its name; standard input has none."
        )
    return ModelError(f"{name}: not a valid ONNX model: {problem}", remedy)


def _order(waits: Sequence[set[int]]) -> list[int]:
    """Returns the nodes, each behind those that it waits for, else in their order (Kahn).

    Nodes on a cycle, or behind one, are left out. `waits` are emptied.
    """
    readers: list[list[int]] = [[] for _ in waits]
    for at, needed in enumerate(waits):
        for maker in needed:
            readers[maker].append(at)
    ready = [at for at, needed in enumerate(waits) if not needed]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for reader in readers[order[-1]]:
            waits[reader].discard(order[-1])
            if not waits[reader]:
                heappush(ready, reader)
    return order


def _own_fault(
    nodes: Sequence[onnx.NodeProto], sources: set[str], graph: str, outer: frozenset[str]
) -> str:
    """Returns the fault among a graph's own nodes; '' if there is none.

    The checker has one message for a missing input, unsorted nodes and a cycle; here each has its
    own, and so has a tensor written twice (not SSA).
    """
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in producers or output in sources:
                return f"tensor '{output}' is written twice, again by {_label(node, index)}"
            producers[output] = index
    for index, node in enumerate(nodes):
        for name in filter(None, node.input):
            if name not in sources and name not in producers and name not in outer:
                return f"{_label(node, index)} reads '{name}', which no node of '{graph}' computes"
    reads = ((index, name) for index, node in enumerate(nodes) for name in node.input)
    late = next(((index, name) for index, name in reads if producers.get(name, -1) >= index), None)
    if late is None:
        return ""
    ordered = _order([{producers[n] for n in node.input if n in producers} for node in nodes])
    if len(ordered) < len(nodes):
        cycle = min(set(range(len(nodes))) - set(ordered))
        return f"the graph has a cycle through {_label(nodes[cycle], cycle)}"
    index, name = late
    reader = _label(nodes[index], index)
    return f"the nodes are not sorted: {reader} reads '{name}' before it is computed"


def _label(node: onnx.NodeProto, index: int) -> str:
    return f"node '{node.name}' ({node.op_type})" if node.name else f"node {node.op_type}_{index}"
