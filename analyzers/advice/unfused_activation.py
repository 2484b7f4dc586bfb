"""Advise on activations that run separately after an operator that could include them."""

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named
from tracer.records.trace import Kernel

_FUSED_INTO_CONV = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"})
_FUSED_INTO_GEMM = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu"})
_FUSIBLE = {"Conv": _FUSED_INTO_CONV, "Gemm": _FUSED_INTO_GEMM}
"""Activations that onnxruntime fuses from `extended` on, by operator (conv_activation_fusion.cc and
gemm_activation_fusion.cc under onnxruntime/core/optimizer)."""
_ACTIVATIONS = _FUSED_INTO_CONV | _FUSED_INTO_GEMM
_FOLDED = "BatchNormalization"
"""A Conv always absorbs it."""
_CARRIED = "activation"
"""The attribute of a kernel that already includes an activation."""
_FUSING = ("extended", "all")
_SHARE = 0.02


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if a separate activation is the only reader of a Conv or Gemm."""
    alone = [kernel for kernel, _ in _pairs(evidence)]
    rows = pd.concat([evidence.rows.head(0), *(evidence.row_of(kernel) for kernel in alone)])
    rows = rows.drop_duplicates("node").sort_values("time_us", ascending=False)
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    moved = float((rows["gbytes_per_s"] * rows["time_us"]).sum()) * 1e3
    pair = Counter(operators for _, operators in _pairs(evidence)).most_common(1)[0][0]
    remedy = (
        f"onnxruntime did not fuse {pair} here"
        if evidence.optimization in _FUSING
        else f"--optimization all fuses {pair}, unless a tensor in between is an output"
    )
    text = (
        f"unfused activations: {named(rows)} take {share:.1%} of the time as separate kernels and "
        f"move {moved / 1e6:.3g} MB that a fused kernel does not move: {remedy}"
    )
    return Advice(
        "unfused_activation", text, share, keys(rows), {"bytes": moved, "pair": pair},
        tune=("optimization",), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def _pairs(evidence: Evidence) -> Iterator[tuple[Kernel, str]]:
    """Yields each separate activation, and the operators that it could be fused with."""
    kernels = evidence.run.kernels
    makers = {(k.scope, name): k for k in kernels for name in k.outputs}
    readers = Counter((k.scope, name) for k in kernels for name in set(k.inputs))
    for kernel in kernels:
        if kernel.op_type not in _ACTIVATIONS:
            continue
        chain = [kernel]
        while chain[-1] is kernel or chain[-1].op_type == _FOLDED:
            source = (kernel.scope, chain[-1].inputs[0] if chain[-1].inputs else "")
            if source not in makers or readers[source] != 1:
                break
            chain.append(makers[source])
        maker = chain[-1]
        if kernel.op_type in _FUSIBLE.get(maker.op_type, ()) and _CARRIED not in maker.attributes:
            yield kernel, " + ".join(part.op_type for part in reversed(chain))
