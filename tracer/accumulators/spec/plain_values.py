"""Converts an accumulator to plain values for files, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tracer.accumulators.spec.accumulator import Accumulator


def dumped(accumulator: Accumulator) -> dict[str, Any]:
    """Returns the properties by name: numbers, text or None; the order by its spelling."""
    values = {field.name: getattr(accumulator, field.name) for field in fields(accumulator)}
    return {**values, "order": str(accumulator.order)}


def loaded(values: Mapping[str, Any]) -> Accumulator:
    """Returns the accumulator with properties as from `dumped`.

    Raises UsageError or TypeError for values of no accumulator.
    """
    return Accumulator(**values)
