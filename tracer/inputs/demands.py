"""What weights and attention demand of the inputs that they read: sizes, by axis."""

from collections.abc import Mapping

from tracer import shapes
from tracer.graph import operators, tensor_type
from tracer.graph.model import Address, Model, Node

_KEEPS_AXES = frozenset({
    "Cast", "DequantizeLinear", "DynamicQuantizeLinear", "Identity", "QuantizeLinear",
})  # fmt: skip
"""Operators whose output 0 has the axes of input 0."""
_STATES, _STATE_WEIGHTS = (5, 6), 2
"""Inputs of a recurrent layer that are states, and the weights that they meet."""
_CACHES = {"GroupQueryAttention": (3, 4), "MultiHeadAttention": (6, 7)}
"""Inputs of an attention that are past keys and values."""


def sizes_from_weights(model: Model, name: str, rank: int) -> dict[int, int]:
    """Returns the sizes that the weights it meets demand of input `name`, by axis.

    The channels of a convolution, the features of a matrix product or a recurrent layer.
    """
    return {
        axis % rank: size
        for node, position in readers(model, ("", name))
        for axis, size in _demand(model, node, position).items()
        if -rank <= axis < rank and size > 0
    }


def _demand(model: Model, node: Node, position: int) -> Mapping[int, int]:
    """Returns the sizes that the weights of `node` demand of its input `position`, by axis."""
    product = operators.PRODUCTS.get(node.op_type)
    if product is None or product.weights is None or node.domain:
        return {}
    is_state = product.kind == operators.RECURRENT and position in _STATES
    weight = weight_shape(model, node, _STATE_WEIGHTS if is_state else product.weights)
    if weight is None or not (is_state or position == 0):
        return {}
    attributes = {each.name: each.i for each in node.proto.attribute}
    match product.kind:
        case operators.CONVOLUTION if len(weight) > 2:
            return {1: weight[1] * attributes.get("group", 1)}
        case operators.TRANSPOSED if len(weight) > 2:
            return {1: weight[0]}
        case operators.MATRIX if len(weight) >= 2:
            is_transposed = node.op_type == "Gemm" and attributes.get("transB", 0)
            axis = 0 if attributes.get("transA", 0) else -1
            return {axis: weight[-1 if is_transposed else -2]}
        case operators.RECURRENT if len(weight) == 3:
            return {0: weight[0], 2: weight[2]} if is_state else {2: weight[2]}
    return {}


def is_read_in_steps(model: Model, name: str) -> bool:
    """Returns whether axis 0 of input `name` counts the steps of a recurrent layer or a Scan."""
    for node, position in readers(model, ("", name)):
        attributes = {each.name: each.i for each in node.proto.attribute}
        if node.op_type in ("GRU", "LSTM", "RNN") and not attributes.get("layout"):
            states = 0
        elif node.op_type == "Scan" and "scan_input_axes" not in attributes:
            states = len(node.inputs) - attributes["num_scan_inputs"]
        else:
            continue
        if position == states or (node.op_type == "Scan" and position > states):
            return True
    return False


def weight_shape(model: Model, node: Node, position: int) -> tuple[int, ...] | None:
    """Returns the shape of the stored weight that is input `position` of `node`; None for others.

    A weight may be a Constant, or stored in integers and converted first.
    """
    if position >= len(node.inputs) or not node.inputs[position]:
        return None
    path, name = model.dataflow.address(node.inputs[position], node.scope)
    maker = model.dataflow.makers.get((path, name))
    while maker is not None and maker.op_type in _KEEPS_AXES and maker.inputs[0]:
        node = maker
        path, name = model.dataflow.address(node.inputs[0], node.scope)
        maker = model.dataflow.makers.get((path, name))
    if maker is not None and maker.op_type == "Constant":
        tensors = (a.t for a in maker.proto.attribute if a.name == "value")
        return next((tuple(tensor.dims) for tensor in tensors), None)
    if maker is not None:
        return None
    scope = next(each for each in node.scope.outward() if each.path == path)
    return next((tuple(w.dims) for w in scope.graph.initializer if w.name == name), None)


def readers(model: Model, tensor: Address) -> list[tuple[Node, int]]:
    """Returns the nodes that read `tensor`, or what has its axes, and the input that it is."""
    found, same_axes = [], [tensor]
    for each in same_axes:  # grows
        for node in model.dataflow.readers.get(each, ()):
            names = (model.dataflow.address(n, node.scope) if n else None for n in node.inputs)
            found += [(node, position) for position, at in enumerate(names) if at == each]
            if node.op_type in _KEEPS_AXES and found[-1][1] == 0:
                same_axes.append((node.scope.path, node.outputs[0]))
    return found


def sizes_from_attention(model: Model, name: str) -> dict[int, int]:
    """Returns the sizes of input `name`, a cache [batch, heads, tokens, size], by axis.

    Those of heads and size, as far as they follow from a node that reads it; else none.
    onnxruntime-genai's builder leaves the size of a head open, which then follows from the query.
    """
    for node in model.dataflow.readers.get(("", name), ()):
        if node.domain != operators.MICROSOFT or name not in [
            node.inputs[at] for at in _CACHES.get(node.op_type, ()) if at < len(node.inputs)
        ]:
            continue
        attributes = {each.name: each.i for each in node.proto.attribute}
        heads = of_query = attributes.get("num_heads", 0)
        if node.op_type == "GroupQueryAttention":
            heads = attributes.get("kv_num_heads", 0)
            of_query += 0 if node.inputs[1] else 2 * heads  # keys and values are packed behind it
        smallest = {  # inference stops at symbols
            name: tuple(size if isinstance(size, int) else 1 for size in shape)
            for name, shape in tensor_type.declared_shapes(model.inputs).items()
        }
        query = shapes.infer(model, smallest).of(node.inputs[0], node.scope)
        width = query.shape[-1] if query is not None and query.shape else None
        if not isinstance(width, int) or not of_query:
            return {1: heads}
        packed = 2 if attributes.get("kv_cache_bit_width", 0) == 4 else 1
        return {1: heads, 3: width // of_query // packed}
    return {}
