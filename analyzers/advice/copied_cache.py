"""Advise on caches of keys and values that are copied in every step."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named
from tracer.analyzers.views.text import quantity
from tracer.records.trace import Kernel

_OPERATOR = "GroupQueryAttention"
"""The operator that extends a cache in place, where past and present are one buffer."""
_PRESENT = slice(1, 3)
"""Its outputs of keys and values."""
_SHARE = 0.05


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if the present is longer than the past, so that the past is copied into it."""
    copying = [kernel for kernel in evidence.kernels_of(_OPERATOR) if _copied(kernel)]
    rows = evidence.rows_of(copying)
    share, moved = float(rows["time_share"].sum()), sum(map(_copied, copying))
    if share < _SHARE:
        return None
    verbs = ("takes", "copies") if len(rows) == 1 else ("take", "copy")
    text = (
        f"cache copied: {named(rows)} {verbs[0]} {share:.0%} of the time and {verbs[1]} "
        f"{quantity(moved, 'B')} of past keys and values into a longer present in every run. "
        "Bind past and present to one buffer of the greatest length, by IOBinding or "
        "past_present_share_buffer of onnxruntime-genai"
    )
    return Advice("copied_cache", text, share, keys(rows), {"bytes": moved})


def _copied(kernel: Kernel) -> int:
    """Returns the bytes of the past that a kernel copies into a present with more rows."""
    presents = kernel.output_types[_PRESENT]
    pasts = [each for each in kernel.input_types if each.shape and len(each.shape) == 4]
    longer = (
        past.nbytes or 0
        for past, present in zip(pasts, presents, strict=False)
        if past.concrete and present.concrete and past.concrete[2] < present.concrete[2]
    )
    return sum(longer)
