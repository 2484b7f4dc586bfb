"""Checks the calls of a model's functions before they are inlined: arguments, and nodes to make."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import onnx

from tracer.errors import LimitError, ModelError
from tracer.graph.model import node_protos, signature

MOST_NODES = 1_000_000
"""Functions that call each other twice, 30 deep, are 2 kB of file, and 10^9 nodes."""

_Signature = tuple[str, str, str]


def check(proto: onnx.ModelProto, name: str) -> None:
    """Checks all calls; `name` is the model's, for messages.

    Raises ModelError for a call with more arguments than its function has, and for functions that
    call each other in a circle; LimitError for more than `MOST_NODES` nodes after inlining.
    """
    if not proto.functions:
        return
    functions = {signature(f): f for f in proto.functions}
    nodes = {of: list(node_protos(function)) for of, function in functions.items()}
    main = list(node_protos(proto.graph))
    for node in (*main, *(inner for body in nodes.values() for inner in body)):
        function = functions.get(signature(node))
        if function is not None:
            _check_arguments(node, function, name)
    sizes = dict.fromkeys(functions, 1)
    for of in _from_inside(nodes, name):
        sizes[of] = sum(sizes.get(signature(node), 1) for node in nodes[of])
    _check_size(sum(sizes.get(signature(node), 1) for node in main), name)


def _check_arguments(node: onnx.NodeProto, function: onnx.FunctionProto, name: str) -> None:
    for role, passed, taken in (
        ("inputs", node.input, function.input),
        ("outputs", node.output, function.output),
    ):
        if len(passed) > len(taken):
            raise ModelError(
                f"{name}: node '{node.name}' calls the function {function.name} with "
                f"{len(passed)} {role}, and it has {len(taken)}",
                "Export the model again, or repair the graph.",
            )


def _from_inside(nodes: dict[_Signature, list[onnx.NodeProto]], name: str) -> Sequence[_Signature]:
    """Returns the functions, each after all functions that it calls."""
    calls = {of: {signature(node) for node in body} & nodes.keys() for of, body in nodes.items()}
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        circle = " → ".join(called for _, called, _ in error.args[1])
        raise ModelError(f"{name}: functions call each other in a circle: {circle}") from error


def _check_size(count: int, name: str) -> None:
    if count > MOST_NODES:
        text = f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1}"
        raise LimitError(
            f"{name} has {text} nodes after its functions are inlined",
            f"At most {MOST_NODES:,} are supported.",
        )
