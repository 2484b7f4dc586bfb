"""Converts an accumulator to plain values for files, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tracer.accumulators.spec.accumulator import Accumulator


def dumped(accumulator: Accumulator) -> dict[str, Any]:
    """Returns the properties by name: numbers, text or None; order and rounding by their spelling.

    Rounding is left out where products are not rounded.
    """
    values = {field.name: getattr(accumulator, field.name) for field in fields(accumulator)}
    if not accumulator.product_shift:  # the keys of older files and evaluations stay valid
        del values["product_shift"], values["product_rounding"]
        return {**values, "order": str(accumulator.order)}
    rule = str(accumulator.product_rounding)
    return {**values, "order": str(accumulator.order), "product_rounding": rule}


def loaded(values: Mapping[str, Any]) -> Accumulator:
    """Returns the accumulator with properties as from `dumped`.

    Raises UsageError or TypeError for values of no accumulator.
    """
    return Accumulator(**values)
