"""Bytes that a kernel of several nodes must move: what they hand to each other stays inside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from analyzers import dataflow
from analyzers.cost import registry, trips
from analyzers.cost.aliases import Aliases, aliases
from analyzers.cost.count import UnknownWorkError
from analyzers.cost.operation import Address, Facts, Operation, facts_of
from analyzers.cost.traffic import Bytes
from analyzers.dataflow import Dataflow
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes

Group = tuple[str, ...]
"""Keys of the nodes that a kernel stands for."""


def traffic(
    model: Model,
    types: TensorTypes,
    groups: Iterable[Group],
    calls: Mapping[str, float] | None = None,
) -> dict[Group, Bytes]:
    """Bytes read and written per run by each group of nodes; None is not known.

    A node by itself moves what its counting rule says. In a group, a tensor that one member makes
    is not read by the others, and it is not written either unless somebody else needs it; what
    several members read is read once. `calls` are those of `analyzers.cost.cost`.
    """
    facts = facts_of(model, types)
    flow = dataflow.of(model)
    graph = _Graph(facts, flow, aliases(model, facts, flow))
    repeats, _ = trips.per_run(model, facts, calls or {})
    nodes = {node.key: node for node in model.nodes}
    found: dict[Group, Bytes] = {}
    for group in groups:
        seen: set[Address] = set()
        once = {key: graph.moved(nodes[key], group, seen) for key in group}
        known = [size * repeats[key] for key, size in once.items() if size is not None]
        found[group] = round(sum(known)) if len(known) == len(once) else None
    return found


@dataclass(frozen=True)
class _Graph:
    """What is known of the tensors of a model."""

    facts: Facts
    flow: Dataflow
    aliases: Aliases

    def moved(self, node: Node, group: Collection[str], seen: set[Address]) -> Bytes:
        """Bytes that one execution of `node`, as a member of `group`, reads and writes.

        `seen` is what members before it have read, to which it adds.
        """
        op = Operation(node, self.facts)
        rule = registry.find(node.domain, node.op_type)
        try:
            read, written = rule.traffic(op) if rule else (None, None)
        except (UnknownWorkError, ValueError, IndexError):
            return None
        roots = {tensor: self.aliases.root(tensor) for tensor in self.flow.read(node)}
        inside = [t for t, root in roots.items() if root in seen or self._is_made_by(root, group)]
        if read:  # a view has it read by those that use its output
            seen.update(roots.values())
        unseen = [t for t in self.flow.made(node) if not self._leaves(t, group)]
        kept, dropped = self._size(inside, node), self._size(unseen, node)
        if read is None or written is None or kept is None or dropped is None:
            return None
        # A rule may count less than whole tensors, as that of a view or of Gather does.
        return max(0, read - kept) + max(0, written - dropped)

    def _is_made_by(self, tensor: Address, group: Collection[str]) -> bool:
        maker = self.flow.makers.get(tensor)
        return maker is not None and maker.key in group

    def _leaves(self, tensor: Address, group: Collection[str]) -> bool:
        """Whether anyone but the group needs it, under whatever name."""
        names = self.aliases.names(tensor)
        readers = (reader for name in names for reader in self.flow.readers.get(name, ()))
        return not self.flow.results.isdisjoint(names) or any(r.key not in group for r in readers)

    def _size(self, tensors: Iterable[Address], node: Node) -> Bytes:
        sizes = [self.facts.operand(name, node.scope).nbytes for _, name in tensors]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
