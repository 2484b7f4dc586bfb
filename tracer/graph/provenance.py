"""Reads the framework module and source line of an ONNX node from its metadata."""

import ast
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import onnx

MODULE_KEY = "io.github.tracer-onnx.module"
SOURCE_KEY = "io.github.tracer-onnx.source"
"""Written by our exporters; reverse-DNS as onnx's docs/IR.md requires."""

_TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
_TORCH_STACK = "pkg.torch.onnx.stack_trace"
_NO_MODULE = "_empty_nn_module_stack"
"""What torch writes as the module of a node outside all modules."""

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def metadata(proto: onnx.NodeProto | onnx.ModelProto) -> dict[str, str]:
    """Returns the `metadata_props` of a node or model."""
    return {entry.key: entry.value for entry in proto.metadata_props}


def module_of(node: onnx.NodeProto) -> str | None:
    """Returns the dotted module path (`res3.0.conv1`); '' is the root module, None unknown."""
    props = metadata(node) if node.metadata_props else {}
    if MODULE_KEY in props:
        return props[MODULE_KEY]
    if _TORCH_SCOPES in props:
        return _last_module(props[_TORCH_SCOPES])
    return _module_in_name(node.name)


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
    own = own or [frame for frame in frames if _in_package(Path(frame[0])) not in (None, "torch")]
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


def _last_module(scopes: str) -> str | None:
    """Parses torch's repr of a list: the cumulative module paths, then the fx node's name."""
    try:
        paths = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        return None
    if not isinstance(paths, list) or len(paths) < 2:
        return None
    module = str(paths[-2])
    return None if module.startswith(_NO_MODULE) else module


def _module_in_name(name: str) -> str | None:
    """Parses names that are paths of scopes, then the operator.

    TorchScript's exporter writes `/layer1/layer1.0/conv1/Conv`: a scope that begins with its
    parent's path replaces the path; any other extends it. tf2onnx writes `model/conv/BiasAdd`, and
    for nodes that TensorFlow fused several paths with `;` between them.
    """
    scopes = name.partition(";")[0].removeprefix("/").split("/")[:-1]
    if not all(scopes):
        return None
    path = ""
    for scope in scopes:
        path = scope if not path or scope.startswith(f"{path}.") else f"{path}.{scope}"
    return path or None


def is_installed(file: Path) -> bool:
    """Whether a file belongs to a library; some of torch's own paths are relative."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    in_packages = not _PACKAGES.isdisjoint(file.parts)
    return in_packages or not file.is_absolute() or file.is_relative_to(stdlib)


def _in_package(file: Path) -> str | None:
    """Returns the package of `site-packages` that a file belongs to, None for other files."""
    parts = file.parts
    for place, part in enumerate(parts[:-1]):
        if part in _PACKAGES:
            return parts[place + 1]
    return None


def location(file: str, line: int | str) -> str:
    """Returns `file.py:line`, relative to the working directory; elsewhere the name alone."""
    path, cwd = Path(file), Path.cwd()
    display = path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else path.name
    return f"{display}:{line}"
