"""Advise on attention that runs as products, a Softmax and changes of layout, each a kernel."""

from collections.abc import Mapping

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, us
from tracer.records.trace import Kernel

_FUSED = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention")
_PRODUCTS = frozenset({"FusedMatMul", "MatMul"})
_BETWEEN = frozenset({"Add", "Cast", "Div", "IsNaN", "Mul", "Softmax", "Where"})
"""What may stand between the two products of an attention."""
_SHARE = 0.02


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if a Softmax between products is not part of a fused kernel."""
    if any(evidence.kernels_of(name) for name in _FUSED):
        return None
    makers = {(k.scope, name): k for k in evidence.run.kernels for name in k.outputs}
    chains = [_chain(softmax, makers) for softmax in evidence.kernels_of("Softmax")]
    kernels = {kernel.name: kernel for chain in chains for kernel in chain}
    rows = evidence.rows_of(kernels.values())
    share, time = float(rows["time_share"].sum()), float(rows["time_us"].sum())
    if share < _SHARE:
        return None
    count = sum(bool(chain) for chain in chains)
    text = (
        f"unfused attention: {named(rows)} take {share:.0%} of the time ({us(time)} µs) in "
        f"{count} Softmax after products, which onnxruntime has kernels for that hold them all"
    )
    return Advice(
        "unfused_attention", text, share, keys(rows), {"time_us": time, "softmax": float(count)},
        tune=("fusions",), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def _chain(softmax: Kernel, makers: Mapping[tuple[str, str], Kernel]) -> list[Kernel]:
    """Returns the kernels from a product to the Softmax behind it; none without a product."""
    chain, waiting = dict[str, Kernel](), [softmax]
    while waiting:
        kernel = waiting.pop()
        if kernel.name in chain:
            continue
        chain[kernel.name] = kernel
        if kernel.op_type in _BETWEEN:
            before = (makers.get((kernel.scope, name)) for name in kernel.inputs)
            waiting += [m for m in before if m and m.op_type in _BETWEEN | _PRODUCTS]
    found = list(chain.values())
    return found if any(kernel.op_type in _PRODUCTS for kernel in found) else []
