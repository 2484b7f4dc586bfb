"""Tells the kernels of a profile apart, whose events name them only within a graph.

`node_index` begins at 0 in each body, and old versions wrote no index, or no names. In which body
an event is follows from the event around it; the branches of an If differ by what ran in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tracer.executors.onnxruntime import self_times
from tracer.executors.onnxruntime.profile_events import EXECUTE, Events, Label
from tracer.graph.tensor_type import common_types

_FIRST = EXECUTE + 1
_MAIN, _BROKEN = -1, -2

_Kind: TypeAlias = tuple[str, str, str, int]
"""Name, operator and index of a kernel, and its `place`."""


@dataclass(slots=True)
class SeparateKernel:
    """One kernel: how the profile describes it, and where it ran.

    `owner` is the position of the kernel in whose `body` it ran; None in the main graph. Where the
    profile has no index, `place` is the one among the kernels of its name and operator there.
    `numbers` are those of its labels, one for each combination of types.
    """

    label: Label
    owner: int | None
    body: Hashable
    place: int
    numbers: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The name in the profile; for a kernel without one, its operator and its number."""
        number = f"_{self.label.node_index}" if self.label.node_index else f"#{self.place + 1}"
        return self.label.name or self.label.op_type + number

    def add(self, number: int, label: Label) -> None:
        """Adds the calls of one label."""
        if number not in self.numbers:
            self.numbers.add(number)
            self.label = replace(
                self.label,
                first_us=min(self.label.first_us, label.first_us),
                input_types=common_types([self.label.input_types, label.input_types]),
                output_types=common_types([self.label.output_types, label.output_types]),
            )


def tell_apart(
    events: Events, labels: Sequence[Label]
) -> tuple[Events, tuple[SeparateKernel, ...]]:
    """Returns the events with a label for each kernel, and the kernels; owners come first.

    `labels` have calls of other types apart. Nodes of a body whose owner has no event, as the run
    failed in it, are left out.
    """
    owners, frames = _nesting(events)
    numbers = (events.label - _FIRST).tolist()
    kinds = _kinds(events, frames, labels)
    ran: dict[int, set[_Kind]] = defaultdict(set)
    for node, kind in kinds.items():
        ran[frames[node]].add(kind)
    kernels: list[SeparateKernel] = []
    known: dict[Hashable, int] = {}
    kernel_of: dict[int, int | None] = {_MAIN: None}
    label = events.label.copy()
    for node, kind in kinds.items():
        if owners[node] not in kernel_of:
            label[node] = -1
            continue
        owner = kernel_of[owners[node]]
        divides = owner is not None and kernels[owner].label.op_type == "If"
        key = owner, frozenset(ran[frames[node]]) if divides else None, kind
        place = known.setdefault(key, len(kernels))
        if place == len(kernels):
            kernels.append(SeparateKernel(labels[numbers[node]], *key[:2], kind[-1]))
        kernels[place].add(numbers[node], labels[numbers[node]])
        kernel_of[node] = place
        label[node] = place + _FIRST
    return replace(events, label=label).take(label >= 0), tuple(kernels)


def _nesting(events: Events) -> tuple[list[int], list[int]]:
    """Returns the node in whose body each event is, and the execution of a graph that it is in.

    The latter is the event of the execution or, where no event is around it, a number of its run.
    """
    runs = self_times.run_events(events)
    of_run = self_times.runs_around(events, runs, np.arange(len(events)))
    owners, frames = [_MAIN] * len(events), (-1 - of_run).tolist()
    for outer, inner in self_times.parents(events):
        frames[inner] = outer
        owners[inner] = owners[outer]
        if events.label[outer] > EXECUTE:
            owners[inner] = outer
        elif events.label[outer] == events.label[inner] == EXECUTE:
            owners[inner] = _BROKEN
    return owners, frames


def _kinds(events: Events, frames: Sequence[int], labels: Sequence[Label]) -> Mapping[int, _Kind]:
    """Returns what tells each node from others in its graph, in the order in which they began."""
    nodes = np.flatnonzero(events.label >= _FIRST)
    nodes = nodes[np.lexsort((-nodes, -events.dur[nodes], events.ts[nodes]))]
    seen: Counter[Hashable] = Counter()
    kinds: dict[int, _Kind] = {}
    for node in nodes.tolist():
        label = labels[events.label[node] - _FIRST]
        kind = label.name, label.op_type, label.node_index
        place = 0 if label.node_index else seen[frames[node], kind]
        seen[frames[node], kind] += 1
        kinds[node] = *kind, place
    return kinds
