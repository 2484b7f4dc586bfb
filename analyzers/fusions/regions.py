"""Which kernels are confirmed together.

A runtime moves data movements across other nodes: it transposes before a Sqrt instead of behind it.
The tensor between the two kernels then exists in no model, so values cannot judge one kernel alone.
They judge the region of both. Inside it, names and operators tell which kernel is which node.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from tracer.graph.model import Node
from tracer.graph.operators import CONVERSIONS
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

Group = tuple[str, ...]
"""Keys of the nodes of a kernel."""


def regions(
    kernels: Sequence[Kernel],
    groups: Sequence[Group],
    nodes: Mapping[str, Node],
    makers: Mapping[str, str],
    evidence: Evidence,
) -> tuple[tuple[int, ...], ...]:
    """Returns the positions of the kernels of each region, in their order.

    `nodes` are by key, `makers` has the key of the node that computes each tensor of the model.
    """
    region = _Regions(groups)
    first: dict[Group, int] = {}
    readers: dict[str, list[int]] = defaultdict(list)
    for position, (kernel, group) in enumerate(zip(kernels, groups, strict=True)):
        if group:
            region.join(first.setdefault(group, position), position)
        if not evidence.uninformative.keys() >= set(kernel.outputs):
            for name in kernel.inputs:
                readers[name].append(position)
    for position, (kernel, group) in enumerate(zip(kernels, groups, strict=True)):
        if _known_by_name(kernel, group, nodes):
            for name in _between(kernel, makers, evidence):
                computed = {makers.get(tensor) for tensor in evidence.equal[name]}
                if name in evidence.reordered or region.keys(position).isdisjoint(computed):
                    for reader in readers[name]:
                        region.join(position, reader)
    return tuple(region.all())


def _between(kernel: Kernel, makers: Mapping[str, str], evidence: Evidence) -> Iterator[str]:
    """Yields the results of a kernel that have no name of the model, and values that tell."""
    for name in kernel.outputs:
        if name in evidence.equal and name not in makers and name not in evidence.uninformative:
            yield name


def _known_by_name(kernel: Kernel, group: Group, nodes: Mapping[str, Node]) -> bool:
    """Returns whether a kernel has the name of one of its nodes, or is a conversion as its node."""
    if kernel.node is None:
        return kernel.op_type in CONVERSIONS and len(group) == 1 and _same(kernel, nodes[group[0]])
    return kernel.node in group


def _same(kernel: Kernel, node: Node) -> bool:
    return (kernel.domain, kernel.op_type) == (node.domain, node.op_type)


class _Regions:
    """Positions of kernels, joined to disjoint sets, and the nodes of each."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._above = list(range(len(groups)))
        self._keys = [set(group) for group in groups]

    def join(self, one: int, other: int) -> None:
        """Makes one region of the regions of two kernels."""
        low, high = sorted((self._top(one), self._top(other)))
        if low != high:
            self._above[high] = low
            self._keys[low] |= self._keys[high]

    def keys(self, position: int) -> Set[str]:
        """Returns the nodes of the region of a kernel."""
        return self._keys[self._top(position)]

    def all(self) -> Iterable[tuple[int, ...]]:
        """Returns the regions, in the order of their first kernels."""
        members: dict[int, list[int]] = defaultdict(list)
        for position in range(len(self._above)):
            members[self._top(position)].append(position)
        return map(tuple, members.values())

    def _top(self, position: int) -> int:
        while self._above[position] != position:
            self._above[position] = self._above[self._above[position]]
            position = self._above[position]
        return position
