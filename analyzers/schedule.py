"""The order in which the nodes of a graph run."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from analyzers.dataflow import Address, Dataflow
from tracer.graph.model import Node


def ordered(nodes: Iterable[Node], flow: Dataflow, ran: Mapping[str, int]) -> tuple[Node, ...]:
    """The nodes of one graph as they ran, by the place of each key in `ran`.

    A node that has no place, for the runtime folded or removed it, comes as soon as it can. If none
    has one, the order is that of the file.
    """
    by_key = {node.key: node for node in nodes}
    if ran.keys().isdisjoint(by_key):
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


def readers(tensor: Address, flow: Dataflow, known: Mapping[str, object]) -> Iterator[str]:
    """Keys, of those that are known, of who reads a tensor; for one in a body, the body's node."""
    for reader in flow.readers.get(tensor, ()):
        node = reader
        while node.key not in known:
            assert node.scope.owner is not None
            node = node.scope.owner
        yield node.key
