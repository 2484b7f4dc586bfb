"""`.netron.json`: values at each node, for Netron (from 8.2.7 on) to show beside the model.

The format is what `metadata.Attachment` in Netron's view.js reads: a list of metrics, each of a
target, which is a node by its name or the model.
"""

from collections.abc import Mapping
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import NodeValues, Value
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.json import compact
from tracer.text import escaped


def render(values: NodeValues, options: ViewOptions) -> bytes:
    """One JSON object in ASCII. Netron compares the first line of a name alone."""
    metrics = _metrics("model", "", values.model)
    for name, of_node in values.nodes.items():
        metrics += _metrics("node", name.partition("\n")[0], of_node)
    return compact({"signature": "netron:attachment", "metadata": [], "metrics": metrics})


def _metrics(kind: str, target: str, values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "target": target,
            "name": escaped(name),
            "value": escaped(value) if isinstance(value, str) else value,
        }
        for name, value in values.items()
    ]


FORMATS = (Format("netron.json", "node_values", render),)
