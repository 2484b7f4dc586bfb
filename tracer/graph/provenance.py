"""What exporters say in metadata: module and source line of a node, parameters in a weight."""

import ast
import re
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
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
MODULE_KEY = "io.github.tracer-onnx.module"
SOURCE_KEY = "io.github.tracer-onnx.source"
"""Written by our exporters; reverse-DNS as onnx's docs/IR.md requires."""
_TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
_TORCH_STACK = "pkg.torch.onnx.stack_trace"
_NO_MODULE = "_empty_nn_module_stack"
"""What torch writes as the module of a node outside all modules."""
_FUSED_BY = re.compile(r"(/\w+Fusion/?(_token_\d+)?)+$")
"""What onnxruntime adds to the name of the node that it writes in place of several."""
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def describe(node: onnx.NodeProto, module: str | None, source: str | None) -> None:
    """Replaces the metadata of `node` by its module path and source line.

    `module` is dotted, '' for the root. None means unknown; the key is left out.
    """
    del node.metadata_props[:]
    for key, value in ((MODULE_KEY, module), (SOURCE_KEY, source)):
        if value is not None:
            node.metadata_props.add(key=key, value=value)


def describe_like(node: onnx.NodeProto, other: onnx.NodeProto) -> None:
    """Gives a new node the module and source line of another.

    What else an exporter wrote is not copied: a stack trace may be longer than the weights.
    """
    describe(node, module_of(other), source_of(other))


def metadata(
    proto: onnx.NodeProto | onnx.ModelProto | onnx.TensorProto | onnx.ValueInfoProto,
) -> dict[str, str]:
    """Returns the `metadata_props` of a node, a model, a weight or a declared tensor."""
    return {entry.key: entry.value for entry in proto.metadata_props}


def module_of(node: onnx.NodeProto) -> str | None:
    """Returns the dotted module path (`res3.0.conv1`); '' is the root module, None unknown."""
    props = metadata(node) if node.metadata_props else {}
    if MODULE_KEY in props:
        return props[MODULE_KEY]
    if _TORCH_SCOPES in props:
        # torch's repr of a list: the cumulative module paths, then the fx node's name
        paths = _literal(props[_TORCH_SCOPES])
        module = str(paths[-2]) if isinstance(paths, list) and len(paths) > 1 else _NO_MODULE
        return None if module.startswith(_NO_MODULE) else module
    name = _FUSED_BY.sub("", node.name)
    scopes = name.partition(";")[0].removeprefix("/").split("/")[:-1] if "/" in name else []
    if not all(scopes):
        return None
    path = ""
    for scope in scopes:
        path = scope if not path or scope.startswith(f"{path}.") else f"{path}.{scope}"
    return path or None


def origin_of(node: onnx.NodeProto) -> tuple[str | None, str | None]:
    """Returns module and source line of a node."""
    if not node.metadata_props and "/" not in node.name:  # most nodes that no exporter describes
        return None, None
    return module_of(node), source_of(node)


def source_of(node: onnx.NodeProto) -> str | None:
    """Returns the `file.py:line` that created the node, relative to the working directory.

    In a stack trace this is the innermost frame of the user's code. Of a model that a library
    defines it is the innermost frame of that library, and never one of torch.
    """
    if not node.metadata_props:
        return None
    props = metadata(node)
    if SOURCE_KEY in props:
        return props[SOURCE_KEY]
    frames = _FRAME.findall(props.get(_TORCH_STACK, ""))
    own = [frame for frame in frames if not is_installed(Path(frame[0]))]
    if not own:
        for frame in frames:
            parts = Path(frame[0]).parts
            packages = [after for part, after in pairwise(parts) if part in _PACKAGES]
            own += [frame] if packages and packages[0] != "torch" else []
    return location(*own[-1]) if own else None


def inherit(node: onnx.NodeProto, calls: Sequence[onnx.NodeProto]) -> None:
    """Adds a missing module and source to a node from its function calls, innermost first.

    Inlining removes the calls, and with them their metadata.
    """
    for key, read in ((MODULE_KEY, module_of), (SOURCE_KEY, source_of)):
        if calls and read(node) is None:
            value = next((text for call in calls if (text := read(call)) is not None), None)
            if value is not None:
                node.metadata_props.add(key=key, value=value)


def pass_on_metadata(proto: onnx.ModelProto, named: set[str]) -> None:
    """Gives nodes not in `named` module and source of the node before, else of the node after."""
    nodes = proto.graph.node
    for order, side, far_side in ((nodes, "input", "output"), (reversed(nodes), "output", "input")):
        neighbours: dict[str, onnx.NodeProto] = {}
        for node in order:
            if node.name not in named and not node.metadata_props:
                near = next((neighbours[n] for n in getattr(node, side) if n in neighbours), None)
                if near is not None and near.metadata_props:
                    describe_like(node, near)
            neighbours.update((name, node) for name in getattr(node, far_side))


def _literal(text: str) -> object:
    """Returns what a text of Python spells; None for another text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def is_installed(file: Path) -> bool:
    """Whether a file belongs to a library; some of torch's own paths are relative."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    in_packages = not _PACKAGES.isdisjoint(file.parts)
    return in_packages or not file.is_absolute() or file.is_relative_to(stdlib)


def location(file: str, line: int | str) -> str:
    """Returns `file.py:line`, relative to the working directory; elsewhere the name alone."""
    path, cwd = Path(file), Path.cwd()
    display = path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else path.name
    return f"{display}:{line}"


def parameter_marks(graph: onnx.GraphProto) -> Marks:
    """Returns the marks of a graph's initializers; one without a mark is missing.

    A mark is our own, else of torch's exporter: the kind of an input of the program, the tensors
    that a constant was folded from, the signature of the program. A name may be a mark, too.
    """
    text = next((e.value for e in graph.metadata_props if e.key == _SIGNATURE), "")
    kinds = {found["name"]: found["kind"] for found in _TARGET.finditer(text)}
    values = {value.name: value for value in graph.value_info if value.metadata_props}
    marks: dict[str, tuple[str, ...]] = {}
    for weight in graph.initializer:
        known = metadata(weight)
        if weight.name in values:
            known |= metadata(values[weight.name])
        kind = known.get(_KIND) or kinds.get(weight.name)
        if PARAMETER_KEY in known:
            marks[weight.name] = tuple(known[PARAMETER_KEY].split())
        elif kind:
            marks[weight.name] = (weight.name,) if kind == "PARAMETER" else ()
        elif kinds and _FOLDED in known:
            names = _literal(known[_FOLDED])
            if isinstance(names, Collection):
                of = (n for n in names if isinstance(n, str) and kinds.get(n) == "PARAMETER")
                marks[weight.name] = tuple(of)
        elif weight.name.rpartition(".")[2] in _BUFFERS:
            marks[weight.name] = ()
    return marks


def mark_parameters(weight: onnx.TensorProto, parameters: Collection[str]) -> None:
    """Marks an initializer as made of these parameters of the model; as no parameter, of none."""
    weight.metadata_props.add(key=PARAMETER_KEY, value=" ".join(parameters))


def in_state_dict(name: str) -> bool:
    """Returns whether torch's TorchScript exporter took a name from the model, or made it up."""
    return "::" not in name and not name.startswith("/")
