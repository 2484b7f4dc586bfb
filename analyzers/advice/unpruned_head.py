"""Advise on a head that computes the logits of all tokens of a prompt."""

from collections.abc import Iterator

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, us
from tracer.analyzers.views.text import si
from tracer.inputs.phases import PREFILL
from tracer.records.trace import Kernel
from tracer.text import brief

_PRODUCTS = frozenset({"FusedMatMul", "Gemm", "MatMul", "MatMulNBits"})
_AFTER = frozenset({"Add", "Cast", "Div", "Mul", "Tanh"})
"""What may follow a head: a bias, a conversion, a scale, a cap."""
_SHARE = 0.02


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if a prefill multiplies more than the last token with the head."""
    heads = list(_heads(evidence)) if evidence.run.phase == PREFILL else []
    rows = evidence.rows_of(heads)
    if rows.empty:
        return None
    head, tokens = heads[0], _tokens(heads[0])
    spare = (tokens - 1) / tokens
    share, time = spare * float(rows["time_share"].sum()), spare * float(rows["time_us"].sum())
    macs = spare * float(rows["macs"].sum())
    if share < _SHARE:
        return None
    text = (
        f"head not pruned: {brief(head.name)} computes the logits of all {tokens:,} tokens, and "
        f"generating needs those of the last: a Gather of the last token before it saves "
        f"{si(macs)} MACs and {us(time)} µs of the prefill ({share:.0%} of the time)"
    )
    figures = {"macs": macs, "time_us": time, "tokens": float(tokens)}
    return Advice("unpruned_head", text, share, keys(rows), figures)


def _heads(evidence: Evidence) -> Iterator[Kernel]:
    """Yields products of all tokens whose outputs the model returns."""
    kernels = [kernel for kernel in evidence.run.kernels if not kernel.scope]
    makers = {name: kernel for kernel in kernels for name in kernel.outputs}
    read = {name for kernel in kernels for name in kernel.inputs}
    for kernel in kernels:
        if read.intersection(kernel.outputs) or _tokens(kernel) < 2:
            continue
        maker: Kernel | None = kernel
        while maker is not None and maker.op_type in _AFTER:
            maker = next((makers[name] for name in maker.inputs if name in makers), None)
        if maker is not None and maker.op_type in _PRODUCTS:
            yield maker


def _tokens(kernel: Kernel) -> int:
    """Returns the tokens of an output [batch, tokens, words]; 0 of another."""
    shape = kernel.output_types[0].concrete if kernel.output_types else None
    return shape[1] if shape is not None and len(shape) == 3 else 0
