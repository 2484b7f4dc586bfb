"""Write module path and source line on exported nodes, with the same keys for every framework."""

import onnx

from tracer.graph.provenance import MODULE_KEY, SOURCE_KEY


def describe(node: onnx.NodeProto, module: str | None, source: str | None) -> None:
    """Replaces the metadata of `node` by its module path and source line.

    `module` is dotted, '' for the root. None means unknown; the key is left out.
    """
    del node.metadata_props[:]
    for key, value in ((MODULE_KEY, module), (SOURCE_KEY, source)):
        if value is not None:
            node.metadata_props.add(key=key, value=value)
