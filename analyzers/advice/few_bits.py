"""Advice on products in few bits, slower than floats or saturating, and on widths of sums."""

from collections.abc import Collection, Iterable

import pandas as pd

from tracer.analyzers.advice import (
    Advice,
    Evidence,
    keys,
    known_share,
    named,
    percentage,
    span,
    taking,
)
from tracer.analyzers.views.text import plural
from tracer.graph.operators import PRODUCTS, computes_in_integers
from tracer.records import environment
from tracer.records.trace import Kernel
from tracer.text import agree, brief

_LEAST = {
    "slower_quantized": 0.05,
    "unrounded_activations": 0.05,
}
"""Share of the time from which a rule speaks."""
_USUAL = 0.5
"""Share of the float32 peak that is assumed: products of some µs reach it, larger ones more."""
_LONG_US = 10.0
_PACKED = "MatMulNBits"
_WIDEST = 8 * 8
"""Bit operations of a multiplication of integers: activations of 8 bits, weights of 8 or fewer."""
_PRESET = "x86-maddubs"
"""The accumulator of such kernels: pairs of products in 16 bits, which saturate."""


def slower_quantized(evidence: Evidence) -> Advice | None:
    """Returns advice if integer products stay below half of the peak of float32."""
    peaks, rows = evidence.peaks, evidence.sure
    if peaks is None:
        return None
    integer = [k for k in evidence.run.kernels if computes_in_integers(k.op_type)]
    rows = rows[rows["node"].isin(evidence.rows_of(integer)["node"]) & (rows["macs"] > 0)]
    reached = _USUAL * peaks.float32.rate / 1e9
    rows = rows[(rows["gflops_per_s"] < reached) & (rows["time_us"] / rows["calls"] >= _LONG_US)]
    share = float(rows["time_share"].sum())
    if share < _LEAST["slower_quantized"]:
        return None
    time = float(rows["time_us"].sum())
    in_floats = float((rows["gflops_per_s"] * rows["time_us"]).sum()) / reached
    rate = float((rows["gflops_per_s"] * rows["time_us"]).sum()) / time
    text = (
        f"slower than floats: {taking(rows)} {span(time)} in 8 bits, at {rate:.3g} GOP/s; "
        f"floats are assumed to reach half of their peak here ({reached:.3g} GFLOP/s), and would "
        f"take {span(in_floats)}. tracer compare FLOAT.onnx {brief(evidence.model)} measures it; "
        "tracer quantize --exclude leaves nodes out"
    )
    figures = {"time_us": time, "in_floats_us": in_floats, "gops_per_s": rate}
    return Advice("slower_quantized", text, share, keys(rows), figures)


def unrounded_activations(evidence: Evidence) -> Advice | None:
    """Returns advice if MatMulNBits multiplies floats, as it does below accuracy level 4."""
    rows = evidence.rows_of(evidence.kernels_of(_PACKED))
    rows = rows[(rows["bops"] > _WIDEST * rows["macs"]).fillna(False)]
    share = float(rows["time_share"].sum())
    if share < _LEAST["unrounded_activations"]:
        return None
    time, macs = float(rows["time_us"].sum()), int(rows["macs"].sum())
    text = (
        f"packed weights in floats: {taking(rows)} {share:.0%} of the time ({span(time)}); "
        "accuracy_level = 4 lets MatMulNBits round activations to 8 bits and multiply integers. "
        "Check the outputs with tracer compare"
    )
    return Advice("unrounded_activations", text, share, keys(rows), {"time_us": time, "macs": macs})


def saturating_sums(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes whose outputs differ in the emulation, else on those of such types.

    The processor has AVX2 and no VNNI: its kernels of bytes by signed weights add pairs of products
    with VPMADDUBSW. Nothing is said where the emulation counted such sums and none differ.
    """
    if not environment.saturates(evidence.flags):
        return None
    emulated = evidence.sums[evidence.sums["accumulator"] == _PRESET]
    if len(emulated):
        rows = emulated[emulated["outputs_changed"] > 0]
        if rows.empty:
            return None
        rows = rows.sort_values("outputs_changed", ascending=False, kind="stable")
        count, of_all = int(rows["outputs_changed"].sum()), int(rows["outputs"].sum())
        text = (
            f"saturation: sums of {named(rows)} saturate in pairs of 16 bits, as this processor "
            f"adds them: {count:,} of {plural(of_all, 'output')} differ. "
            f"tracer narrow --for {_PRESET} changes the weights that may saturate; 7 bits or "
            "unsigned ones do not: tracer quantize --reduce-range, or --weight-type uint8"
        )
        time, figures = known_share(rows["time_share"].sum()), {"outputs_changed": float(count)}
        return Advice("saturating_sums", text, time, keys(rows), figures, tune=("static_int8",))
    rows = evidence.rows_of(filter(multiplies_signed_bytes, evidence.run.kernels))
    if rows.empty:
        return None
    text = (
        f"saturation: {named(rows)} {agree(len(rows), 'multiplies', 'multiply')} bytes by "
        "signed bytes, and this processor has no "
        f"VNNI: pairs of products may saturate at 16 bits. --accumulator {_PRESET} counts them"
    )
    time = known_share(rows["time_share"].sum())
    return Advice("saturating_sums", text, time, keys(rows), {}, tune=("static_int8",))


def multiplies_signed_bytes(kernel: Kernel) -> bool:
    """Whether a kernel multiplies bytes by int8 weights.

    onnxruntime makes int8 activations unsigned. Kernels whose name says that they quantise do so
    with floats.
    """
    product, types = PRODUCTS.get(kernel.op_type), kernel.input_types
    if product is None or not product.weights or len(types) <= product.weights:
        return False
    is_rounded = types[0].dtype in ("uint8", "int8") or kernel.op_type.startswith("DynamicQuantize")
    return is_rounded and types[product.weights].dtype == "int8"


def saturation_notes(
    kernels: Iterable[Kernel], differing: Iterable[str | None], flags: Collection[str]
) -> tuple[str, ...]:
    """Returns that nodes may differ from onnxruntime because its kernels saturate here.

    `differing` are their keys, and `flags` the instruction sets of the processor.
    """
    keys = set(differing)
    alike = [k for k in kernels if k.node in keys and multiplies_signed_bytes(k)]
    if not alike or not environment.saturates(flags):
        return ()
    more = f" and {len(alike) - 1:,} more" if len(alike) > 1 else ""
    return (
        "this processor has no VNNI, so that onnxruntime saturates pairs of products at 16 bits: "
        "this may be why "
        f"'{brief(str(alike[0].node))}'{more} {agree(len(alike), 'differs', 'differ')}. To test "
        f"it, count what saturates: --accumulator {_PRESET} --optimization all, without --against",
    )


_CHEAP = 0.05
"""The energy of a sum is at most quadratic in the width of its accumulator. Four more bits than 16
then add half of a node's energy: of this share, less than 3 % of the whole."""
_SPARE_ENERGY = 0.1
"""With less of the energy, narrowing changes the total by about one percent at most."""
_BITS = 2
"""One bit changes the energy by about one percent at most: widths are near 20 bits, and the energy
of an addition is linear in the width."""
_HOT = 0.1
"""Share of the energy, and of the time, from which a node is hot."""


def cheap_overflow(evidence: Evidence) -> Advice | None:
    """Returns advice if nodes with little energy in total overflow for want of width."""
    rows = evidence.sums
    short = rows["bits_observed"] > rows["bits"]  # not for pairs that saturate at any width
    rows = rows[(rows["overflow_outputs"] > 0) & short.fillna(False)]
    rows = rows.sort_values("overflow_outputs", ascending=False, kind="stable")
    rows = rows[rows["energy_share"].sort_values().cumsum().reindex(rows.index) <= _CHEAP]
    if rows.empty:
        return None
    energy, time = float(rows["energy_share"].sum()), known_share(rows["time_share"].sum())
    sums = int(rows["overflow_outputs"].sum())
    needed = int(rows["bits_observed"].max())
    verbs = ("overflows", "takes") if len(rows) == 1 else ("overflow", "take")
    text = (
        f"cheap to widen: {named(rows)} {verbs[0]} in {plural(sums, 'sum')} and {verbs[1]} only "
        f"{percentage(energy)} of the energy; {needed} bits are enough on this data"
    )
    figures = {"overflow_outputs": sums, "bits_needed": needed}
    return Advice("cheap_overflow", text, time, keys(rows), figures, energy)


def spare_bits(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits, but those that `worth_narrowing` is about."""
    rows = rows_with_spare(evidence)
    rows = rows[~are_hot(rows)]
    energy = float(rows["energy_share"].sum())
    if energy < _SPARE_ENERGY:
        return None
    first, others = rows.iloc[0], rows.iloc[1:]
    bits, spare = int(first["bits"]), int(first["spare"])
    more = ""
    if len(others):
        more = (
            f"; {plural(len(others), 'more node')} with "
            f"{percentage(float(others['energy_share'].sum()))} of the energy "
            f"{'has' if len(others) == 1 else 'have'} {int(others['spare'].min())} or more"
        )
    text = (
        f"spare bits: {brief(str(first['node']))} takes {percentage(first['energy_share'])} of the "
        f"energy and {percentage(known_share(first['time_share']))} of the time, and has "
        f"{plural(spare, 'bit')} to spare on this data ({bits - spare} of {bits} are needed), "
        f"{guaranteed(first)} for any input{more}. Try widths with tracer whatif"
    )
    time = known_share(rows["time_share"].sum())
    figures = {"spare_bits": spare, "spare_bits_guaranteed": guaranteed(first)}
    return Advice("spare_bits", text, time, keys(rows), figures, energy)


def worth_narrowing(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits that are hot in energy and in time."""
    rows = rows_with_spare(evidence)
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


def rows_with_spare(evidence: Evidence) -> pd.DataFrame:
    """Returns the rows with `spare` bits on this data, the largest share of energy x bits first."""
    rows = evidence.sums
    rows = rows.assign(spare=rows["bits"] - rows["bits_observed"])
    rows = rows[(rows["spare"] >= _BITS).fillna(False) & (rows["overflow_outputs"] == 0)]
    worth = (rows["energy_share"] * rows["spare"]).sort_values(ascending=False, kind="stable")
    return rows.loc[worth.index]


def are_hot(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Returns whether each row takes a large share of the energy, and of the time."""
    return (rows["energy_share"] >= _HOT) & (rows["time_share"].fillna(0) >= _HOT)


def guaranteed(row: "pd.Series[float]") -> int:
    """Returns the bits that no input needs; 0 where no width is guaranteed."""
    bits = row["bits_guaranteed"]
    return 0 if pd.isna(bits) else max(int(row["bits"]) - int(bits), 0)


RULES = (
    slower_quantized, unrounded_activations, saturating_sums,
    cheap_overflow, spare_bits, worth_narrowing,
)  # fmt: skip
