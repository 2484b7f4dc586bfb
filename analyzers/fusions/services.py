"""What a kernel of the runtime's own is for."""

from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

_LAYOUT, _TYPE, _COPY = "layout change", "type change", "copy"

KINDS = {
    "ReorderInput": _LAYOUT,
    "ReorderOutput": _LAYOUT,
    "Transpose": _LAYOUT,
    "Cast": _TYPE,
    "MemcpyFromHost": _COPY,
    "MemcpyToHost": _COPY,
}
"""By operator."""


def service(kernel: Kernel, evidence: Evidence | None) -> str:
    """What `kernel` is for, and of which tensor of the model where values tell."""
    kind = KINDS.get(kernel.op_type, "helper")
    equal = evidence.equal if evidence else {}
    moved = next((equal[name][0] for name in kernel.outputs if equal.get(name)), None)
    return f"{kind} of '{moved}'" if moved else kind
