"""Compare the values of two models on the same input, and find the first layer that differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analyzers.compare.alignment import align
from analyzers.compare.rows import rows_of
from tracer.interpreter.recording import statistics
from tracer.support.tolerance import Tolerance, compare


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a model: its outputs in order, and the first output of each node by key.

    `nodes` is its node table, with or without times.
    """

    label: str
    nodes: pd.DataFrame = field(repr=False)
    outputs: Sequence[tuple[str, Any]] = field(repr=False)
    by_node: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Differences of the second model's values from the first model's.

    `layers` and `outputs` have a row for each common tensor, in the order of the first: `layer` or
    `output`, `max_abs`, `max_rel`, `max_ulp`, `nan_a`, `nan_b`, `inf_a`, `inf_b`, and
    `fault` in words, '' within tolerance. `first_divergence` is the first layer with a fault.
    """

    first: str
    second: str
    tolerance: Tolerance
    layers: pd.DataFrame = field(repr=False)
    outputs: pd.DataFrame = field(repr=False)
    first_divergence: str | None
    notes: tuple[str, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether a layer or an output is out of tolerance."""
        return any((table["fault"] != "").any() for table in (self.layers, self.outputs))


def numbers(first: Values, second: Values, tolerance: Tolerance) -> Numbers:
    """Compares each layer at its last tensor that has the same shape in both models."""
    tables = (first.nodes, second.nodes)
    rows = []
    for layer in align([rows_of(nodes) for nodes in tables]):
        keys = [
            [str(nodes["node"].iloc[index]) for index in reversed(indices)]
            for nodes, indices in zip(tables, layer.rows, strict=True)
        ]
        pair = _last_same_shape(first, second, *keys)
        if pair is not None:
            name = {"layer": pair[0], "layer_b": pair[1]}
            values = first.by_node[pair[0]], second.by_node[pair[1]]
            rows.append(name | _difference(*values, tolerance))
    outputs = [
        {"output": name, "output_b": other} | _difference(ours, theirs, tolerance)
        for (name, ours), (other, theirs) in zip(first.outputs, second.outputs, strict=False)
    ]
    faults = (row["layer"] for row in rows if row["fault"])
    return Numbers(
        first=first.label,
        second=second.label,
        tolerance=tolerance,
        layers=_frame(rows, "layer"),
        outputs=_frame(outputs, "output"),
        first_divergence=next(faults, None),
        notes=_notes(first, second),
    )


def _last_same_shape(
    first: Values, second: Values, keys: Sequence[str], other_keys: Sequence[str]
) -> tuple[str, str] | None:
    """Returns the last nodes with values of one shape; a folded node has no value."""
    for key in keys:
        for other in other_keys:
            a, b = first.by_node.get(key), second.by_node.get(other)
            if getattr(a, "shape", None) == getattr(b, "shape", ()):
                return key, other
    return None


def _difference(ours: Any, theirs: Any, tolerance: Tolerance) -> dict[str, Any]:
    difference = compare(theirs, ours, tolerance)  # relative to the first
    stats = statistics(ours), statistics(theirs)
    return {
        "max_abs": difference.max_abs,
        "max_rel": difference.max_rel,
        "max_ulp": difference.max_ulp,
        "nan_a": stats[0].nan if stats[0] else None,
        "nan_b": stats[1].nan if stats[1] else None,
        "inf_a": stats[0].inf if stats[0] else None,
        "inf_b": stats[1].inf if stats[1] else None,
        "fault": difference.fault,
    }


def _frame(rows: Sequence[Mapping[str, Any]], name: str) -> pd.DataFrame:
    columns = (name, f"{name}_b", "max_abs", "max_rel", "max_ulp", "nan_a", "nan_b", "inf_a",
               "inf_b", "fault")  # fmt: skip
    table = pd.DataFrame(list(rows), columns=list(columns))
    floats = dict.fromkeys(("max_abs", "max_rel", "max_ulp"), "float64")
    counts = dict.fromkeys(("nan_a", "nan_b", "inf_a", "inf_b"), "Int64")
    return table.astype({**floats, **counts})


def _notes(first: Values, second: Values) -> tuple[str, ...]:
    if len(first.outputs) == len(second.outputs):
        return ()
    return (
        f"{first.label} has {len(first.outputs)} outputs and {second.label} {len(second.outputs)}: "
        "the first ones are compared",
    )
