"""Which node a kernel ends with, by its name and the names of its outputs."""

from collections.abc import Iterable, Iterator

from tracer.analyzers.attribution.graph import Graph
from tracer.graph.model import Node
from tracer.graph.operators import returns_integers
from tracer.records.trace import Kernel

_NCHWC = "_nchwc"
_SUM_INPUT = 3
"""Position of the tensor that a com.microsoft Conv adds to its result."""

_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid"})


def named_ends(graph: Graph, kernel: Kernel) -> Iterator[Node]:
    """Yields the last nodes of a kernel by its name and the names of its outputs."""
    ends = distinct(graph.makers[name] for name in kernel.outputs if name in graph.makers)
    if ends:
        yield from ends
    elif kernel.node in graph.by_key:
        yield from _quantized(graph, kernel, graph.by_key[kernel.node])
    elif kernel.name.endswith(_NCHWC):
        tensor = kernel.name.removesuffix(_NCHWC)
        if tensor in graph.makers:
            yield from _extended(graph, kernel, graph.makers[tensor])


def _extended(graph: Graph, kernel: Kernel, node: Node) -> Iterator[Node]:
    """Yields `node`, then the residual Add and the activation fused after it.

    The kernel keeps the name that it has when a Conv is rewritten to the blocked layout; fusions
    come later (onnxruntime's nchwc_transformer.cc).
    """
    yield node
    if len(kernel.inputs) > _SUM_INPUT:
        addition = _only_reader(graph, node, frozenset({"Add", "Sum"}))
        if addition is not None:
            yield addition
            node = addition
    if "activation" in kernel.attributes and node.op_type not in _ACTIVATIONS:
        activation = _only_reader(graph, node, _ACTIVATIONS)
        if activation is not None:
            yield activation


def _quantized(graph: Graph, kernel: Kernel, node: Node) -> Iterator[Node]:
    """Yields `node`, then the QuantizeLinear after it if the kernel returns integers."""
    yield node
    if returns_integers(kernel.op_type) and not returns_integers(node.op_type):
        activation = _only_reader(graph, node, _ACTIVATIONS)
        quantizer = _only_reader(graph, activation or node, frozenset({"QuantizeLinear"}))
        if quantizer is not None:
            yield quantizer


def _only_reader(graph: Graph, node: Node, kinds: frozenset[str]) -> Node | None:
    readers = [r for name in node.outputs for r in graph.readers.get(name, [])]
    if len(readers) == 1 and readers[0].op_type in kinds:
        return readers[0]
    return None


def distinct(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes without repetitions: a node may have thousands of outputs."""
    return list({node.key: node for node in nodes}.values())
