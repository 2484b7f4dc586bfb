"""Advise on shapes that the graph computes in every run, from dimensions that are left open."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, percentage, us

_SIZES = frozenset({"Shape", "Size"})
_SHARE = 0.02


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if integers that follow from a Shape are computed in a measurable time."""
    computed = set[tuple[str, str]]()
    kernels = []
    for kernel in evidence.run.kernels:
        small = all(kind.dtype == "int64" for kind in kernel.output_types)
        reads = any((kernel.scope, name) in computed for name in kernel.inputs)
        if kernel.op_type in _SIZES or (small and reads):
            kernels.append(kernel)
            computed.update((kernel.scope, name) for name in kernel.outputs)
    rows = evidence.rows_of(kernels)
    share, time = float(rows["time_share"].sum()), float(rows["time_us"].sum())
    if share < _SHARE:
        return None
    text = (
        f"computed shapes: {named(rows)} take {percentage(share)} of the time ({us(time)} µs) to "
        "compute sizes of tensors, which are constants where the inputs have one size"
    )
    return Advice(
        "computed_shapes", text, share, keys(rows), {"time_us": time},
        tune=("fixed_dimensions", "folding"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip
