"""An accumulator as plain values, for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tracer.accumulators.spec import orders
from tracer.accumulators.spec.accumulator import Accumulator


def dumped(accumulator: Accumulator) -> dict[str, Any]:
    """Its properties by name: numbers and texts, or None; the order by its spelling."""
    names = (field.name for field in fields(accumulator))
    values = {name: getattr(accumulator, name) for name in names}
    return {**values, "order": str(accumulator.order)}


def loaded(values: Mapping[str, Any]) -> Accumulator:
    """What `dumped` was given. Raises UsageError or TypeError for what it did not make."""
    return Accumulator(**{**values, "order": orders.named(values["order"])})
