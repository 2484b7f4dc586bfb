"""What two models compute: their values on the same input, weights, and scores on a data set."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.tensor_pairs import TensorPair, Values, tensor_pairs
from tracer.graph.model import Model
from tracer.graph.operators import CLASSICAL
from tracer.interpreter.observers import statistics
from tracer.interpreter.values import from_tensor
from tracer.support.measurements import t_quantile
from tracer.support.tolerance import Difference, Precision, Tolerance, compare, rounding
from tracer.support.types import Array, FloatArray

_ERRORS = ("max_abs", "max_share", "rms_share", "cosine")
_COUNTS = ("nan_a", "nan_b", "inf_a", "inf_b")

_LOSS_DB = 10.0
"""A layer of a quantised model loses some dB to every layer before it; one that loses more than
this at once is where to look."""

_ALL = 100.0
"""The score of a sample that is right, in percent."""
_CLOSE = 0.1
"""RMS error ÷ RMS below which two tensors are the same one with an error: others differ by 1."""

_AT_ONCE = 1 << 20
"""Elements whose sums are taken at once: the bits of each take eight bytes."""

_MOST_AXES = 4
"""Axes of an array that is tried in every order of them: those of a convolution's weights."""


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


class TensorDifferences:
    """The differences of tensors of a second model from those of a first, each computed once.

    `precisions` are those of the nodes of the second model, by key.
    """

    def __init__(
        self,
        first: Values,
        second: Values,
        tolerance: Tolerance,
        precisions: Mapping[str, Precision] | None = None,
    ) -> None:
        self._first, self._second = first, second
        self._tolerance = tolerance
        self._precisions = precisions or {}
        self._of_nodes: dict[tuple[str, str], dict[str, Any]] = {}

    def agree(self, key: str, other: str) -> bool:
        """Whether the values of two nodes are within tolerance."""
        return not self._of_pair(key, other)["fault"]

    def are_close(self, key: str, other: str) -> bool:
        """Whether the values of two nodes are nearly the same, within tolerance or not."""
        share = self._of_pair(key, other)["rms_share"]
        return share is not None and share < _CLOSE

    def _of_pair(self, key: str, other: str) -> dict[str, Any]:
        if (key, other) not in self._of_nodes:
            self._of_nodes[key, other] = _difference(
                self._first.by_node[key],
                self._second.by_node[other],
                self._tolerance,
                self._precisions.get(other),
            )
        return self._of_nodes[key, other]

    @cached_property
    def outputs(self) -> list[dict[str, Any]]:
        """The rows of the outputs, in order, without what made them."""
        deepest = max(self._precisions.values(), key=lambda each: each.depth, default=None)
        return [
            {"output": name, "output_b": other}
            | _difference(ours, theirs, self._tolerance, deepest)
            for (name, ours), (other, theirs) in zip(
                self._first.outputs, self._second.outputs, strict=False
            )
        ]

    def numbers(
        self, pairs: Sequence[TensorPair], own: Mapping[str, Difference] | None = None
    ) -> Numbers:
        """Returns the differences of these pairs and of the outputs.

        `own` are the differences of the nodes of the second model where they read the values of the
        first, by key.
        """
        first, second = self._first, self._second
        layers = []
        for pair in pairs:
            row: dict[str, Any] = {"layer": pair.first, "layer_b": pair.second}
            row |= {"own": None, "own_fault": ""}
            row |= self._of_pair(pair.first, pair.second)
            if own is not None and pair.second in own:
                row |= {"own": own[pair.second].max_share, "own_fault": own[pair.second].fault}
            layers.append(row)
        layer_of = {node: pair.first for pair in pairs for node in pair.layer}
        layer_of |= {pair.second: pair.first for pair in pairs}
        outputs = [
            row | {"made_by": layer_of.get(second.makers.get(row["output_b"], ""))}
            for row in self.outputs
        ]
        notes: tuple[str, ...] = ()
        if len(first.outputs) != len(second.outputs):
            notes = (
                f"{first.label} has {len(first.outputs)} outputs and {second.label} "
                f"{len(second.outputs)}: the first ones are compared",
            )
        return Numbers(
            first=first.label,
            second=second.label,
            tolerance=self._tolerance,
            layers=_frame(layers, ("layer", "layer_b", "own"), "own_fault"),
            outputs=_frame(outputs, ("output", "output_b", "made_by")),
            is_isolated=own is not None,
            notes=notes,
        )


def numbers(
    first: Values,
    second: Values,
    tolerance: Tolerance,
    precisions: Mapping[str, Precision] | None = None,
    own: Mapping[str, Difference] | None = None,
) -> Numbers:
    """Compares the layers and the outputs of two models, as `TensorDifferences` does."""
    differences = TensorDifferences(first, second, tolerance, precisions)
    return differences.numbers(tensor_pairs(first, second, differences.agree), own)


def in_type_of(first: Any, second: Any) -> Any:
    """Returns `first` in the float type of `second`: one of the models may have narrower floats."""
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return first
    floats = rounding(first.dtype) and rounding(second.dtype)
    return first.astype(second.dtype) if floats else first


def _difference(
    first: Any, second: Any, tolerance: Tolerance, precision: Precision | None
) -> dict[str, Any]:
    """Returns the errors of a tensor, whose type may be narrower in one of the models."""
    reference = in_type_of(first, second)
    if reference is not first:
        exact = precision or Precision.of(second.dtype)
        precision = replace(exact, share=max(exact.share, Precision.of(first.dtype).share))
    difference = compare(second, reference, tolerance, precision)
    row = {name: getattr(difference, name) for name in (*_ERRORS, "fault")}
    for end, value in (("a", first), ("b", second)):
        counts = statistics(value)
        row |= {f"nan_{end}": counts and counts.nan, f"inf_{end}": counts and counts.inf}
    return row


def _frame(rows: Sequence[Mapping[str, Any]], names: Sequence[str], *last: str) -> pd.DataFrame:
    table = pd.DataFrame(list(rows), columns=[*names, *_ERRORS, *_COUNTS, "fault", *last])
    floats = dict.fromkeys({"own", *_ERRORS} & set(table.columns), "float64")
    return table.astype({**floats, **dict.fromkeys(_COUNTS, "Int64")})


def unshared(first: Model, second: Model) -> tuple[int, int]:
    """Returns how many weights of `second` are not in `first`, and how many it has.

    A weight is an initializer of two or more floats, or an attribute of a classical model.
    Frameworks store weights under other names and transposed, so equal values in any order are the
    same weight. Raises ModelError for weights that cannot be read.
    """
    ours, theirs = _weights(first), _weights(second)
    return (theirs - ours).total(), theirs.total()


def _arrays(model: Model) -> Iterator[Array]:
    """Yields the weights of a model, one at a time."""
    nodes = (node.proto for node in model.nodes if node.domain == CLASSICAL)
    attributes = [attribute for node in nodes for attribute in node.attribute]
    stored = [each.t for each in attributes if each.HasField("t")]
    for proto in (*model.graph.initializer, *stored):
        array: Array = from_tensor(proto, model.folder)
        if array.dtype.kind == "f" and array.size > 1:
            yield array
    yield from (np.array(each.floats, "f4") for each in attributes if len(each.floats) > 1)


def _weights(model: Model) -> Counter[tuple[int, int, int]]:
    """Returns a fingerprint of each weight: its size and two sums over the bits of the elements,
    modulo 2^64."""
    weights = Counter[tuple[int, int, int]]()
    for array in _arrays(model):
        bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
        total = squares = 0
        for start in range(0, bits.size, _AT_ONCE):
            part = bits[start : start + _AT_ONCE].astype(np.uint64)
            total += int(part.sum(dtype=np.uint64))
            squares += int((part * part).sum(dtype=np.uint64))
        weights[array.size, total % (1 << 64), squares % (1 << 64)] += 1
    return weights


def count_reordered(first: Model, second: Model) -> int:
    """Returns how many weights of `second` have the elements of none of `first` in their order.

    Transposed elements are in the same order, as frameworks store matrices of other layouts.
    """
    known = {_digest(array) for array in _arrays(first)}
    moved = [array for array in _arrays(second) if _digest(array) not in known]
    sizes = {array.size for array in moved}  # of the others no other order is looked at
    likely = (array for array in _arrays(first) if array.size in sizes)
    known |= {digest for array in likely for digest in map(_digest, _transposed(array))}
    return sum(known.isdisjoint(map(_digest, _transposed(array))) for array in moved)


def _transposed(array: Array) -> Iterator[Array]:
    """Yields an array with its axes in every order, if these are few, else as it is."""
    axes = range(array.ndim)
    for order in permutations(axes) if array.ndim <= _MOST_AXES else (axes,):
        yield array.transpose(order)


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a side by a metric, as a mean over `samples` of a data set.

    Values have the unit of the metric. `first_value` is the mean of the first side, `change` the
    difference from it, and `low` and `high` the ends of its interval. They are NaN for a metric
    that compares with the outputs of the first side, the ends also for a single sample.
    """

    side: str
    metric: str
    unit: str
    data: str
    samples: int
    value: float
    first_value: float = math.nan
    change: float = math.nan
    low: float = math.nan
    high: float = math.nan


def scores_of(
    side: str, metric: str, unit: str, data: str, own: FloatArray, first: FloatArray | None
) -> Scores:
    """Returns the scores of a side from those of each sample (N,), and from the first side's.

    The interval of the change is Student's over the samples, which are taken as independent. A
    sample that is hard for one side is hard for the other, so the differences of samples scatter
    less than the scores. Where a sample is right or wrong, z² / 8 is added to each of the four
    counts of a pair, as none of 20 leaves room for some that differ (A. Agresti and Y. Min,
    Statistics in Medicine 24 (2005) 729, who round it to 1/2 for 95 %).
    """
    scores = Scores(side, metric, unit, data, len(own), float(own.mean()))
    if first is None:
        return scores
    differences, count = own - first, len(own)
    change = middle = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    if unit == "%" and count > 1 and np.isin([own, first], (0, _ALL)).all():
        added = NormalDist().inv_cdf(1 - LEVEL / 2) ** 2 / 8
        gains, losses = ((sign * differences > 0).sum() + added for sign in (1, -1))
        whole = count + 4 * added
        middle = _ALL * float(gains - losses) / whole
        error = _ALL * math.sqrt(gains + losses - (gains - losses) ** 2 / whole) / whole
    half = t_quantile(LEVEL, count - 1) * error if count > 1 else math.nan
    return replace(
        scores, first_value=float(first.mean()), change=change, low=middle - half,
        high=middle + half,
    )  # fmt: skip
