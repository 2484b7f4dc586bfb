"""What a what-if found, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracer.records.whatif import Variant, WhatIf, WidthChoice

USUAL = 32
"""Bits that energies are compared with: what integers are summed in where nobody asks."""

_COUNTS = (
    "outputs", "overflow_outputs", "transient_outputs", "persistent_outputs",
    "saturation_events", "outputs_changed",
)  # fmt: skip


def axes(one: Variant) -> dict[str, Any]:
    """What makes a variant, by name."""
    kind = one.answer.accumulator
    return {
        "order": str(kind.order),
        "overflow": kind.overflow,
        "bias": kind.bias,
        "product_bits": kind.product_bits,
        "convention": kind.convention,
        "weight_bits": one.weight_bits,
        "activation_bits": one.activation_bits,
        "pinned": one.pinned.text or None,
    }


def label(result: WhatIf, one: Variant) -> str:
    """What tells a variant from the others, or the order where there is but one; what is pinned."""
    mine = axes(one)
    varied = [n for n in mine if len({str(axes(other)[n]) for other in result.variants}) > 1]
    shown = [n for n in mine if n in varied] or ["order", "overflow"]
    shown += ["pinned"] if mine["pinned"] and "pinned" not in shown else []
    return ", ".join(_told(name, mine[name]) for name in shown)


def rows(one: Variant) -> pd.DataFrame:
    """A row for each width that all nodes have, but for the pinned ones.

    Columns `bits`, `score`, the counts of the node table over all nodes and samples, `energy` of a
    sample, and what of it is `saved`, as a share, against 32 bits and against the width that is
    safe on this data.
    """
    usual, safe = one.energy(USUAL), one.swept_energy(one.answer.observed)
    return pd.DataFrame(
        {
            "bits": row.bits,
            "score": row.score,
            **{n: sum(getattr(o, n) for o in row.evaluation.overflows.values()) for n in _COUNTS},
            "energy": row.energy,
            "saved": saved(row.energy, usual),
            "saved_against_safe": saved(row.energy, safe),
        }
        for row in one.answer.rows
    )


def nodes(one: Variant) -> pd.DataFrame:
    """A row for each node: the widths it needs, and those of the answers, with their energies."""
    answer = one.answer
    sums = {each.node: each for each in answer.sums}
    chosen = {"uniform": answer.uniform, "each": answer.each}
    found = []
    for place, work in enumerate(one.work):
        seen = sums.get(work.node)
        found.append(
            {
                "node": work.node,
                "op_type": work.op_type,
                "module": work.module,
                "guaranteed": seen.guaranteed if seen else None,
                "observed": int(seen.tally.bits_observed.max()) if seen else None,
                "bits_pinned": one.pinned.bits.get(work.node),
                **{f"bits_{name}": c.widths[place] if c else None for name, c in chosen.items()},
                **{f"energy_{n}": _energy(one, c, place) for n, c in chosen.items()},
                "muls": work.muls,
                "adds": work.adds,
            }
        )
    return pd.DataFrame(found)


def saved(energy: float, against: float) -> float | None:
    """The share of `against` that `energy` is less; None of nothing."""
    return 1 - energy / against if against else None


def _energy(one: Variant, choice: WidthChoice | None, place: int) -> float | None:
    return None if choice is None else one.energies[choice.widths[place]][place]


def _told(name: str, value: Any) -> str:
    words: Mapping[str, str] = {
        "pinned": f"pinned {value}",
        "bias": f"bias {value}",
        "product_bits": f"products of {value} bits",
        "weight_bits": "weights as they are" if value is None else f"{value}-bit weights",
        "activation_bits": (
            "activations as they are" if value is None else f"{value}-bit activations"
        ),
    }
    return words.get(name, str(value))
