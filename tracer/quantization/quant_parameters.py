"""What the parameters of QONNX's Quant say, and which integers of ONNX hold its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tracer.interpreter import values
from tracer.interpreter.ops.qonnx import integer_ends, quant_integers
from tracer.support.types import Array

_MOST_BITS = 8


@dataclass(frozen=True, slots=True)
class QuantParameters:
    """The parameters of a Quant, all float32."""

    scale: Array
    zero: Array
    bits: Array
    signed: bool
    narrow: bool
    rounding: str

    @classmethod
    def of(cls, node: onnx.NodeProto, scale: Array, *others: Array) -> QuantParameters:
        """The parameters of a node; BipolarQuant is a Quant of one bit."""
        zero, bits = others or (np.zeros(()), np.ones(()))
        signed, narrow, rounding = rounding_attributes(node)
        scale, zero, bits = (each.astype(np.float32) for each in (scale, zero, bits))
        return cls(scale, zero, bits, signed, narrow, rounding)

    @property
    def float_ends(self) -> tuple[Array, Array]:
        """The least and the greatest number before the zero point is subtracted."""
        return integer_ends(self.bits, self.signed, self.narrow)

    @property
    def ends(self) -> tuple[int, int]:
        """The same of the first channel, as integers."""
        low, high = self.float_ends
        return int(low.flat[0]), int(high.flat[0])

    @property
    def is_bipolar(self) -> bool:
        """Whether the numbers are -1 and 1."""
        return self.signed and bool((self.bits == 1).any())

    @property
    def bytes_type(self) -> Any:
        """The type with which QuantizeLinear, Clip and DequantizeLinear compute it, or None."""
        bits = float(self.bits.flat[0]) if self.bits.size == 1 else 0.0
        fits = bits.is_integer() and 1 <= bits <= _MOST_BITS and not self.is_bipolar
        is_even = self.rounding in ("ROUND", "HALF_EVEN")
        dtype = np.dtype(np.int8 if self.signed else np.uint8)
        return (
            dtype if fits and is_even and self._has_vectors and _holds(dtype, self.zero) else None
        )

    def stored_type(self, x: Array) -> Any:
        """The type that holds the integers of stored numbers, or None."""
        if not self._has_vectors:
            return None
        integers = self.integers(x)
        for kind in (np.int8, np.uint8, np.int32):
            dtype = np.dtype(kind)
            if kind == np.int32 and self.zero.any():  # ONNX allows none there
                return None
            if _holds(dtype, integers) and _holds(dtype, self.zero):
                return dtype
        return None

    @property
    def _has_vectors(self) -> bool:
        """Whether there is one positive scale, or one for each slice of an axis."""
        vectors = all(np.count_nonzero(np.array(each.shape) > 1) < 2
                      for each in (self.scale, self.zero))  # fmt: skip
        fits = self.zero.size in (1, self.scale.size)
        return vectors and fits and bool((self.scale > 0).all())

    def axis(self, rank: int | None) -> int | None:
        """The axis of the channels, from the end where the rank is not known; None without any."""
        if self.scale.size == 1:
            return None
        place = int(np.argmax(np.array(self.scale.shape) > 1)) - self.scale.ndim
        return place if rank is None else place + rank

    def integers(self, x: Array) -> Array:
        """The integers of stored numbers, zero point included."""
        rest = quant_integers(
            x, self.scale, self.zero, self.bits, signed=int(self.signed), narrow=int(self.narrow),
            rounding_mode=self.rounding,
        )  # fmt: skip
        return rest + self.zero


def named_attributes(node: onnx.NodeProto) -> Mapping[str, Any]:
    """Returns the attributes of a node by name."""
    return {a.name: values.from_attribute(a) for a in node.attribute}


def rounding_attributes(node: onnx.NodeProto, mode: str = "ROUND") -> tuple[bool, bool, str]:
    """Returns whether numbers are signed, whether they are narrow, and how they are rounded."""
    own = named_attributes(node)
    named = str(own.get("rounding_mode", mode)).upper()
    return bool(own.get("signed", 1)), bool(own.get("narrow", 0)), named


def row(parameter: Array) -> Array:
    """Returns a parameter as a number, or as a vector of those of the channels."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1)


def _holds(dtype: Any, numbers: Array) -> bool:
    """Whether numbers are integers of a type."""
    return bool(np.array_equal(numbers, np.clip(np.rint(numbers), *integer_range(dtype))))


def integer_range(dtype: Any) -> tuple[int, int]:
    """Returns the least and the greatest integer of a type."""
    ends = np.iinfo(dtype)
    return int(ends.min), int(ends.max)
