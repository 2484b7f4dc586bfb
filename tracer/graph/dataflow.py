"""Makers and readers of each tensor, across the bodies of control flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.graph.model import Model, Node, Scope

Address = tuple[str, str]
"""A tensor: the path of the graph that defines it, and its name."""


@dataclass(frozen=True)
class Dataflow:
    """The tensors of a model.

    `names` has the names that each graph defines, by path; `makers` and `readers` the nodes that
    compute and read each tensor; `results` the outputs of the main graph and of bodies.
    """

    names: Mapping[str, frozenset[str]]
    makers: Mapping[Address, Node]
    readers: Mapping[Address, tuple[Node, ...]]
    results: frozenset[Address]

    @classmethod
    def of(cls, model: Model) -> Dataflow:
        """Indexes the tensors of `model`; `Model.dataflow` keeps the result."""
        makers = {(n.scope.path, name): n for n in model.nodes for name in n.outputs if name}
        names = {scope.path: _defined(scope) for scope in model.scopes}
        for path, name in makers:
            names[path].add(name)
        frozen = {path: frozenset(tensors) for path, tensors in names.items()}
        readers: dict[Address, list[Node]] = {}
        for node in model.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers.setdefault(_address(frozen, name, node.scope), []).append(node)
        results = (
            _address(frozen, value.name, scope)
            for scope in model.scopes
            for value in scope.graph.output
        )
        of_each = {at: tuple(nodes) for at, nodes in readers.items()}
        return cls(frozen, makers, of_each, frozenset(results))

    def address(self, name: str, scope: Scope) -> Address:
        """Returns the tensor called `name` in `scope`: names resolve from the inside out."""
        return _address(self.names, name, scope)

    def read(self, node: Node) -> Iterator[Address]:
        """Returns the tensors that `node` reads, each once, without the reads of its bodies."""
        return (self.address(name, node.scope) for name in dict.fromkeys(node.inputs) if name)

    def outputs_of(self, node: Node) -> Iterator[Address]:
        """Returns the tensors that `node` computes."""
        return ((node.scope.path, name) for name in node.outputs if name)


def _defined(scope: Scope) -> set[str]:
    graph = scope.graph
    names = {value.name for value in graph.input}
    names |= {weight.name for weight in graph.initializer}
    return names | {weight.values.name for weight in graph.sparse_initializer}


def _address(names: Mapping[str, frozenset[str]], name: str, scope: Scope) -> Address:
    outer: Scope | None = scope
    while outer is not None:
        if name in names.get(outer.path, ()):
            return outer.path, name
        outer = outer.parent
    return scope.path, name
