"""Advise on types without kernels on the CPU, for which the runtime inserts conversions."""

from collections.abc import Sequence

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, percentage, us
from tracer.records.trace import Kernel

_CPU = "CPUExecutionProvider"
_HALVES = ("float16", "bfloat16")
_SHARE, _NAMED = 0.01, 3


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if casts that are no nodes of the model take a measurable time."""
    casts = [kernel for kernel in evidence.kernels_of("Cast") if _is_inserted(kernel)]
    rows = evidence.rows_of(casts)
    share, time = float(rows["time_share"].sum()), float(rows["time_us"].sum())
    if share < _SHARE:
        return None
    dtypes = sorted({dtype for kernel in casts for dtype in _halves(kernel)})
    text = (
        f"{' and '.join(dtypes)} on the CPU: {len(casts):,} casts that onnxruntime inserted take "
        f"{percentage(share)} of the time ({us(time)} µs), because its CPU provider has no kernel "
        f"of this type for {_without_kernel(evidence.run.kernels, casts)}. Export the model in "
        "float32 for the CPU"
    )
    return Advice("inserted_casts", text, share, keys(rows), {"time_us": time, "casts": len(casts)})


def _is_inserted(kernel: Kernel) -> bool:
    """Whether the runtime added a Cast on the CPU, of or to half precision."""
    return kernel.node is None and kernel.provider == _CPU and bool(_halves(kernel))


def _halves(kernel: Kernel) -> tuple[str, ...]:
    types = (each.dtype for each in (*kernel.input_types, *kernel.output_types))
    return tuple(dtype for dtype in types if dtype in _HALVES)


def _without_kernel(kernels: Sequence[Kernel], casts: Sequence[Kernel]) -> str:
    """Returns the operators that a cast stands before or after, the most frequent first."""
    read = {name for cast in casts for name in cast.inputs}
    written = {name for cast in casts for name in cast.outputs}
    others = [
        kernel.op_type
        for kernel in kernels
        if kernel not in casts
        and any(dtype not in _HALVES for dtype in (each.dtype for each in kernel.input_types))
        and (written.intersection(kernel.inputs) or read.intersection(kernel.outputs))
    ]
    names = sorted(set(others), key=lambda name: (-others.count(name), name))
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
