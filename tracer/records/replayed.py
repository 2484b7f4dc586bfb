"""The result of a replay: how each kernel's bits compare with those of the runtime."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tracer.records.columns import as_column
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.text import plural


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """One kernel on all inputs, each time fed the values that the runtime computed.

    `node` names the first of the `nodes` of the model that the kernel stands for, or the kernel
    where it stands for none. `equal` of its `size` results have equal bits; others differ by `ulps`
    at most, floats that lie between, infinite beside NaN. `rule` says how the kernel computes, ''
    where that is not known, and `reason` why. `ulps` is None where nothing could be compared.
    `tree` draws the order of additions of a sum of at most 32 terms.
    """

    node: str = field(metadata=as_column("node", 0))
    op_type: str = field(metadata=as_column("kernel", 1))
    equal: int
    size: int
    ulps: float | None = field(metadata=as_column("ulp", 2, "number"))
    rule: str
    reason: str
    nodes: tuple[str, ...]
    tree: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all results have equal bits."""
        return self.equal == self.size and self.ulps is not None


@dataclass(frozen=True, slots=True)
class ReplayedOutput:
    """The SHA-256 of the bytes of an output on all inputs, of the runtime and of the replay.

    The session is that of the model itself, and the replay computed the graph by rules alone.
    `replayed` is None where it could not.
    """

    output: str
    sha256: str
    replayed: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Replayed(Result):
    """A model replayed with the arithmetic of a `runtime`, kernel by kernel, on `inputs` inputs.

    Of one node, there are the kernels that stand for it, and no outputs.
    """

    view: ClassVar[str] = "tracer.analyzers.views.replayed"

    model: ModelInfo
    runtime: str
    settings: Mapping[str, Any]
    inputs: int
    kernels: tuple[ReplayedKernel, ...]
    outputs: tuple[ReplayedOutput, ...]
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> int:
        """The kernels whose results all have equal bits."""
        return sum(kernel.is_equal for kernel in self.kernels)

    def headline(self) -> str:
        """The model, and how many of its kernels have equal bits."""
        return f"{self.model.name}, {self.equal} of {plural(len(self.kernels), 'kernel')} equal"
