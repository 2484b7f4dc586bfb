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

    In a stack trace this is the innermost frame of the user's code; libraries are skipped.
    """
    if not node.metadata_props:
        return None
    props = metadata(node)
    if SOURCE_KEY in props:
        return props[SOURCE_KEY]
    frames = _FRAME.findall(props.get(_TORCH_STACK, ""))
    own = [frame for frame in frames if not is_installed(Path(frame[0]))]
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
    """Parses the TorchScript exporter's `/layer1/layer1.0/conv1/Conv`: scopes, then the operator.

    A scope that begins with its parent's path replaces the path; any other extends it.
    """
    if not name.startswith("/") or name.count("/") < 2:
        return None
    path = ""
    for scope in name[1:].split("/")[:-1]:
        path = scope if not path or scope.startswith(f"{path}.") else f"{path}.{scope}"
    return path


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
