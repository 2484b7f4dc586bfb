"""`.model-explorer.json`, also after `.headroom`: a colour for each node, for Model Explorer.

The format is `GraphNodeData` of its package. Colours are those of the time, or of the bits that
accumulators have left.
"""

from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import NodeColors
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.json import compact

_AMBIGUOUS = "results"
"""With a node of this id, Model Explorer takes the file for one of several graphs."""

_DECIMALS = 3
"""Model Explorer shows all digits of a number: these are ns."""

_LIGHT = 140
"""Backgrounds of this brightness (0 to 255) or more have black text."""


def render(colors: NodeColors, options: ViewOptions) -> bytes:
    """One JSON object in ASCII, for the graph that is open."""
    results: dict[str, dict[str, Any]] = {}
    for name, (value, color) in colors.nodes.items():
        if name != _AMBIGUOUS:
            red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT  # ITU-R BT.601
            text = "#000000" if is_light else "#ffffff"
            results[name] = {
                "value": round(value, _DECIMALS), "bgColor": color, "textColor": text
            }  # fmt: skip
    return compact({"name": colors.name, "results": results})


FORMATS = (
    Format("model-explorer.json", "node_times", render),
    Format("headroom.model-explorer.json", "head_room", render),
)
