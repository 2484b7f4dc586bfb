"""What the sums of each sample did, over all nodes with narrow accumulators."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from tracer.accumulators.statistics.partial_sums import Overflow, Tally
from tracer.errors import InputError
from tracer.support.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class SampleSums:
    """Statistics of each sample in the order of the data; int64 arrays (samples,).

    They are those of `Tally` at each node's own width, over all nodes: counts are added, extremes
    are those of all sums. `worst_node` is the index in `nodes` of the node with the most sums that
    overflow, -1 where none does. Without `outputs` the extremes of a sample are undefined.
    """

    nodes: tuple[str, ...]
    outputs: Array
    overflow_outputs: Array
    transient_outputs: Array
    persistent_outputs: Array
    saturation_events: Array
    outputs_changed: Array
    max_abs_error: Array
    acc_min: Array
    acc_max: Array
    final_min: Array
    final_max: Array
    bits_observed: Array
    worst_node: Array

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by name, for a file, without copying them."""
        return {name: getattr(self, name) for name in QUANTITIES}

    @classmethod
    def from_arrays(cls, nodes: tuple[str, ...], arrays: Mapping[str, Array]) -> SampleSums:
        """Returns the statistics of `arrays`. Raises InputError for missing or unequal arrays."""
        shapes = {arrays[name].shape if name in arrays else None for name in QUANTITIES}
        if len(shapes) > 1 or not all(shape and len(shape) == 1 for shape in shapes):
            raise InputError(
                "the stored statistics of samples are incomplete",
                "The file was damaged, or written by another version; measure again.",
            )
        return cls(nodes, **{name: arrays[name].astype(np.int64) for name in QUANTITIES})


QUANTITIES = tuple(field.name for field in fields(SampleSums) if field.name != "nodes")


class SampleRecorder:
    """Collects the statistics of one sample after the other: 13 numbers for each."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._columns = {name: array("q") for name in QUANTITIES}

    def add(self, tallies: Mapping[str, Tally]) -> None:
        """Adds a sample: the tally of each node by its key; nodes without sums do not count."""
        of_nodes = {node: _of_node(tally) for node, tally in tallies.items() if tally.outputs.any()}
        row = {
            name: _JOIN.get(name, sum)(own[name] for own in of_nodes.values()) if of_nodes else 0
            for name in QUANTITIES[:-1]
        }
        worst = max(of_nodes, key=lambda node: of_nodes[node]["overflow_outputs"], default="")
        row["worst_node"] = -1
        if row["overflow_outputs"]:
            row["worst_node"] = self._nodes.setdefault(worst, len(self._nodes))
        for name, value in row.items():
            self._columns[name].append(value)

    def collected(self) -> SampleSums:
        """Returns the statistics of all samples so far."""
        columns = {name: np.array(values, np.int64) for name, values in self._columns.items()}
        return SampleSums(tuple(self._nodes), **columns)


_JOIN: Mapping[str, Callable[[Iterable[int]], int]] = {
    "acc_min": min, "acc_max": max, "final_min": min, "final_max": max,
    "max_abs_error": max, "bits_observed": max,
}  # fmt: skip
"""How quantities of two nodes are joined; other quantities are added."""


def _of_node(tally: Tally) -> dict[str, int]:
    """The statistics of all channels of a node that summed."""
    seen = tally.outputs > 0
    counts = tally.overflow(tally.accumulator.bits)
    return {
        **{field.name: int(getattr(counts, field.name).sum()) for field in fields(Overflow)},
        "saturation_events": int(tally.saturation_events.sum()),
        "outputs_changed": int(tally.outputs_changed.sum()),
        "max_abs_error": int(tally.max_abs_error.max()),
        "acc_min": int(tally.acc_min[seen].min()),
        "acc_max": int(tally.acc_max[seen].max()),
        "final_min": int(tally.final_min[seen].min()),
        "final_max": int(tally.final_max[seen].max()),
        "bits_observed": int(tally.bits_observed.max()),
    }
