"""Find views: tensors that share the bytes of another tensor."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracer.analyzers.cost import registry, traffic
from tracer.analyzers.cost.count import UnknownWorkError
from tracer.analyzers.cost.operation import Address, Operation
from tracer.graph.dataflow import Dataflow


@dataclass(frozen=True)
class Aliases:
    """`viewed` gives the tensor whose bytes a view shows, `all` every name of the same bytes."""

    viewed: Mapping[Address, Address]
    all: Mapping[Address, tuple[Address, ...]]

    def root(self, tensor: Address) -> Address:
        """Returns the tensor that owns the bytes."""
        return self.viewed.get(tensor, tensor)

    def names(self, tensor: Address) -> tuple[Address, ...]:
        """Returns all tensors with the bytes of this one, including itself."""
        root = self.root(tensor)
        return self.all.get(root, (root,))


def aliases(operations: Iterable[Operation], flow: Dataflow) -> Aliases:
    """Returns the views of a model: outputs of operators that move no bytes by their rule."""
    viewed: dict[Address, Address] = {}
    for op in operations:
        node = op.node
        if _is_view(op):
            source = flow.address(node.inputs[0], node.scope)
            viewed[node.scope.path, node.outputs[0]] = viewed.get(source, source)
    names: dict[Address, list[Address]] = {}
    for tensor, root in viewed.items():
        names.setdefault(root, [root]).append(tensor)
    return Aliases(viewed, {root: tuple(tensors) for root, tensors in names.items()})


def _is_view(op: Operation) -> bool:
    rule = registry.find(op.node.domain, op.op_type)
    if rule is None or rule.traffic is traffic.everything:  # most operators, told at once
        return False
    if not op.has(0) or not op.outputs():
        return False
    try:
        moves_nothing = rule.traffic(op) == (0, 0)
        size = op.output().nbytes
        return moves_nothing and size is not None and size == op.input(0).nbytes
    except (UnknownWorkError, ValueError, IndexError):  # ranks or attributes no operator allows
        return False
