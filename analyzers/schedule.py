"""The order in which the nodes of a graph run."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from tracer.graph.model import Address, Dataflow, Node


def ordered(nodes: Iterable[Node], flow: Dataflow, ran: Mapping[str, int]) -> tuple[Node, ...]:
    """Returns the nodes of one graph as they ran; `ran` has the position of each key.

    A folded or removed node has no position and comes as early as possible. If no node has a
    position, the nodes keep the order of the file.
    """
    by_key = {node.key: node for node in nodes}
    positions = [ran.get(key, -1) for key in by_key]
    if ran.keys().isdisjoint(by_key) or (-1 not in positions and positions == sorted(positions)):
        return tuple(by_key.values())
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_key, ()))
    for node in by_key.values():
        for tensor in flow.outputs_of(node):
            for reader in readers(tensor, flow, by_key):
                sorter.add(reader, node.key)
    sorter.prepare()
    ready: list[tuple[int, int, str]] = []
    schedule = []
    while sorter.is_active():
        for key in sorter.get_ready():
            heapq.heappush(ready, (ran.get(key, -1), by_key[key].index, key))
        key = heapq.heappop(ready)[2]
        schedule.append(by_key[key])
        sorter.done(key)
    return tuple(schedule)


def readers(tensor: Address, flow: Dataflow, nodes: Mapping[str, object]) -> Iterator[str]:
    """Yields the keys of the readers of a tensor; for a reader in a body, the key in `nodes`."""
    for reader in flow.readers.get(tensor, ()):
        node = reader
        while node.key not in nodes:
            assert node.scope.owner is not None
            node = node.scope.owner
        yield node.key
