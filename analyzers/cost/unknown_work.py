"""Sums up why the work of nodes is unknown: a line for each cause, not for each node.

One shape that depends on data leaves the shapes of all tensors behind it unknown.
"""

from collections.abc import Mapping

from tracer.analyzers.cost import trips
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph.model import Node


def causes(typed: TypedModel, reasons: Mapping[str, tuple[str, str | None]]) -> tuple[str, ...]:
    """Returns a sentence for each cause of nodes of unknown work.

    `reasons` are by node key: as text, and the tensor whose shape is needed, if it is this.
    """
    if not reasons:
        return ()
    origins = _origins(typed)
    behind: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for node in typed.model.nodes:
        reason, name = reasons.get(node.key, (None, None))
        if name is not None:
            behind.setdefault(_origin(typed, origins, name, node), []).append(node.key)
        elif reason is not None:
            others.setdefault(reason, []).append(node.key)
    return (
        *(
            f"{keys[0] if len(keys) == 1 else f'{len(keys):,} nodes'} behind {origin}"
            for origin, keys in behind.items()
        ),
        *(f"{trips.brief_list(keys)}: {reason}" for reason, keys in others.items()),
    )


def _origins(typed: TypedModel) -> dict[str, str]:
    """Returns what first left the shape of an output open, by the key of the node."""
    origins: dict[str, str] = {}
    for node in typed.model.nodes:
        outputs = [typed.facts.operand(name, node.scope) for name in node.outputs if name]
        left_open = next((each for each in outputs if each.known_shape is None), None)
        if left_open is None:
            continue
        inputs = (typed.facts.operand(name, node.scope) for name in node.inputs if name)
        before = next((each.name for each in inputs if each.known_shape is None), None)
        if before is not None:
            origins[node.key] = _origin(typed, origins, before, node)
        else:
            is_tensor = left_open.dtype is not None and not node.domain
            why = "depends on data" if is_tensor else "onnx cannot infer"
            origins[node.key] = f"'{node.key}' ({node.qualified_type}), whose shape {why}"
    return origins


def _origin(typed: TypedModel, origins: Mapping[str, str], name: str, node: Node) -> str:
    """Returns what left the shape of the tensor `name` open, as `node` knows it."""
    path, name = typed.flow.address(name, node.scope)
    maker = typed.flow.makers.get((path, name))
    fed = f"'{name}', {'an input of a body' if path else 'an input'}, whose shape is unknown"
    return fed if maker is None else origins.get(maker.key, fed)
