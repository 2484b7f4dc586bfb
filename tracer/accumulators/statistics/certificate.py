"""A record that on certain inputs no partial sum of a model overflowed, and of which inputs.

It certifies this order and this data; what holds for any data is in `bounds`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import msgspec
import numpy as np

from tracer.accumulators.spec import plain_values
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import InputError, ThresholdError, UsageError
from tracer.graph.model import Model
from tracer.interpreter.values import Value
from tracer.support.types import Array, dtype_text


@dataclass(frozen=True, slots=True)
class Certified:
    """One node's `accumulator`, by the names of its properties, and what `outputs` sums needed."""

    accumulator: Mapping[str, int | str | None]
    outputs: int
    bits_observed: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """On the `inputs` sets of inputs that `data_sha256` identifies, nothing overflowed.

    `nodes` are those that were summed in an accumulator, by key; `tool` is what made it.
    """

    model_sha256: str
    data_sha256: str
    inputs: int
    nodes: Mapping[str, Certified]
    tool: str

    def to_json(self) -> bytes:
        """UTF-8 JSON, one object with the names above."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Certificate:
        """What `to_json` wrote. Raises InputError for anything else."""
        try:
            return msgspec.json.decode(text, type=cls, strict=True)
        except msgspec.DecodeError as error:
            raise InputError(f"not a certificate ({error})", "Make it anew.") from error

    def check(self, model: Model, data: Data) -> None:
        """Raise ThresholdError unless it was made for this model and exactly these inputs."""
        if model.sha256 != self.model_sha256:
            raise ThresholdError(
                f"{model.name}: the certificate is for another model",
                f"That one has the SHA-256 {self.model_sha256}, this one {model.sha256}.",
            )
        if (data.sha256, data.count) != (self.data_sha256, self.inputs):
            raise ThresholdError(
                f"{model.name}: the certificate is for other inputs",
                f"It covers {self.inputs} with the SHA-256 {self.data_sha256}; these are"
                f" {data.count} with {data.sha256}.",
            )


class Data:
    """A hash over all inputs that a model was fed, one set after another.

    Names, types, shapes and elements count, the order of names in a set does not.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.count = 0

    def add(self, feeds: Mapping[str, Value]) -> None:
        """Take in one set of inputs."""
        self._say("feeds", len(feeds))
        for name in sorted(feeds):
            self._say("input", name)
            self._add(feeds[name])
        self.count += 1

    @property
    def sha256(self) -> str:
        """The hash of what was added so far, in hexadecimal."""
        return self._digest.hexdigest()

    def _add(self, value: Value) -> None:
        if isinstance(value, list):
            self._say("sequence", len(value))
            for member in value:
                self._add(member)
        elif value is None:
            self._say("nothing")
        else:
            self._add_array(np.asarray(value))

    def _add_array(self, array: Array) -> None:
        self._say("tensor", dtype_text(array), array.shape)
        if array.dtype == object:
            for text in array.ravel():
                self._say(text if isinstance(text, bytes) else str(text))
            return
        little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        self._digest.update(little.reshape(-1).view(np.uint8).data)

    def _say(self, *parts: object) -> None:
        """Their repr ends where the line does, so nothing runs into what comes next."""
        self._digest.update(f"{parts!r}\n".encode("utf-8", "surrogatepass"))


def certificate(model: Model, data: Data, tallies: Mapping[str, Tally]) -> Certificate:
    """Certify `tallies`, by node key in the order of the model, of runs on all of `data`.

    Raises ThresholdError, with the first node, where a partial sum overflowed, or a product or
    pair did not fit a width of its own; UsageError where nothing was summed.
    """
    if not data.count or not any(tally.outputs.any() for tally in tallies.values()):
        raise UsageError(
            f"{model.name}: nothing was summed in an accumulator",
            "A certificate needs a run with narrow accumulators on some inputs.",
        )
    for key, tally in tallies.items():
        _refuse_overflow(f"{model.name}: node '{key}'", tally)
    nodes = {
        key: Certified(
            plain_values.dumped(tally.accumulator),
            int(tally.outputs.sum()),
            int(tally.bits_observed.max()),
        )
        for key, tally in tallies.items()
    }
    return Certificate(model.sha256, data.sha256, data.count, nodes, _tool())


def _refuse_overflow(node: str, tally: Tally) -> None:
    bits = tally.accumulator.bits
    outside = int(tally.overflow(bits).overflow_outputs.sum())
    if outside:
        raise ThresholdError(
            f"{node} overflows {bits} bits in {outside} of {int(tally.outputs.sum())} outputs",
            f"{int(tally.bits_observed.max())} bits hold all of these.",
        )
    changed = int(tally.outputs_changed.sum())
    if changed:
        raise ThresholdError(
            f"{node}: products did not fit a width of their own in {changed} outputs",
            "Give products more bits, or take an order without saturating pairs.",
        )


def _tool() -> str:
    try:
        return f"tracer {metadata.version('tracer-onnx')}"
    except metadata.PackageNotFoundError:
        return "tracer, not installed"
