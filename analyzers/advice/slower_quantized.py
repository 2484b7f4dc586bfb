"""Advise on quantised products that are slower than floats of the same size are on this machine."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, us
from tracer.graph.operators import computes_in_integers
from tracer.text import brief

_USUAL = 0.5
"""Share of the float32 peak that is assumed: products of some µs reach it, larger ones more."""
_SHARE, _LONG_US = 0.05, 10.0


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if integer products stay below half of the peak of float32."""
    peaks, rows = evidence.peaks, evidence.sure
    if peaks is None:
        return None
    integer = [k for k in evidence.run.kernels if computes_in_integers(k.op_type)]
    rows = rows[rows["node"].isin(evidence.rows_of(integer)["node"]) & (rows["macs"] > 0)]
    reached = _USUAL * peaks.float32.rate / 1e9
    rows = rows[(rows["gflops_per_s"] < reached) & (rows["time_us"] / rows["calls"] >= _LONG_US)]
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    time = float(rows["time_us"].sum())
    in_floats = float((rows["gflops_per_s"] * rows["time_us"]).sum()) / reached
    rate = float((rows["gflops_per_s"] * rows["time_us"]).sum()) / time
    text = (
        f"slower than floats: {named(rows)} take {us(time)} µs in 8 bits, at {rate:.3g} GOP/s; "
        f"floats are assumed to reach half of their peak here ({reached:.3g} GFLOP/s), and would "
        f"take {us(in_floats)} µs. tracer compare FLOAT.onnx {brief(evidence.model)} measures it; "
        "tracer quantize --exclude leaves nodes out"
    )
    figures = {"time_us": time, "in_floats_us": in_floats, "gops_per_s": rate}
    return Advice("slower_quantized", text, share, keys(rows), figures)
