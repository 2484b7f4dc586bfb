"""Compare the values of two models on the same input, and find the first layer that differs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare.alignment import align
from tracer.analyzers.compare.rows import rows_of
from tracer.interpreter.observers import statistics
from tracer.support.tolerance import Difference, Precision, Tolerance, compare, rounding

_ERRORS = ("max_abs", "max_share", "rms_share", "cosine")

_LOSS_DB = 10.0
"""A layer of a quantised model loses some dB to every layer before it; one that loses more than
this at once is where to look."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a model: its outputs in order, and the first output of each node by key.

    `nodes` is its node table, with or without times. `makers` are the keys of the nodes that
    compute the outputs, by the names of the outputs.
    """

    label: str
    nodes: pd.DataFrame = field(repr=False)
    outputs: Sequence[tuple[str, Any]] = field(repr=False)
    by_node: Mapping[str, Any] = field(repr=False)
    makers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Differences of the second model's values from the first model's.

    `layers` and `outputs` have a row for each common tensor, in the order of the first: `layer` or
    `output`, `max_abs`, `max_share`, `rms_share`, `cosine`, `nan_a`, `nan_b`, `inf_a`, `inf_b`, and
    `fault` in words, '' within tolerance. A layer has besides `own`, the `max_share` where the
    second model computes it from the values of the first, and `own_fault`; both are missing where
    it `is_isolated` not. An output has besides `made_by`, the layer that computes it; it is missing
    where no common layer does. With `no_verdict`, which says why, differences are no fault.
    """

    first: str
    second: str
    tolerance: Tolerance
    layers: pd.DataFrame = field(repr=False)
    outputs: pd.DataFrame = field(repr=False)
    is_isolated: bool
    no_verdict: str = ""
    notes: tuple[str, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether the models compute different things.

        So it is if a layer is out of tolerance on the values of the first model, or an output is
        whose own layer is not: what a runtime optimised then computes something else. Rounding that
        adds up from layer to layer is none, unless a relative tolerance was asked for.
        """
        if self.no_verdict:
            return False
        exceeded = any((table["fault"] != "").any() for table in (self.layers, self.outputs))
        if not self.is_isolated or self.tolerance.relative is not None:
            return exceeded
        return bool((self.layers["own_fault"] != "").any()) or bool(self.differing_optimised)

    @property
    def first_divergence(self) -> str | None:
        """The first layer that computes something else, or that is out of tolerance."""
        for column in ("own_fault", "fault"):
            faulty = self.layers.loc[self.layers[column] != "", "layer"]
            if len(faulty):
                return str(faulty.iloc[0])
        return None

    @property
    def first_loss(self) -> tuple[str, float, float] | None:
        """The first layer with a signal-to-noise ratio over 10 dB below that of all before it.

        Returns the layer, the least ratio (dB) before it and its own; None if there is none.
        """
        least = math.inf
        for layer, ratio in zip(self.layers["layer"], sqnr(self.layers["rms_share"]), strict=True):
            if ratio < least - _LOSS_DB and math.isfinite(least):
                return str(layer), least, ratio
            if not math.isnan(ratio):
                least = min(least, ratio)
        return None

    @property
    def differing_optimised(self) -> tuple[str, ...]:
        """The outputs out of tolerance whose own layer, which ran without optimisation, is not."""
        rounded = self.layers.loc[self.layers["fault"] != "", "layer"]
        faulty = self.outputs[self.outputs["fault"] != ""]
        return tuple(faulty.loc[~faulty["made_by"].isin(rounded), "output"])


def sqnr(rms_share: "pd.Series[float]") -> list[float]:
    """Returns signal-to-noise ratios in dB of errors (RMS ÷ RMS of the signal); NaN without noise.

    A layer whose error is infinite or unknown has none either.
    """
    return [
        -20 * math.log10(each) if 0 < each < math.inf else math.nan for each in rms_share.tolist()
    ]


Pair = tuple[str, str]
"""The nodes of one layer, by key, whose values have one shape and kind of type in both models."""


def pairs(first: Values, second: Values) -> Sequence[Pair]:
    """Returns the last nodes with values of one shape and kind of each layer of both models."""
    return [pair for pair, _ in _layers(first, second)]


def _layers(first: Values, second: Values) -> list[tuple[Pair, Sequence[str]]]:
    """Returns the pair of each layer, and the keys of all nodes that it has in the second model."""
    tables = (first.nodes, second.nodes)
    found = list[tuple[Pair, Sequence[str]]]()
    for layer in align([rows_of(nodes) for nodes in tables]):
        keys = [
            [str(nodes["node"].iloc[index]) for index in reversed(indices)]
            for nodes, indices in zip(tables, layer.rows, strict=True)
        ]
        pair = _last_alike(first, second, *keys)
        if pair is not None:
            found.append((pair, keys[1]))
    return found


def numbers(
    first: Values,
    second: Values,
    tolerance: Tolerance,
    precisions: Mapping[str, Precision] | None = None,
    own: Mapping[str, Difference] | None = None,
) -> Numbers:
    """Compares the layers and the outputs of two models.

    `precisions` are those of the nodes of the second model, and `own` their differences where they
    read the values of the first; both by key.
    """
    exact, common = precisions or {}, _layers(first, second)
    layers = [
        {"layer": key, "layer_b": other}
        | _difference(first.by_node[key], second.by_node[other], tolerance, exact.get(other))
        | _own(None if own is None else own.get(other))
        for (key, other), _ in common
    ]
    layer_of = {node: key for (key, _), nodes in common for node in nodes}
    deepest = max(exact.values(), key=lambda each: each.depth, default=None)
    outputs = [
        {"output": name, "output_b": other, "made_by": layer_of.get(second.makers.get(other, ""))}
        | _difference(ours, theirs, tolerance, deepest)
        for (name, ours), (other, theirs) in zip(first.outputs, second.outputs, strict=False)
    ]
    return Numbers(
        first=first.label,
        second=second.label,
        tolerance=tolerance,
        layers=_frame(layers, ("layer", "layer_b"), ("own_fault",), ("own",)),
        outputs=_frame(outputs, ("output", "output_b", "made_by")),
        is_isolated=own is not None,
        notes=_notes(first, second),
    )


def _last_alike(
    first: Values, second: Values, keys: Sequence[str], other_keys: Sequence[str]
) -> Pair | None:
    """Returns the last nodes with values of one shape and kind; a folded node has no value."""
    for key in keys:
        for other in other_keys:
            if _alike(first.by_node.get(key), second.by_node.get(other)):
                return key, other
    return None


def _alike(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.shape != b.shape:
        return False
    return a.dtype == b.dtype or bool(rounding(a.dtype) and rounding(b.dtype))


def in_type_of(first: Any, second: Any) -> Any:
    """Returns `first` in the float type of `second`: one of the models may have narrower floats."""
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return first
    floats = rounding(first.dtype) and rounding(second.dtype)
    return first.astype(second.dtype) if floats else first


def _coarser(precision: Precision | None, first: Any, second: Any) -> Precision | None:
    """Returns the precision of a tensor whose type is narrower in one of the models."""
    if in_type_of(first, second) is first:
        return precision
    exact = precision or Precision.of(second.dtype)
    return replace(exact, share=max(exact.share, Precision.of(first.dtype).share))


def _difference(
    first: Any, second: Any, tolerance: Tolerance, precision: Precision | None
) -> dict[str, Any]:
    reference = in_type_of(first, second)
    difference = compare(second, reference, tolerance, _coarser(precision, first, second))
    stats = statistics(first), statistics(second)
    return {
        **{name: getattr(difference, name) for name in _ERRORS},
        "nan_a": stats[0].nan if stats[0] else None,
        "nan_b": stats[1].nan if stats[1] else None,
        "inf_a": stats[0].inf if stats[0] else None,
        "inf_b": stats[1].inf if stats[1] else None,
        "fault": difference.fault,
    }


def _own(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"own": None, "own_fault": ""}
    return {"own": difference.max_share, "own_fault": difference.fault}


def _frame(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> pd.DataFrame:
    counts = ("nan_a", "nan_b", "inf_a", "inf_b")
    columns = [*names, *numbers, *_ERRORS, *counts, "fault", *texts]
    table = pd.DataFrame(list(rows), columns=columns)
    floats = dict.fromkeys((*numbers, *_ERRORS), "float64")
    return table.astype({**floats, **dict.fromkeys(counts, "Int64")})


def _notes(first: Values, second: Values) -> tuple[str, ...]:
    if len(first.outputs) == len(second.outputs):
        return ()
    return (
        f"{first.label} has {len(first.outputs)} outputs and {second.label} {len(second.outputs)}: "
        "the first ones are compared",
    )
