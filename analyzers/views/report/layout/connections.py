"""Which nodes of the same graph read each other, and in what order to draw them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from tracer.records.topology import Topology


@dataclass(frozen=True, slots=True)
class Connections:
    """What lists of nodes say about each node of a model, whose bodies are apart.

    `reads` and `readers` are nodes of the same graph or body: an If reads what its bodies read.
    `enters` tells of a node that reads an input of the model, or from outside of its body; `leaves`
    of one whose output is an output of the model or of its body. `place` is its place in the order
    of drawing: as in the model, but what follows from weights alone comes right before its first
    reader.
    """

    reads: list[list[int]]
    readers: list[list[int]]
    enters: list[bool]
    leaves: list[bool]
    place: list[int]


def connections(topology: Topology) -> Connections:
    """Returns the connections of `topology`, in time linear in nodes and reads."""
    reads, enters = _reads(topology)
    readers: list[list[int]] = [[] for _ in reads]
    for node, producers in enumerate(reads):
        for producer in producers:
            readers[producer].append(node)
    makers = set(topology.outputs.values())
    leaves = [
        node in makers or (owner is not None and not readers[node])
        for node, owner in enumerate(topology.owners)
    ]
    varies = _varying(topology, reads)
    return Connections(reads, readers, enters, leaves, _places(reads, varies))


def _reads(topology: Topology) -> tuple[list[list[int]], list[bool]]:
    """Returns what each node and its bodies read in its own graph, and whether it enters."""
    owners = topology.owners
    reads: list[list[int]] = [[] for _ in owners]
    enters = [False] * len(owners)
    for node in chain.from_iterable(topology.inputs.values()):
        for each in (node, *topology.around(node)):
            enters[each] = True
    of_bodies: dict[int, set[int]] = {}
    for node in reversed(range(len(owners))):  # the nodes of bodies before their owner
        owner = owners[node]
        for producer in {*topology.producers[node], *of_bodies.pop(node, ())}:
            if owners[producer] == owner or owner is None:
                reads[node].append(producer)
            else:
                of_bodies.setdefault(owner, set()).add(producer)
                enters[node] = True
    return reads, enters


def _varying(topology: Topology, reads: list[list[int]]) -> list[bool]:
    """Returns which nodes depend on the inputs of the model."""
    varies = [False] * len(reads)
    for node in chain.from_iterable(topology.inputs.values()):
        for each in (node, *topology.around(node)):
            varies[each] = True
    for node, owner in enumerate(topology.owners):
        inherits = owner is not None and varies[owner]
        varies[node] = varies[node] or inherits or any(varies[each] for each in reads[node])
    return varies


def _places(reads: list[list[int]], varies: Iterable[bool]) -> list[int]:
    """Returns the place of each node; constants stand before the first node that reads them."""
    is_fixed = [not each for each in varies]
    count = len(reads)
    first = [count] * count
    for node in reversed(range(count)):
        if first[node] == count or not is_fixed[node]:
            first[node] = node
        for producer in reads[node]:
            if is_fixed[producer]:
                first[producer] = min(first[producer], first[node])
    order = sorted(range(count), key=lambda node: (first[node], not is_fixed[node], node))
    place = [0] * count
    for at, node in enumerate(order):
        place[node] = at
    return place
