"""Tables of a what-if: a row per width, a row per node, and the properties of each variant."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracer.records.whatif import REFERENCE_BITS, Variant, WhatIf, WidthChoice

_COUNTS = (
    "outputs", "overflow_outputs", "transient_outputs", "persistent_outputs",
    "saturation_events", "outputs_changed",
)  # fmt: skip


def axes(variant: Variant) -> dict[str, Any]:
    """Returns the properties that variants may differ in, by name."""
    accumulator = variant.answer.accumulator
    return {
        "order": str(accumulator.order),
        "overflow": accumulator.overflow,
        "bias": accumulator.bias,
        "product_bits": accumulator.product_bits,
        "convention": accumulator.convention,
        "weight_bits": variant.weight_bits,
        "activation_bits": variant.activation_bits,
        "pinned": variant.pinned.text or None,
    }


def label(result: WhatIf, variant: Variant) -> str:
    """Returns the properties in which variants differ, and the pins; a single one's order."""
    values = axes(variant)
    varied = [n for n in values if len({str(axes(other)[n]) for other in result.variants}) > 1]
    shown = varied or ["order", "overflow"]
    shown += ["pinned"] if values["pinned"] and "pinned" not in shown else []
    return ", ".join(_described(name, values[name]) for name in shown)


def rows(variant: Variant) -> pd.DataFrame:
    """Returns a row for each width of the sweep.

    Columns: `bits`, `score`, the overflow counts over all nodes and samples, `energy` per sample,
    and the share of energy `saved` against 32 bits and `saved_against_safe` against answer A.
    """
    reference = variant.energy(REFERENCE_BITS)
    safe = variant.swept_energy(variant.answer.observed)
    return pd.DataFrame(
        {
            "bits": row.bits,
            "score": row.score,
            **{n: sum(getattr(o, n) for o in row.overflows.values()) for n in _COUNTS},
            "energy": row.energy,
            "saved": saved(row.energy, reference),
            "saved_against_safe": saved(row.energy, safe),
        }
        for row in variant.answer.rows
    )


def nodes(variant: Variant) -> pd.DataFrame:
    """Returns a row for each node: the bits it needs, its bits in B and C, and their energies."""
    answer = variant.answer
    sums_of = {sums.node: sums for sums in answer.sums}
    choices = {"uniform": answer.uniform, "each": answer.each}
    table = []
    for index, work in enumerate(variant.work):
        sums = sums_of.get(work.node)
        table.append(
            {
                "node": work.node,
                "op_type": work.op_type,
                "module": work.module,
                "guaranteed": sums.guaranteed if sums else None,
                "observed": int(sums.tally.bits_observed.max()) if sums else None,
                "bits_pinned": variant.pinned.bits.get(work.node),
                **{f"bits_{name}": c.widths[index] if c else None for name, c in choices.items()},
                **{f"energy_{n}": _energy(variant, c, index) for n, c in choices.items()},
                "muls": work.muls,
                "adds": work.adds,
            }
        )
    return pd.DataFrame(table)


def saved(energy: float, reference: float) -> float | None:
    """Returns the share of `reference` that `energy` saves; None for a reference of 0."""
    return 1 - energy / reference if reference else None


def _energy(variant: Variant, choice: WidthChoice | None, index: int) -> float | None:
    return None if choice is None else variant.energies[choice.widths[index]][index]


def _described(name: str, value: Any) -> str:
    texts: Mapping[str, str] = {
        "pinned": f"pinned {value}",
        "bias": f"bias {value}",
        "product_bits": f"products of {value} bits",
        "weight_bits": "original weights" if value is None else f"{value}-bit weights",
        "activation_bits": (
            "original activations" if value is None else f"{value}-bit activations"
        ),
    }
    return texts.get(name, str(value))
