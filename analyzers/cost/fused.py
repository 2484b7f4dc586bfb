"""Bytes that a kernel of several nodes must move, without the tensors between its nodes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tracer.analyzers.cost import registry, trips
from tracer.analyzers.cost.count import UnknownWorkError
from tracer.analyzers.cost.operation import Address, Facts, Operation
from tracer.analyzers.cost.traffic import Bytes, known_sum
from tracer.analyzers.cost.typed_model import Aliases, TypedModel
from tracer.graph.model import Dataflow, Node

Group = tuple[str, ...]
"""Keys of the nodes of a kernel."""


def traffic(
    typed: TypedModel,
    groups: Iterable[Group],
    calls: Mapping[str, float] | None = None,
) -> dict[Group, Bytes]:
    """Returns bytes read and written per run by each group of nodes; None is unknown.

    A single node moves the bytes of its counting rule. In a group, a tensor that a member computes
    is not read by the other members, and is written only if a node outside needs it. A tensor that
    several members read is read once. `calls` as in `tracer.analyzers.cost.cost`.
    """
    graph = _Graph(typed.facts, typed.flow, typed.aliases)
    repeats, _ = trips.per_run(typed.model, typed.facts, calls or {})
    operations = {op.node.key: op for op in typed.operations}
    traffic_of: dict[Group, Bytes] = {}
    for group in groups:
        already_read: set[Address] = set()
        members = frozenset(group)
        once = {key: graph.traffic(operations[key], members, already_read) for key in group}
        known = [size * repeats[key] for key, size in once.items() if size is not None]
        traffic_of[group] = round(sum(known)) if len(known) == len(once) else None
    return traffic_of


@dataclass(frozen=True)
class _Graph:
    """Types, readers and views of the tensors of a model."""

    facts: Facts
    flow: Dataflow
    aliases: Aliases

    def traffic(self, op: Operation, group: Collection[str], already_read: set[Address]) -> Bytes:
        """Returns the bytes that one execution of a member of `group` reads and writes.

        `already_read` has the tensors that earlier members read; this node's are added.
        """
        node = op.node
        rule = registry.find(node.domain, node.op_type)
        try:
            read, written = rule.traffic(op) if rule else (None, None)
        except (UnknownWorkError, ValueError, IndexError):
            return None
        roots = {tensor: self.aliases.root(tensor) for tensor in self.flow.read(node)}
        inside = [
            t
            for t, root in roots.items()
            if root in already_read or self._is_computed_by(root, group)
        ]
        if read:  # the readers of a view's output read its bytes
            already_read.update(roots.values())
        unneeded = [t for t in self.flow.outputs_of(node) if not self._leaves(t, group)]
        not_read, not_written = self._size(inside, node), self._size(unneeded, node)
        if read is None or written is None or not_read is None or not_written is None:
            return None
        # A rule may count less than whole tensors, as that of a view or of Gather does.
        return max(0, read - not_read) + max(0, written - not_written)

    def _is_computed_by(self, tensor: Address, group: Collection[str]) -> bool:
        maker = self.flow.makers.get(tensor)
        return maker is not None and maker.key in group

    def _leaves(self, tensor: Address, group: Collection[str]) -> bool:
        """Returns whether a node outside the group or the model's output needs it, by any name."""
        names = self.aliases.names(tensor)
        readers = (reader for name in names for reader in self.flow.readers.get(name, ()))
        return not self.flow.results.isdisjoint(names) or any(r.key not in group for r in readers)

    def _size(self, tensors: Iterable[Address], node: Node) -> Bytes:
        return known_sum(self.facts.operand(name, node.scope).nbytes for _, name in tensors)
