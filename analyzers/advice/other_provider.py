"""Advise on nodes that the chosen provider does not run, and the copies between both."""

from collections import Counter

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, percentage, us

_COPIES = ("MemcpyFromHost", "MemcpyToHost")
_CPU = "CPUExecutionProvider"
_NAMED = 3


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if the runtime copies tensors between devices, for kernels on the CPU."""
    copies = [k for name in _COPIES for k in evidence.kernels_of(name)]
    rows = evidence.rows_of(copies)
    on_cpu = [k.op_type for k in evidence.run.kernels if k.provider == _CPU and k not in copies]
    if rows.empty or not on_cpu:
        return None
    share, time = float(rows["time_share"].sum()), float(rows["time_us"].sum())
    names = [name for name, _ in Counter(on_cpu).most_common(_NAMED)]
    text = (
        f"other provider: {len(on_cpu):,} kernels ({', '.join(names)}) ran on the "
        f"{_CPU}, and {len(copies):,} copies between it and the device take {percentage(share)} "
        f"of the time ({us(time)} µs). Replace these operators, or their types, by ones that the "
        "provider has"
    )
    figures = {"time_us": time, "copies": len(copies), "kernels": len(on_cpu)}
    return Advice("other_provider", text, share, keys(rows), figures)
