"""ModelInfo: which model a result is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.graph.model import Model
from tracer.records.topology import Topology


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model was traced.

    `topology` says how its nodes are connected; None for a model of a framework, which has no
    graph, and in files of earlier versions. `path` is the model's file, where it was when it was
    read; None for a model in memory. Raises ValueError for a topology of other nodes.
    """

    name: str
    sha256: str
    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    nodes: int
    params: int | None = None
    topology: Topology | None = field(default=None, repr=False)
    path: str | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.topology is not None and len(self.topology.nodes) != self.nodes:
            raise ValueError(f"topology: {len(self.topology.nodes)} nodes, not {self.nodes}")

    @classmethod
    def of(cls, model: Model, params: int | None = None) -> ModelInfo:
        """Returns the identity of `model`; `params` counts a shared weight once."""
        producer = f"{model.proto.producer_name} {model.proto.producer_version}".strip()
        return cls(
            name=model.name.rpartition("/")[2],
            sha256=model.sha256,
            ir_version=model.proto.ir_version,
            opsets=dict(model.opsets),
            producer=producer,
            nodes=len(model.nodes),
            params=params,
            topology=Topology.of(model),
            path=None if model.path is None else str(model.path.resolve()),
        )
