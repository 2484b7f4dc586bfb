"""Which nodes of a model sum: those that add products, and those that add integers."""

from tracer.accumulators.engine.node_operands import NodeOperands, NoIntegerForm
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.multiplying import multiplies
from tracer.accumulators.nodes import lowerings
from tracer.errors import TracerError
from tracer.graph.model import Model, Node
from tracer.interpreter import values


def nodes_that_sum(model: Model) -> tuple[str, ...]:
    """Returns the keys of the nodes whose sums an accumulator computes, in order.

    Products count in any arithmetic; sums without products, as of Add, where they are integers.
    """
    scales = TensorScales(model)
    return tuple(
        node.key for node in model.nodes if multiplies(node) or _adds_integers(node, scales)
    )


def _adds_integers(node: Node, scales: TensorScales) -> bool:
    lowering = lowerings().get((node.domain, node.op_type))
    if lowering is None:
        return False
    try:
        attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
        lowering(NodeOperands(node, attributes, scales, None))
    except (NoIntegerForm, TracerError):
        return False
    return True
