"""Advise on kernels that the runtime inserts to change the layout of tensors."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, us
from tracer.records.trace import Kernel
from tracer.text import brief

_REORDERS = ("ReorderInput", "ReorderOutput")
_SHARE = 0.02


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if reorders to and from the blocked layout take a measurable time."""
    rows = evidence.rows[evidence.rows["op_type"].isin(_REORDERS)]
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    time = float(rows["time_us"].sum())
    kernels = {kernel.name: kernel for kernel in evidence.run.kernels}
    largest = kernels.get(str(rows.iloc[0]["kernels"]))
    where = _between(evidence, largest) if largest else ""
    text = (
        f"layout: {'1 reorder takes' if len(rows) == 1 else f'{len(rows):,} reorders take'} "
        f"{share:.1%} of the time ({us(time)} µs), because some operators "
        f"between convolutions have no kernel for the blocked layout{where}"
    )
    return Advice(
        "layout_reorders", text, share, keys(rows), {"time_us": time},
        tune=("layout",), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def _between(evidence: Evidence, reorder: Kernel) -> str:
    kernels = [k for k in evidence.run.kernels if k.scope == reorder.scope]
    before = [k for k in kernels if set(k.outputs) & set(reorder.inputs)]
    after = [k for k in kernels if set(k.inputs) & set(reorder.outputs)]
    if not before and not after:
        return ""
    source = _described(before[0]) if before else "the input"
    target = _described(after[0]) if after else "the output"
    return f"; the longest is between {source} and {target}"


def _described(kernel: Kernel) -> str:
    return f"{brief(kernel.name)} ({brief(kernel.op_type)})"
