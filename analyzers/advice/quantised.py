"""Advice on products in few bits: slower than floats, in floats all the same, or saturating."""

from tracer.analyzers.advice import Advice, Evidence, keys, known_share, named, span, taking
from tracer.analyzers.views.text import plural
from tracer.graph.operators import CONVOLUTION, MATRIX, PRODUCTS, computes_in_integers
from tracer.records import environment
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
    mixed = []  # kernels of bytes by int8 weights; the runtime makes int8 activations unsigned
    for kernel in evidence.run.kernels:
        product, types = PRODUCTS.get(kernel.op_type), kernel.input_types
        if product is None or product.kind not in (CONVOLUTION, MATRIX) or not product.weights:
            continue
        if len(types) > product.weights and types[product.weights].dtype == "int8":
            mixed += [kernel] if types[0].dtype in ("uint8", "int8") else []
    rows = evidence.rows_of(mixed)
    if rows.empty:
        return None
    text = (
        f"saturation: {named(rows)} {agree(len(rows), 'multiplies', 'multiply')} bytes by "
        "signed bytes, and this processor has no "
        f"VNNI: pairs of products may saturate at 16 bits. --accumulator {_PRESET} counts them"
    )
    time = known_share(rows["time_share"].sum())
    return Advice("saturating_sums", text, time, keys(rows), {}, tune=("static_int8",))


RULES = (slower_quantized, unrounded_activations, saturating_sums)
