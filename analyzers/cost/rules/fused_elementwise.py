"""onnxruntime's fused element-wise operators: a bias, an activation, a residual."""

from tracer.analyzers.cost.activations import PER_ELEMENT
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_output
from tracer.analyzers.cost.rules import softmax
from tracer.analyzers.cost.rules.elementwise import swish

_MICROSOFT = "com.microsoft"

counts("Gelu", domain=_MICROSOFT)(per_output(PER_ELEMENT["Gelu"]))
counts("BiasGelu", domain=_MICROSOFT)(per_output(Count(adds=1) + PER_ELEMENT["Gelu"]))
counts("BiasAdd", domain=_MICROSOFT)(per_output(Count(adds=2)))
counts("BiasSoftmax", domain=_MICROSOFT)(per_output(Count(adds=1) + softmax.PER_ELEMENT))


@counts("FastGelu", domain=_MICROSOFT)
def _fast_gelu(op: Operation) -> Count:
    return (Count(adds=int(op.has(1))) + PER_ELEMENT["FastGelu"]) * op.output().size


@counts("QuickGelu", domain=_MICROSOFT)
def _quick_gelu(op: Operation) -> Count:
    return swish(op.number("alpha", 1.702)) * op.output().size


@counts("BiasSplitGelu", domain=_MICROSOFT)
def _bias_split_gelu(op: Operation) -> Count:
    """Adds a bias to both halves, and multiplies one half by the Gelu of the other."""
    gated = PER_ELEMENT["Gelu"] + Count(muls=1)
    return Count(adds=op.input(0).size) + gated * op.output().size
