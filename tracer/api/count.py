"""`tracer.count`: counts the work of every node of an ONNX model, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracer.api._contained import contained
from tracer.support.arguments import RULES, swept

if TYPE_CHECKING:
    from tracer.accumulators.spec.any_accumulator import AnyAccumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.exporters.subject import Subject
    from tracer.inputs.request import InputPaths, Samples
    from tracer.limits import Limits
    from tracer.records.trace import Trace


@contained({"past": swept(RULES["past"])})
def count(
    model: Subject,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    convention: str = "plain",
    energy: str | None = None,
    accumulator: int | str | AnyAccumulator | Policy | None = None,
    fixed: str | None = None,
    operands: str | None = None,
    feeds: InputPaths | Samples = None,
    run: bool = False,
    prefill: int | None = None,
    decode: int | None = None,
    past: int | Sequence[int] | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Trace:
    """Counts the work of every node of `model` from the shapes of its tensors.

    `dims` sizes open dimensions by symbol or `INPUT:AXIS`; `convention` says how additions are
    counted (see `analyzers.cost`). `energy` names a model of `analyzers.energy`, which fills the
    column `energy`. `accumulator`, `fixed` and `operands`, as in `interpret`, are what the
    energies are those of, and fill the columns `bits`, `accumulator` and `operands`.

    Shapes follow from the shapes of the inputs; the model does not run. With `run`, or with `feeds`
    chosen as in `profile`, it runs once in onnxruntime, and shapes that depend on data, branches
    and trip counts are those of the run.

    `prefill`, `decode` and `past` count the phases of a decoder with a cache, as in `profile`.

    onnx infers the shapes in a child process, within `seconds` and `process_bytes` of `limits`, or
    with `in_process` in this one. Raises the errors of `tracer.errors`.
    """
    from tracer.api import _count
    from tracer.inputs.phases import Phases

    return _count.count(
        model, batch, dims or {}, convention, energy, accumulator, fixed, operands, feeds, run,
        limits, Phases.of(prefill, decode, past),
    )  # fmt: skip
