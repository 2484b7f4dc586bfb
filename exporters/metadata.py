"""The metadata of an exported node: the same two keys whatever the framework."""

from __future__ import annotations

import onnx

from tracer.graph.provenance import MODULE_KEY, SOURCE_KEY


def describe(node: onnx.NodeProto, module: str | None, source: str | None) -> None:
    """Replaces whatever metadata `node` has by its module path and its source line.

    `module` is dotted, '' for the root; None, of either, is not known and left out.
    """
    del node.metadata_props[:]
    for key, value in ((MODULE_KEY, module), (SOURCE_KEY, source)):
        if value is not None:
            node.metadata_props.add(key=key, value=value)
