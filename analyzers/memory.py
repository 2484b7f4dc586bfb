"""Count the bytes that are alive while a node runs, by liveness analysis of the user's graph.

A tensor lives from the node that computes it to the last node that reads it. Inputs of the model
live from the start, its outputs to the end. Nothing is computed in place, so inputs and outputs of
a node are alive together. A view has no bytes. Weights, constants and tensors computed from them
alone live all the time and are not counted (see `param_bytes`). Nodes have the order of the run, or
of the file.

While a body runs, everything around its node is alive, except the outputs of this node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analyzers.cost import parameters, traffic
from analyzers.cost.aliases import Aliases, aliases
from analyzers.cost.operation import LARGEST, Address, Facts, Operation, facts_of
from analyzers.cost.traffic import Bytes
from analyzers.schedule import ordered, readers
from tracer.graph.dataflow import Dataflow
from tracer.graph.model import Model, Node, Scope
from tracer.graph.shape_inference import TensorTypes
from tracer.records.trace import Run


def memory(
    model: Model, types: TensorTypes, groups: Sequence[tuple[str, ...]] = ()
) -> pd.DataFrame:
    """Returns `output_bytes` and `peak_bytes` (alive while the node runs) by node key, Int64.

    Both are of one execution, and missing if the size of a tensor is unknown. `groups` are the
    nodes of the kernels of a run, in the order they ran.
    """
    facts = facts_of(model, types)
    flow = model.dataflow
    weights = parameters.constants(model, facts)
    ran = {key: index for index, key in enumerate(dict.fromkeys(k for g in groups for k in g))}
    nodes: dict[str, list[Node]] = {}
    for node in model.nodes:
        nodes.setdefault(node.scope.path, []).append(node)
    graph = _Graph(nodes, facts, flow, aliases(model, facts, flow), weights, ran)
    around: dict[str, Bytes] = {"": 0}
    live: dict[str, Bytes] = {}
    for scope in model.scopes:  # a body after the one around it
        if scope.owner is not None:
            around[scope.path] = graph.beside_body(scope.owner, live[scope.owner.key])
        for key, size in graph.live(scope).items():
            live[key] = traffic.known_sum((around[scope.path], size))
    outputs = [traffic.total(Operation(node, facts).outputs()) for node in model.nodes]
    keys = [node.key for node in model.nodes]
    return pd.DataFrame(
        {
            "output_bytes": pd.array(outputs, dtype="Int64"),
            "peak_bytes": pd.array([live[key] for key in keys], dtype="Int64"),
        },
        index=keys,
    )


def arena(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """Returns `arena_bytes`, in use in the runtime's arena, by the main node of each kernel.

    A node with several kernels has their maximum. The table is empty if the runtime has no figures.
    """
    in_use: dict[str, int] = {}
    for kernel, group in zip(run.kernels, groups, strict=True):
        if group and kernel.arena_bytes is not None:
            in_use[group[0]] = max(in_use.get(group[0], 0), kernel.arena_bytes)
    return pd.DataFrame({"arena_bytes": pd.Series(in_use, dtype="Int64")})


_Span = tuple[int, int]
"""Positions of the first and the last node of a graph that a tensor is alive at."""


@dataclass(frozen=True)
class _Graph:
    nodes: Mapping[str, Sequence[Node]]
    facts: Facts
    flow: Dataflow
    aliases: Aliases
    weights: frozenset[Address]
    ran: Mapping[str, int]

    def live(self, scope: Scope) -> dict[str, Bytes]:
        """Returns the bytes of one graph's tensors that are alive at each node, by key."""
        nodes = ordered(self.nodes.get(scope.path, ()), self.flow, self.ran)
        change, unknown = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)
        for (_, name), (first, last) in self._spans(scope, nodes).items():
            size = self.facts.operand(name, scope).nbytes
            which, amount = (unknown, 1) if size is None else (change, size)
            which[first] += amount
            which[last + 1] -= amount
        alive: dict[str, Bytes] = {}
        total = missing = 0
        for node, delta, gap in zip(nodes, change, unknown, strict=False):
            total, missing = total + delta, missing + gap
            alive[node.key] = None if missing or total > LARGEST else total
        return alive

    def beside_body(self, owner: Node, live: Bytes) -> Bytes:
        """Returns the bytes alive around a node while its body runs, without its outputs."""
        outputs = (self.facts.operand(name, owner.scope) for _, name in self.flow.outputs_of(owner))
        written = traffic.total(outputs)
        return None if live is None or written is None else live - written

    def _spans(self, scope: Scope, nodes: Sequence[Node]) -> dict[Address, _Span]:
        if not nodes:
            return {}
        position = {node.key: index for index, node in enumerate(nodes)}
        born = {(scope.path, value.name): 0 for value in scope.graph.input}
        for index, node in enumerate(nodes):
            born.update((tensor, index) for tensor in self.flow.outputs_of(node))
        return {
            tensor: (index, max(index, self._last(tensor, position)))
            for tensor, index in born.items()
            if tensor not in self.weights and self.aliases.root(tensor) == tensor
        }

    def _last(self, tensor: Address, position: Mapping[str, int]) -> int:
        """Returns the position of the last node that needs the bytes of a tensor, or -1."""
        names = self.aliases.names(tensor)
        if not self.flow.results.isdisjoint(names):
            return len(position) - 1
        readers_of = (key for name in names for key in readers(name, self.flow, position))
        return max((position[key] for key in readers_of), default=-1)
