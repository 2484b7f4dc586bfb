"""`tracer.count`: counts the work of every node of an ONNX model, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import option

if TYPE_CHECKING:
    from tracer.accumulators.spec.accumulator import AnyAccumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.exporters.subject import ModelSource
    from tracer.inputs.request import InputPaths, Samples
    from tracer.records.trace import Trace

COUNT_WITH_RUN = "count with the shapes of a run: --inputs FILE, or --run for random inputs"
"""The note of a count that lacks shapes."""


@dataclass(frozen=True)
class Count(_calls.Contained):
    """The arguments of `count`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: InputPaths | Samples = option(
        "Run once on these values, and count with the shapes of the run: an .npz file or a "
        "test_data_set folder.",
        None, group=_calls.INPUT, reads=("path",),
    )  # fmt: skip
    run: bool = option(
        "Run once on random values, and count with the shapes of the run.",
        False, group=_calls.INPUT,
    )  # fmt: skip
    prefill: int | None = _calls.prefill()
    decode: int | None = _calls.decode()
    past: int | Sequence[int] | None = _calls.past()
    convention: str = _calls.convention()
    energy: str | None = _calls.energy("none", "Work")
    accumulator: int | str | AnyAccumulator | Policy | None = None
    fixed: str | None = None
    operands: str | None = None


@_calls.contained(Count)
def count(call: Count) -> Trace:
    """Counts the work of every node of `model` from the shapes of its tensors.

    `dims` sizes open dimensions by symbol or `INPUT:AXIS`; `convention` says how additions are
    counted (see `analyzers.cost`). `energy` names a model of `analyzers.energy`, which fills the
    column `energy`. `accumulator`, `fixed` and `operands`, as in `interpret`, are what the
    energies are those of, and fill the columns `bits`, `accumulator` and `operands`.

    Shapes follow from the shapes of the inputs; the model does not run. With `run`, or with
    `inputs` as in `profile`, it runs once in onnxruntime, and shapes that depend on data, branches
    and trip counts are those of the run.

    `prefill`, `decode` and `past` count the phases of a decoder with a cache, as in `profile`.

    onnx infers the shapes in a child process, within `seconds` and `process_bytes` of `limits`, or
    with `in_process` in this one. Raises the errors of `tracer.errors`.

    >>> import tracer
    >>> tracer.count("models/lenet/lenet.onnx").top(2)[["node", "op_type", "macs"]]
               node op_type    macs
    0  node_Conv_22    Conv  352800
    1  node_Conv_23    Conv  240000
    """
    from tracer.api import _count

    return _count.count(call)
