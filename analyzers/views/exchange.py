"""What views hand to formats of other programs: timelines, stacks, boards, values of nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = str | int | float
"""What a viewer shows beside a name."""


@dataclass(slots=True)
class Slice:
    """What took from `begin_ns` to `end_ns`, with what ran inside it, in the order of time."""

    name: str
    begin_ns: int
    end_ns: int
    values: Mapping[str, Value] = field(default_factory=dict)
    inner: "list[Slice]" = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Track:
    """A row of slices, one after the other."""

    name: str
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of bytes that holds from each point in time, in ns, to the next."""

    name: str
    points: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Process:
    """Tracks and counters that belong together and begin at 0."""

    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that a viewer shows of one result; `notes` are sentences about it."""

    title: str
    processes: tuple[Process, ...]
    notes: tuple[str, ...] = ()


def boundaries(slices: Sequence[Slice]) -> Iterator[tuple[int, Slice | None]]:
    """Yields the begin of each slice, and its end with None, in the order of time."""
    for each in slices:
        yield each.begin_ns, each
        yield from boundaries(each.inner)
        yield each.end_ns, None


@dataclass(frozen=True, slots=True)
class Frame:
    """A module, or a node with the line of source that created it; '' and 0 where unknown."""

    name: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A node below its modules, outermost first: its time in µs, its MACs, the bytes it moves.

    A value is 0 where it is not known, as the formats have no missing values.
    """

    stack: tuple[Frame, ...]
    time_us: float
    macs: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The samples of one run, in the order in which they ran."""

    name: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Stacks:
    """The profiles of one result; `notes` are sentences about it."""

    title: str
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True)
class NodeValues:
    """Values of the whole model, and of each node by its name in the model, with their names.

    Nodes without a name of their own are left out: a viewer could not find them.
    """

    model: Mapping[str, Value]
    nodes: Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class NodeColors:
    """One number for each node, by its id in Model Explorer, and its colour as `#rrggbb`."""

    name: str
    nodes: Mapping[str, tuple[float, str]]


Messages = Mapping[str, Sequence[str]]
"""The fields of each message: type, `*` if repeated, name, number, as in `int64* value 2`."""


def message_classes(package: str, messages: Messages) -> dict[str, Any]:
    """Returns the class of each message, as protobuf makes it from the table."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for line in fields:
            kind, field_name, number = line.split()
            scalar, repeated = kind.removesuffix("*"), kind.endswith("*")
            described = message.field.add(name=field_name, number=int(number))
            described.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if scalar in messages:
                described.type, described.type_name = kinds.TYPE_MESSAGE, f".{package}.{scalar}"
            else:
                described.type = getattr(kinds, f"TYPE_{scalar.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}
