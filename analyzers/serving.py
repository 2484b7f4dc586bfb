"""Which node a constant or a conversion of a quantised graph serves."""

from collections.abc import Mapping

from tracer.analyzers.main_nodes import SERVING
from tracer.records.model_info import Topology

_OF_RESULTS = "QuantizeLinear"


def served(topology: Topology | None) -> Mapping[str, str]:
    """Returns for each node of `SERVING` the node that it serves, by key; none if there is none.

    A QuantizeLinear serves the node whose result it converts. All others, and a QuantizeLinear of
    an input or a weight, serve the first node that reads their result.
    """
    if topology is None:
        return {}
    readers: list[list[int]] = [[] for _ in topology.nodes]
    for position, producers in enumerate(topology.producers):
        for producer in producers:
            readers[producer].append(position)
    serving = [kind in SERVING for kind in topology.op_types]
    served_by: dict[int, int] = {}
    for position in reversed(range(len(serving))):  # readers come after what they read
        for reader in readers[position] if serving[position] else ():
            target = served_by.get(reader, reader)
            if not serving[target]:
                served_by[position] = target
                break
    for position, kind in enumerate(topology.op_types):
        makers = [each for each in topology.producers[position] if not serving[each]]
        if kind == _OF_RESULTS and makers:
            served_by[position] = makers[0]
    return {topology.nodes[one]: topology.nodes[other] for one, other in served_by.items()}
