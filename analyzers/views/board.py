"""What TensorBoard shows of a result: a graph, numbers by step, histograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoardNode:
    """A node in the graph: its path of modules, what its id in the trace is, and what it reads.

    `inputs` are positions of earlier nodes.
    """

    path: tuple[str, ...]
    key: str
    op_type: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number at a step, which is a batch size."""

    tag: str
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values lie below each of `limits` and not below the limit before."""

    tag: str
    step: int
    low: float
    high: float
    limits: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Board:
    """`times` has for each run, by its name, µs and bytes of output of nodes by key."""

    nodes: Sequence[BoardNode]
    times: Mapping[str, Mapping[str, tuple[float, int]]]
    scalars: Sequence[Scalar]
    histograms: Sequence[Histogram]
