"""The sizes of a cache that the attention it meets demands: heads and their size.

onnxruntime-genai's builder leaves the size of a head open, which then follows from the query.
"""

from collections.abc import Callable, Mapping

from tracer import shapes
from tracer.graph.model import Model, Node
from tracer.inputs.dims import declared_shapes

_MICROSOFT = "com.microsoft"
_Heads = Callable[[Node], tuple[int, int]]


def _integer(node: Node, name: str) -> int:
    return next((a.i for a in node.proto.attribute if a.name == name), 0)


def _grouped(node: Node) -> tuple[int, int]:
    """Returns the heads of the cache, and those that the first input has."""
    count, groups = _integer(node, "num_heads"), _integer(node, "kv_num_heads")
    return groups, count if node.inputs[1] else count + 2 * groups


def _alike(node: Node) -> tuple[int, int]:
    return _integer(node, "num_heads"), _integer(node, "num_heads")


_CACHES: Mapping[str, tuple[tuple[int, int], _Heads]] = {
    # operator: (positions of past keys and values, its heads)
    "GroupQueryAttention": ((3, 4), _grouped),
    "MultiHeadAttention": ((6, 7), _alike),
}


def cache_sizes(model: Model, name: str) -> dict[int, int]:
    """Returns the sizes of input `name`, a cache [batch, heads, tokens, size], by axis.

    Those of heads and size, as far as they follow from a node that reads it; else none.
    """
    for node in model.dataflow.readers.get(("", name), ()):
        places, heads_of = _CACHES.get(node.op_type, ((), _alike))
        if node.domain != _MICROSOFT or not any(_is_at(node, at, name) for at in places):
            continue
        heads, of_query = heads_of(node)
        query = shapes.infer(model, _smallest(model)).of(node.inputs[0], node.scope)
        width = query.shape[-1] if query is not None and query.shape else None
        if not isinstance(width, int) or not of_query:
            return {1: heads}
        packed = 2 if _integer(node, "kv_cache_bit_width") == 4 else 1
        return {1: heads, 3: width // of_query // packed}
    return {}


def _smallest(model: Model) -> dict[str, tuple[int, ...]]:
    """Returns shapes of the inputs with 1 for each open size: inference stops at symbols."""
    return {
        name: tuple(size if isinstance(size, int) else 1 for size in shape)
        for name, shape in declared_shapes(model).items()
    }


def _is_at(node: Node, at: int, name: str) -> bool:
    return at < len(node.inputs) and node.inputs[at] == name
