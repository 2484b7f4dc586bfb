"""The rule of a sum: in words, as an accumulator, and with the tree of its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tracer.accumulators import hardware
from tracer.accumulators.spec import Register, orders
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, FloatFormat
from tracer.arithmetic.rule import LEAST_RESULTS
from tracer.arithmetic.trees import branches_of, drawn

_ROUNDINGS = {"rne": "to nearest", "rz": "towards 0", "floor": "down", "sr": "at random"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that `vectors` random pairs verified, with the fields of `Revealed`."""

    text: str
    spec: str | None
    facts: Mapping[str, Any]
    tree: str
    vectors: int = LEAST_RESULTS
    note: str = ""

    @classmethod
    def of(
        cls, accumulator: AnyAccumulator, count: int, note: str = "",
        result: FloatFormat | None = None,
    ) -> Finding:  # fmt: skip
        """Returns the finding that `count` terms are added as in an accumulator.

        The sum is rounded to `result` at last; None keeps it.
        """
        tree = ""
        if isinstance(accumulator, Accumulator) and not accumulator.order.reorders:
            tree = drawn(branches_of(accumulator.order, orders.Terms(count)), count)
        text, known = words(accumulator), facts(accumulator)
        if result is not None:
            text, known["result"] = f"{text}; the last sum is rounded to {result}", str(result)
        return cls(text, str(accumulator), known, tree, note=note)

    @classmethod
    def exact(cls, accumulator: Accumulator) -> Finding:
        """Returns the finding that sums stay within an accumulator, so that no order shows."""
        text = f"no sum of these operands leaves {accumulator.bits} bits, so no order shows"
        text = "; ".join([text, *_product_words(accumulator)])
        return cls(text, str(accumulator), {**facts(accumulator), "exact": True}, "")


def words(accumulator: AnyAccumulator) -> str:
    """Returns what an accumulator does, in a sentence without its end."""
    match accumulator:
        case Accumulator():
            register = _register_words(Register(accumulator.bits, accumulator.overflow))
            text = f"{order_words(accumulator.order)}, in a register of {register}"
            return "; ".join([text, *_product_words(accumulator)])
        case FloatAccumulator():
            order = order_words(accumulator.order)
            if accumulator.chunk:
                order = f"in chunks of {accumulator.chunk} terms, then the chunks"
            product = "multiplied and added in one rounding (FMA)"
            if not accumulator.fused:
                product = f"multiplied in {accumulator.product or accumulator.format}, then added"
            ends = f"in {accumulator.format}, rounded {_ROUNDINGS[accumulator.rounding.name]}"
            return f"{order}, {product}, {ends}" + ", saturating" * accumulator.saturates
        case BlockFma():
            rounding = "towards 0" if accumulator.rounding.name == "rz" else "to nearest"
            text = (
                f"{accumulator.length} products at once, aligned to {accumulator.fraction} bits of "
                f"fraction ({accumulator.rule}); their sum is rounded {rounding} to "
                f"{accumulator.out}"
            )
            most = accumulator.promote
            return text if most is None else f"{text}, those of {most} are added in fp32"
        case _:
            return str(accumulator)


def facts(accumulator: AnyAccumulator) -> dict[str, Any]:
    """Returns the parts of an accumulator by name, as plain data."""
    known: dict[str, Any] = {"kind": accumulator.kind}
    if isinstance(accumulator, Accumulator):
        known |= accumulator.to_plain()
    names = ", ".join(hardware.names(accumulator))
    return known | ({"preset": names} if names else {})


def _product_words(accumulator: Accumulator) -> Iterator[str]:
    """Yields what happens to products before they are added."""
    if accumulator.product_shift:
        yield f"products lose {accumulator.product_shift} low bits ({accumulator.product_rounding})"
    if accumulator.product_bits is not None:
        limit = Register(accumulator.product_bits, accumulator.overflow)
        yield f"products have {_register_words(limit)}"


def _register_words(register: Register) -> str:
    does = {"saturate": "saturates", "symmetric": "saturates symmetrically", "wrap": "wraps",
            "zero": "becomes 0 beyond its range"}[register.overflow]  # fmt: skip
    return f"{register.bits} bits that {does}"


def order_words(order: orders.Order) -> str:
    """Returns how an order adds terms."""
    match order:
        case orders.Sequential():
            return "one after the other"
        case orders.Chunked():
            return f"in chunks of {order.size} terms, then the chunks"
        case orders.Lanes():
            return f"in {order.size} lanes, then the lanes"
        case orders.Tree():
            return "in pairs, then pairs of pairs, and so on"
        case orders.Sorted():
            return "against the sign of the sum so far"
        case orders.Maddubs():
            return f"in pairs of 16 bits that saturate, then in {order.size} lanes, then the lanes"
        case orders.Tiles():
            spill = f", narrowed {_level_words(order.spill)}" if order.spill else ""
            return f"{', then '.join([*map(_level_words, order.levels), 'the last sums'])}{spill}"
        case _:
            return str(order)


def _level_words(level: orders.Level) -> str:
    size = "all" if level.size is None else str(level.size)
    apart = f" that are {level.stride} apart" if level.stride > 1 else ""
    where = f" in {_register_words(level.register)}" if level.register else ""
    where = f" in {level.float_register}" if level.float_register else where
    lost = f", without {level.shift.bits} low bits" if level.shift else ""
    return f"in tiles of {size}{apart}{where}{lost}"
