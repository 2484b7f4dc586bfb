"""Advise on nodes that are worth narrower accumulators: they take much of the energy and time."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named
from tracer.analyzers.advice._spare import are_hot, spare
from tracer.text import brief


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits that are hot in energy and in time."""
    rows = spare(evidence)
    rows = rows[are_hot(rows)]
    if rows.empty:
        return None
    energy, time = float(rows["energy_share"].sum()), float(rows["time_share"].sum())
    low, high = int(rows["bits_observed"].min()), int(rows["bits_observed"].max())
    bits = int(rows["bits"].max())
    verbs = ("takes", "needs") if len(rows) == 1 else ("take", "need")
    needed = f"{high}" if low == high else f"{low} to {high}"
    text = (
        f"worth narrowing: {named(rows)} {verbs[0]} {energy:.0%} of the energy and {time:.0%} of "
        f"the time, and {verbs[1]} {needed} of {bits} bits on this data. tracer whatif "
        f"{brief(evidence.model)} --accumulator {low}:{bits} finds the widths that keep the "
        "accuracy"
    )
    figures = {"bits": bits, "bits_needed": high, "spare_bits": int(rows["spare"].min())}
    return Advice("worth_narrowing", text, time, keys(rows), figures, energy)
