"""Which model a result is of, and how its nodes are connected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tracer.graph.model import Model

_DEEPEST = 64
"""Most bodies inside each other. Protocol buffers nest a third of that."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Columns with an entry for each node, in the order of the model; a position is an index.

    `nodes` are keys, and `modules` what a node says of itself, '' for the root. `producers` are the
    positions of the nodes that compute what a node reads, each once, ascending, those outside its
    body included. `owners` has the position of the If, Loop or Scan whose body holds the node, None
    in the main graph. `inputs` has the readers of each input of the model, `outputs` the node that
    computes each output; None for an input or a weight that is an output. `names` are those in the
    model, '' where a node has none; None in files of earlier versions.

    Raises ValueError where a node reads what is computed later, or what it cannot see. So there is
    no cycle, whoever wrote the file.
    """

    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    modules: tuple[str | None, ...]
    producers: tuple[tuple[int, ...], ...]
    owners: tuple[int | None, ...]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, int | None]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.nodes)
        names = self.nodes if self.names is None else self.names
        columns = (self.op_types, self.modules, self.producers, self.owners, names)
        if not all(len(each) == count for each in columns):
            raise ValueError("topology: columns of other lengths")
        if len(set(self.nodes)) < count:
            raise ValueError("topology: a node twice")
        if not all(_rises(readers, count) for readers in self.inputs.values()):
            raise ValueError("topology: an input with other readers than nodes")
        for position, (read, owner) in enumerate(zip(self.producers, self.owners, strict=True)):
            if not _rises(read, position) or not (owner is None or 0 <= owner < position):
                raise ValueError(f"topology: node {position} reads or is in no earlier node")
        for maker in self.outputs.values():
            if maker is not None and not (0 <= maker < count and self.owners[maker] is None):
                raise ValueError("topology: an output of no node of the main graph")
        if any(owner is not None for owner in self.owners):
            self._check_bodies()

    @classmethod
    def of(cls, model: Model) -> "Topology":
        """Returns the connections of `model`."""
        flow, nodes = model.dataflow, model.nodes
        producers: list[list[int]] = [[] for _ in nodes]
        for address, maker in flow.makers.items():
            for reader in flow.readers.get(address, ()):
                if maker.index < reader.index:  # graphs of one attribute share their path
                    producers[reader.index].append(maker.index)
        owners = (node.scope.owner for node in nodes)
        outputs = {value.name: flow.makers.get(("", value.name)) for value in model.graph.output}
        return cls(
            nodes=tuple(node.key for node in nodes),
            op_types=tuple(node.op_type for node in nodes),
            modules=tuple(node.module for node in nodes),
            producers=tuple(tuple(sorted(set(each))) for each in producers),
            owners=tuple(None if owner is None else owner.index for owner in owners),
            inputs={
                value.name: tuple(node.index for node in flow.readers.get(("", value.name), ()))
                for value in model.inputs
            },
            outputs={n: None if maker is None else maker.index for n, maker in outputs.items()},
            names=tuple(node.proto.name for node in nodes),
        )

    def around(self, position: int) -> Iterator[int]:
        """Yields the owner of a node, the owner of this owner, and so on."""
        owner = self.owners[position]
        while owner is not None:
            yield owner
            owner = self.owners[owner]

    def _check_bodies(self) -> None:
        """Raises ValueError for a node that reads from a body that does not hold it."""
        depth = [0] * len(self.nodes)
        for position, owner in enumerate(self.owners):
            depth[position] = 0 if owner is None else depth[owner] + 1
            if depth[position] > _DEEPEST:
                raise ValueError(f"topology: bodies nested more than {_DEEPEST} deep")
            around = (position, *self.around(position))
            for producer in self.producers[position]:
                body = self.owners[producer]
                if not any(self.owners[at] == body and producer < at for at in around):
                    raise ValueError(f"topology: node {position} reads what it does not see")


def _rises(numbers: tuple[int, ...], end: int) -> bool:
    """Whether numbers from 0 to below `end` ascend."""
    return all(low < high for low, high in pairwise((-1, *numbers, end)))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model was traced.

    `topology` says how its nodes are connected; None for a model of a framework, which has no
    graph, and in files of earlier versions. `path` is the model's file, where it was when it was
    read; None for a model in memory. A weight that several nodes share counts once in `params` and
    `param_bytes`; files of earlier versions lack the latter. Raises ValueError for a topology of
    other nodes.
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
    param_bytes: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.topology is not None and len(self.topology.nodes) != self.nodes:
            raise ValueError(f"topology: {len(self.topology.nodes)} nodes, not {self.nodes}")

    @classmethod
    def of(
        cls, model: Model, parameters: tuple[int | None, int | None] = (None, None)
    ) -> "ModelInfo":
        """Returns the identity of `model`, with the number of its `parameters` and their bytes."""
        producer = f"{model.proto.producer_name} {model.proto.producer_version}".strip()
        return cls(
            name=model.name.rpartition("/")[2],
            sha256=model.sha256,
            ir_version=model.proto.ir_version,
            opsets=dict(model.opsets),
            producer=producer,
            nodes=len(model.nodes),
            params=parameters[0],
            param_bytes=parameters[1],
            topology=Topology.of(model),
            path=None if model.path is None else str(model.path.resolve()),
        )
