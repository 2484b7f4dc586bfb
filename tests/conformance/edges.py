"""Edge values of the attributes, stored inputs and sizes of every operator version.

Each mutant is a trial of the version with one to four of them changed. Values are legal by the
specification where it lists them; whether they fit each other is onnxruntime's to say.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.conformance.operators import Key, schema_of
from tests.conformance.trial import Trial

_NUMBERS = (0, 1, -1, 2, 3, 4, 5)
_SCALES = (0.1, 1 / 3, 0.4, 0.5, 0.7, 1.0, 1.3, 2.0, 2.5, 3.0)
_MOST = 64
"""Elements of an input that is stored in the model, as shapes, axes, pads and scales are."""

_BOTH = (0, 1)
_LEGAL: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(
        (
            "align_corners", "allowzero", "antialias", "broadcast", "ceil_mode",
            "center_point_box", "count_include_pad", "exclude_outside", "exclusive",
            "input_forget", "interleaved", "inverse", "is_case_sensitive", "is_causal", "keepdims",
            "largest", "linear_before_reset", "noop_with_empty_axes", "onesided", "periodic",
            "reverse", "saturate", "select_last_index", "transA", "transB", "upper", "zeros",
        ),
        _BOTH,
    ),
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "batch_dims": (0, 1),
    "blocksize": (1, 2, 3),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    "cubic_coeff_a": (-0.5, -0.75),
    "equation": (
        "...ij,...jk->...ik", "ij,jk", "ii->i", "ij->", "i,j->ij", "bij,bjk->bik", "...ii->...i",
        "ij...->j...", "ij->ji", "ijk->kij", "bij,bjk", "i...,i...->...", "b...ij->b...ji",
    ),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "num_outputs": (1, 2, 3, 4),
    "output_height": (1, 2, 3), "output_width": (1, 2, 5),
    "p": (1, 2, 3),
    "padding_mode": ("zeros", "border", "reflection"),
    "qk_matmul_output_mode": (0, 1, 2, 3),
    "sampling_ratio": (0, 1, 2),
    "size": (1, 2, 3, 4, 5),
    "strides": (1, 2, 3, 4), "dilations": (1, 2, 3), "kernel_shape": (1, 2, 3, 4, 5),
    "pads": (0, 1, 2), "output_padding": (0, 1, 2), "output_shape": (1, 2, 5, 8, 11),
    "split": (1, 2, 3), "epsilon": (1e-5, 0.1),
}  # fmt: skip
"""Values that the specification allows, for a number, a text, or each number of a list."""

_WORDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("DepthToSpace", "mode"): ("DCR", "CRD"), ("SpaceToDepth", "mode"): ("DCR", "CRD"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("Upsample", "mode"): ("nearest", "linear"),
    ("NegativeLogLikelihoodLoss", "reduction"): ("none", "mean", "sum"),
    ("SoftmaxCrossEntropyLoss", "reduction"): ("none", "mean", "sum"),
    ("ScatterElements", "reduction"): ("none", "add", "mul", "max", "min"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
}  # fmt: skip
_FIXED = frozenset(
    {
        "activation_alpha", "activation_beta", "activations", "aggregate_function", "axis_w",
        "beta", "body", "case_change_action", "class_ids", "consumed_inputs", "delimiter",
        "direction", "dtype", "else_branch", "hidden_size", "ignore_index", "inputdimensions",
        "is_test", "k", "kv_num_heads", "layout", "linear", "locale", "max_gram_length",
        "min_gram_length", "mode", "momentum", "n_targets", "ngram_counts", "ngram_indexes",
        "nodes_hitrates", "num_heads", "output_datatype", "output_sequence", "post_transform",
        "precision", "q_num_heads", "reduction", "replaced_value_int64", "rho", "scale_factors",
        "seed", "skip_last_axis", "softcap", "softmax_last", "softmax_precision", "sorted",
        "spatial", "stash_type", "stopwords", "then_branch", "to", "training_mode",
    }
)  # fmt: skip
"""Attributes that keep their value: types, lengths, draws, and what only goes with other values."""

_FIXED_DOMAINS = frozenset({"ai.onnx.ml", "ai.onnx.preview.training"})
"""Domains whose attributes are what was trained: tables that belong together, and to columns."""


def mutants(trial: Trial, key: Key, count: int) -> Iterator[Trial]:
    """Yields `count` mutants of a trial of an operator version, always the same."""
    rng = np.random.default_rng(zlib.crc32(f"{key} {trial.name}".encode()))
    for number in range(count):
        model = onnx.ModelProto()
        model.CopyFrom(trial.model)
        mutation = _Mutation(model, dict(trial.feeds), key, rng)
        places = mutation.places()
        if not places:
            return
        chosen = rng.permutation(len(places))[: int(rng.integers(1, 5))]
        changes = [mutation.change(*places[at]) for at in chosen]
        yield Trial(f"{trial.name} {number}: {'; '.join(changes)}", model, mutation.feeds)


def stored(trial: Trial) -> Trial:
    """Returns the trial with small inputs stored in the model, and no shapes of its outputs.

    The first input is stored as well where the operator takes a size from it.
    """
    model, feeds = onnx.ModelProto(), dict(trial.feeds)
    model.CopyFrom(trial.model)
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    for value in [each for each in model.graph.input if _is_setting(trial, each.name)]:
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(value.name), value.name))
        model.graph.input.remove(value)
    return Trial(trial.name, model, feeds, trial.expected, trial.source)


_SIZES_FIRST = frozenset(
    {"BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "Loop", "MelWeightMatrix",
     "Range"}
)  # fmt: skip


def _is_setting(trial: Trial, name: str) -> bool:
    array = trial.feeds.get(name)
    is_first = name == trial.model.graph.input[0].name
    if (is_first and trial.operator not in _SIZES_FIRST) or not isinstance(array, np.ndarray):
        return False
    return array.size <= _MOST and array.ndim <= 1 and array.dtype.str[1:] in (
        "i1", "i4", "i8", "u1", "f4", "f8", "b1"
    )  # fmt: skip


class _Mutation:
    """A model and its feeds that are being changed."""

    def __init__(
        self, model: onnx.ModelProto, feeds: dict[str, Any], key: Key, rng: np.random.Generator
    ) -> None:
        self.graph, self.feeds, self._key, self._rng = model.graph, feeds, key, rng
        self._schema = schema_of(key)
        self._node = next(node for node in self.graph.node if node.op_type == key[1])

    def places(self) -> list[tuple[str, str]]:
        """What can be changed: attributes, stored inputs, and the sizes of other inputs."""
        kinds = ("INT", "INTS", "FLOAT", "FLOATS", "STRING")
        free = [
            ("attribute", name)
            for name, declared in self._schema.attributes.items()
            if _kind(declared) in kinds and self._is_free(name)
        ]
        weights = [("weight", weight.name) for weight in self.graph.initializer]
        sizes = [
            ("size", name)
            for name, value in self.feeds.items()
            if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "fiub"
        ]
        return [*free, *weights, *sizes]

    def change(self, kind: str, name: str) -> str:
        """Changes one of `places`; returns what it is now."""
        return {"attribute": self._attribute, "weight": self._weight, "size": self._size}[kind](
            name
        )

    def _is_free(self, name: str) -> bool:
        if self._key[0] in _FIXED_DOMAINS:
            return False
        return (self._key[1], name) in _WORDS or name not in _FIXED

    def _attribute(self, name: str) -> str:
        declared, node = self._schema.attributes[name], self._node
        old = next((each for each in node.attribute if each.name == name), None)
        before = None if old is None else helper.get_attribute_value(old)
        if old is not None:
            node.attribute.remove(old)
            if not declared.required and self._rng.random() < 0.2:
                return f"no {name}"
        value = self._value(name, _kind(declared), before)
        if value in (None, []):
            return f"no {name}"
        node.attribute.append(helper.make_attribute(name, value))
        return f"{name}={value}"

    def _value(self, name: str, kind: str, before: Any) -> Any:
        legal = _WORDS.get((self._key[1], name)) or _LEGAL.get(name)
        if kind == "STRING":
            return str(self._rng.choice(legal)) if legal else before
        if kind == "INT":
            return int(self._rng.choice(legal or _NUMBERS))
        if kind == "FLOAT":
            return float(self._rng.choice(legal or _SCALES))
        rank = max((np.ndim(value) for value in self.feeds.values()), default=0) or 1
        length = len(before) if before else self._length(name, rank)
        drawn = self._rng.choice(legal or (_NUMBERS if kind == "INTS" else _SCALES), length)
        kept = before if before and self._rng.random() < 0.5 else [None] * length
        numbers = [
            new if old is None or self._rng.random() < 0.5 else old
            for new, old in zip(drawn.tolist(), kept, strict=True)
        ]
        if name == "axes":
            numbers = list(dict.fromkeys(number % rank for number in numbers))
        return [float(n) if kind == "FLOATS" else int(n) for n in numbers]

    def _length(self, name: str, rank: int) -> int:
        if name == "pads":
            return 2 * max(rank - 2, 0)
        if name in ("strides", "dilations", "kernel_shape", "output_padding", "output_shape"):
            return max(rank - 2, 0)
        return int(self._rng.integers(1, rank + 1))

    def _weight(self, name: str) -> str:
        weight = next(each for each in self.graph.initializer if each.name == name)
        array = numpy_helper.to_array(weight).copy()
        flat = array.reshape(-1)
        legal: Sequence[Any] = _SCALES if array.dtype.kind == "f" else _NUMBERS
        if array.dtype.kind in "ub":
            legal = (0, 1, 2, 3)
        for at in range(flat.size):
            if self._rng.random() < 0.5:
                flat[at] = self._rng.choice(legal)
        weight.CopyFrom(numpy_helper.from_array(array, name))
        return f"{name}={array.tolist()}"

    def _size(self, name: str) -> str:
        """Changes one size, to 0 or 1 as well; half of the time of all inputs of this shape."""
        shape = self.feeds[name].shape
        at = 0 if self._key[0] in _FIXED_DOMAINS else int(self._rng.integers(len(shape)))
        near = max(1, shape[at] + int(self._rng.integers(-3, 6)))
        size = int(self._rng.choice((0, 1, near, near)))
        names = [name]
        if self._rng.random() < 0.5:
            names = [other for other, value in self.feeds.items() if np.shape(value) == shape]
        new = (*shape[:at], size, *shape[at + 1 :])
        for each in names:
            self._resize(each, new)
        return f"{', '.join(names)}{new}"

    def _resize(self, name: str, shape: tuple[int, ...]) -> None:
        """Gives an input this shape, with its own elements over and over."""
        old = self.feeds[name]
        self.feeds[name] = np.resize(old, shape) if old.size else np.ones(shape, old.dtype)
        value = next(each for each in self.graph.input if each.name == name)
        for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            dim.dim_value = size


def _kind(declared: Any) -> str:
    return str(declared.type).rpartition(".")[2]
