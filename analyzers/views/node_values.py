"""Values of nodes, for viewers that show them beside a model."""

from collections.abc import Mapping
from dataclasses import dataclass

from tracer.analyzers.views.timeline import Value


@dataclass(frozen=True, slots=True)
class NodeValues:
    """Values of the whole model, and of each node by its name in the model, with their names.

    Nodes without a name of their own are left out: a viewer could not find them.
    """

    model: Mapping[str, Value]
    nodes: Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class NodeColors:
    """One number for each node, by its id in Model Explorer, and its colour as `#rrggbb`."""

    name: str
    nodes: Mapping[str, tuple[float, str]]
