"""Advise on products that run on fewer threads than the machine has cores."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_LONG_US, _SHARE = 50.0, 0.3
"""Shorter kernels gain little from a second thread, which takes some µs to wake."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if long products take much of the time, and cores are idle."""
    threads, cpus = evidence.run.threads, evidence.cpus
    if threads is None or threads >= cpus:
        return None
    rows = evidence.sure
    each = rows["time_us"] / rows["calls"]
    rows = rows[rows["op_type"].isin(_PRODUCTS) & (each >= _LONG_US)]
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    text = (
        f"idle cores: {named(rows)} take {share:.0%} of the time in calls of {_LONG_US:.0f} µs or "
        f"more, on {threads} of {cpus} processors"
    )
    figures = {"threads": float(threads), "cpus": float(cpus)}
    return Advice(
        "few_threads", text, share, keys(rows), figures, tune=("threads",), at_most=cpus / threads
    )
