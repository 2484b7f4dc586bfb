"""Recognises a decoder with a cache by its inputs and outputs, and feeds it tokens and their past.

The names are those of onnxruntime-genai's builder and of optimum: `input_ids`, `attention_mask`,
`position_ids`, `past_key_values.0.key` and `present.0.key`, and `past_0` of GPT-2 with keys and
values in one tensor. Graphs that are given their lengths have `seqlens_k` and
`total_sequence_length`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer import shapes
from tracer.errors import InputError, ModelError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType, bits_of, numpy_dtype
from tracer.inputs.demands import sizes_from_attention
from tracer.inputs.feedset import Feeds, FeedSet, random_arrays
from tracer.inputs.request import Phase, Request, Step

_CACHE = re.compile(r"(?i)^(past|present)(_key_values?|_kv)?(?=[._]|\d)")
_TOKENS = re.compile(r"(?i)^(input_ids|inputs?_embeds|input_embeddings)$")
_KEY_AND_VALUE = 2
"""Tensors of a layer; the form of GPT-2 has both in one, along a first axis of this size."""
_LOOKED_FOR = (
    "A decoder with a cache has inputs input_ids, past_key_values.0.key and .value [batch, heads, "
    "past, size] or past_0 [2, batch, heads, past, size], and outputs present.0.key and so on."
)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One tensor of the cache: the input `past` and the output `present` that extends it.

    `shape` is the declared one of `past`, in which `time` is the axis of the tokens and `batch` the
    axis of the batch.
    """

    past: str
    present: str
    shape: tuple[int | str | None, ...]
    dtype: str
    batch: int
    time: int

    @classmethod
    def of(
        cls, model: Model, name: str, kind: TensorType | None, presents: Mapping[str, str]
    ) -> "CacheEntry":
        """Returns the entry of an input; `presents` are outputs by place. Raises ModelError."""
        shape = kind.shape if kind is not None else None
        if kind is None or shape is None or len(shape) not in (4, 5):
            raise ModelError(f"{model.name}: input '{name}' is {kind}, not a cache", _LOOKED_FOR)
        if _place(name) not in presents:
            raise ModelError(
                f"{model.name}: no output returns the cache '{name}'; its outputs are "
                f"{_list_names([value.name for value in model.graph.output])}",
                _LOOKED_FOR,
            )
        batch = len(shape) - 4
        if any(not isinstance(size, int) for size in (shape[1], shape[3])) and not batch:
            met = sizes_from_attention(model, name)
            shape = tuple(met.get(axis, size) for axis, size in enumerate(shape))
        open_axes = [
            axis for axis in range(batch + 1, len(shape)) if not isinstance(shape[axis], int)
        ]
        if len(open_axes) > 1:
            raise ModelError(
                f"{model.name}: the cache '{name}' is {kind}, of which heads and size are not "
                "fixed",
                "Export the model with its heads and their size fixed, and only batch and past "
                "open.",
            )
        time = open_axes[0] if open_axes else batch + 2
        return cls(name, presents[_place(name)], shape, kind.dtype, batch, time)

    @property
    def heads_and_size(self) -> tuple[int, int]:
        """The heads of keys and values, and the numbers of a head."""
        axes = [axis for axis in range(self.batch + 1, len(self.shape)) if axis != self.time]
        heads, size = (int(self.shape[axis] or 0) for axis in axes)
        return heads, size

    def at(self, batch: int, tokens: int) -> tuple[int, ...]:
        """Returns the shape with this many entries and tokens."""
        sized = {self.batch: batch, self.time: tokens}
        return tuple(
            sized[axis] if axis in sized else int(size or 0) for axis, size in enumerate(self.shape)
        )

    def nbytes(self, batch: int, tokens: int) -> int:
        """Returns the bytes of `tokens` tokens of `batch` entries."""
        return math.prod(self.at(batch, tokens)) * (bits_of(self.dtype) or 0) // 8


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model that reads new tokens and a cache of past ones, and returns the extended cache.

    `batch` is the batch size that the model fixes, None where it is open. `lengths_by_input` has
    the shape and values of each input that says lengths and positions.
    """

    model: Model = field(repr=False)
    tokens: str
    cache: tuple[CacheEntry, ...]
    batch: int | None
    lengths_by_input: "Mapping[str, InputRule]" = field(repr=False)

    @property
    def layers(self) -> int:
        """The number of layers with a cache."""
        tensors = sum(_KEY_AND_VALUE if len(each.shape) == 5 else 1 for each in self.cache)
        return math.ceil(tensors / _KEY_AND_VALUE)

    def cache_bytes(self, batch: int, tokens: int) -> int:
        """Returns 2 × layers × B × H_kv × T × D × bytes of an element, summed over the cache."""
        return sum(entry.nbytes(batch, tokens) for entry in self.cache)

    def shapes(self, step: Step) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each input. Raises InputError for a batch that the model lacks."""
        self.check(step)
        declared = tensor_type.declared_shapes(self.model.inputs)
        tokens = declared[self.tokens]
        sizes = {
            self.tokens: (step.batch, step.new, *(int(size or 0) for size in tokens[2:])),
            **{entry.past: entry.at(step.batch, step.past) for entry in self.cache},
            **{
                name: told.shape(step, len(declared[name]))
                for name, told in self.lengths_by_input.items()
            },
        }
        return {value.name: sizes[value.name] for value in self.model.inputs}

    def presents(self, step: Step) -> dict[tuple[str, str], TensorType]:
        """Returns the types of the cache that a step returns, as `TensorTypes.updated` takes."""
        return {
            ("", entry.present): TensorType(entry.dtype, entry.at(step.batch, step.total))
            for entry in self.cache
        }

    def feeds(self, step: Step, seed: int) -> Feeds:
        """Returns random tokens and a random cache from `seed`, and the lengths that they have.

        Raises InputError for a batch that the model lacks, ModelError for a node that does not take
        its inputs, LimitError for feeds beyond the limits.
        """
        self.check_nodes(step)
        drawn = random_arrays(self.model, self.shapes(step), seed)
        return {**drawn, **self.lengths(step)}

    def lengths(self, step: Step) -> Feeds:
        """Returns the masks, positions and lengths of a step, by input."""
        declared = tensor_type.declared_shapes(self.model.inputs)
        types = tensor_type.declared_types(self.model.inputs)
        feeds: dict[str, Any] = {}
        for name, told in self.lengths_by_input.items():
            shape = told.shape(step, len(declared[name]))
            kind = types[name]
            dtype = kind.dtype if kind is not None else "int64"
            feeds[name] = np.broadcast_to(told.values(step), shape).astype(numpy_dtype(dtype))
        return feeds

    def empty(self, batch: int) -> Feeds:
        """Returns a cache without tokens, by input."""
        return {
            entry.past: np.zeros(entry.at(batch, 0), numpy_dtype(entry.dtype))
            for entry in self.cache
        }

    def check_nodes(self, step: Step) -> None:
        """Raises ModelError for a node that does not take what it gets in `step`."""
        shapes.check(self.model, self.shapes(step), self.lengths(step))

    def check(self, step: Step) -> None:
        """Raises InputError where the model fixes other sizes than those of `step`."""
        if self.batch not in (None, step.batch):
            raise InputError(
                f"{self.model.name}: the batch is {self.batch}, not {step.batch}, as its inputs "
                "declare",
                f"Set the batch to {self.batch}, or export the model with a dynamic batch.",
            )
        declared = tensor_type.declared_shapes(self.model.inputs)
        for name, axis, size, what in (
            (self.tokens, 1, step.new, "new tokens"),
            *((entry.past, entry.time, step.past, "past tokens") for entry in self.cache),
        ):
            fixed = declared[name][axis]
            if isinstance(fixed, int) and fixed != size:
                raise InputError(
                    f"{self.model.name}: input '{name}' takes {fixed} {what}, not {size}",
                    "Export the model with dynamic axes for the tokens and for the past.",
                )


@dataclass(frozen=True, slots=True)
class InputRule:
    """An input that says lengths or positions: its shape for a rank, and its values, of a step."""

    ranks: tuple[int, ...]
    shape: Callable[[Step, int], tuple[int, ...]]
    values: Callable[[Step], Any]


def _places(step: Step) -> Any:
    return np.arange(step.past, step.total)


@dataclass(frozen=True, slots=True)
class PhaseRequest(Request):
    """A request for random tokens and a random cache of one phase of a decoder."""

    decoder: Decoder | None = None
    phase: Phase | None = None

    def choices(self) -> Iterator[FeedSet]:
        """Yields the feeds of the phase; there are no other sizes to try."""
        yield self._fed(self.seed)

    def further_feeds(self, first: FeedSet) -> Sequence[FeedSet]:
        """Returns the feeds from the next seed."""
        return (self._fed(self.seed + 1),)

    def first_batch(self) -> "PhaseRequest":
        """Returns the request as it is: its inputs are one inference."""
        return self

    def _fed(self, seed: int) -> FeedSet:
        assert self.decoder is not None and self.phase is not None
        batch = self.batch or self.decoder.batch or 1
        feeds = self.decoder.feeds(self.phase.step(batch), seed)
        return FeedSet(feeds, batch, (f"inputs are random tokens and caches, seed {seed}",))


INPUT_RULES = {
    "attention_mask": InputRule((2,), lambda s, r: (s.batch, s.total), lambda s: 1),
    "position_ids": InputRule(
        (1, 2), lambda s, r: (s.batch, s.new) if r == 2 else (s.new,), _places
    ),
    "cache_position": InputRule((1,), lambda s, r: (s.new,), _places),
    "seqlens_k": InputRule(
        (1, 2), lambda s, r: (s.batch, 1)[:r], lambda s: s.total - 1
    ),
    "past_sequence_length": InputRule((0, 1), lambda s, r: (1,) * r, lambda s: s.past),
    "total_sequence_length": InputRule((0, 1), lambda s, r: (1,) * r, lambda s: s.total),
    "use_cache_branch": InputRule((0, 1), lambda s, r: (1,) * r, lambda s: s.past > 0),
}  # fmt: skip
"""Inputs by name; a mask of ones keeps every token."""


def recognise(model: Model) -> Decoder:
    """Returns `model` as a decoder with a cache.

    Raises ModelError for another model, with what was looked for and what the model has.
    """
    kinds = tensor_type.declared_types(model.inputs)
    tokens = next((name for name in kinds if _TOKENS.match(name)), None)
    pasts = [name for name in kinds if _is_cache(name, "past")]
    if tokens is None or not pasts:
        missing = "cache: no input past…" if tokens else "input of tokens: no input_ids"
        raise ModelError(
            f"{model.name} has no {missing}; its inputs are {_list_names(kinds)}", _LOOKED_FOR
        )
    presents = {_place(v.name): v.name for v in model.graph.output if _is_cache(v.name, "present")}
    cache = tuple(CacheEntry.of(model, name, kinds[name], presents) for name in pasts)
    rules, declared = {}, tensor_type.declared_shapes(model.inputs)
    for name in kinds:
        rule, rank = INPUT_RULES.get(name.lower()), len(declared.get(name, ()))
        if name in (tokens, *pasts):
            continue
        if rule is None or rank not in rule.ranks:
            raise ModelError(
                f"{model.name}: nothing tells the values of input '{name}' of rank {rank} in a "
                "phase",
                f"Inputs beside tokens and cache may be {', '.join(INPUT_RULES)}.",
            )
        rules[name] = rule
    return Decoder(model, tokens, cache, _fixed_batch(model, tokens, cache), rules)


def _is_cache(name: str, which: str) -> bool:
    match = _CACHE.match(name)
    return match is not None and match[1].lower() == which and name not in INPUT_RULES


def _place(name: str) -> str:
    """Returns what a past and its present have in common: `.0.key`, `_key_0`, `_0`."""
    return _CACHE.sub("", name)


def _fixed_batch(model: Model, tokens: str, cache: Sequence[CacheEntry]) -> int | None:
    shape = tensor_type.declared_shapes(model.inputs).get(tokens, ())
    is_embedded = "embed" in tokens.lower()
    if len(shape) != 2 + is_embedded or (is_embedded and not isinstance(shape[2], int)):
        raise ModelError(f"{model.name}: input '{tokens}' has the shape {shape}", _LOOKED_FOR)
    sizes = {shape[0], *(entry.shape[entry.batch] for entry in cache)}
    fixed = {size for size in sizes if isinstance(size, int)}
    if len(fixed) > 1:
        raise ModelError(
            f"{model.name}: tokens and cache have batches of {' and '.join(map(str, fixed))}",
            "Export the model with one batch size, or a dynamic one.",
        )
    return next(iter(fixed), None)


def _list_names(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = list(names)[:6]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")
