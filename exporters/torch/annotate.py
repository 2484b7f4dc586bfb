"""From torch's metadata, which holds stack traces with absolute paths, to ours."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporters.metadata import describe
from exporters.records import BATCH
from tracer import provenance
from tracer.provenance import location

if TYPE_CHECKING:
    import onnx

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NO_MODULE = "_empty_nn_module_stack"  # what torch writes for a node no module made
_PACKAGES = {"site-packages", "dist-packages"}
_STACK = "pkg.torch.onnx.stack_trace"


def annotate(proto: onnx.ModelProto) -> None:
    """Give every node its module path and source line and drop all that torch wrote."""
    for graph in _graphs(proto.graph):
        for node in graph.node:
            describe(node, _module(node), _source(node))
        for value in (*graph.input, *graph.output, *graph.value_info):
            del value.metadata_props[:]
        for weight in graph.initializer:
            del weight.metadata_props[:]
        del graph.metadata_props[:]
    del proto.metadata_props[:]


def name_batch(proto: onnx.ModelProto) -> None:
    """Call the dynamic first dimension `batch`; a saved program names it by a symbol (`s77`)."""
    firsts = [v.type.tensor_type.shape.dim[:1] for v in proto.graph.input]
    symbols = {dim.dim_param for dims in firsts for dim in dims if dim.dim_param}
    if len(symbols) != 1:
        return
    word = re.compile(rf"\b{re.escape(symbols.pop())}\b")
    for graph in _graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = word.sub(BATCH, dim.dim_param)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for body in attribute.graphs:
                yield from _graphs(body)


def _module(node: onnx.NodeProto) -> str | None:
    module = provenance.module_of(node)
    return None if module is None or module.startswith(_NO_MODULE) else module


def _source(node: onnx.NodeProto) -> str | None:
    """The innermost frame of the user's own code, of which the layers in torch are no part."""
    frames = _FRAME.findall(provenance.metadata(node).get(_STACK, ""))
    own = [(file, int(line)) for file, line in frames if not _is_installed(file)]
    return location(*own[-1]) if own else None


def _is_installed(file: str) -> bool:
    """Whether a library's file; torch gives some of its own relative to where it lies."""
    path = Path(file)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    in_packages = not _PACKAGES.isdisjoint(path.parts)
    return in_packages or not path.is_absolute() or path.is_relative_to(stdlib)
