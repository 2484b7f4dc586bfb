"""`tracer count`: the work of a model, from the shapes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloup

from tracer.api import count as api
from tracer.cli import _accumulating, _options
from tracer.cli._command import Command
from tracer.errors import ThresholdError
from tracer.support.arguments import integer, maybe, option

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Policy

_MOST = 2**63 - 1


@dataclass
class _Budget:
    max_macs: int | None = option(
        "Exit 1 if a run takes more MACs than this.", None,
        group="Work", rule=maybe(integer(0, _MOST)), common=True,
    )  # fmt: skip
    max_params: int | None = option(
        "Exit 1 if the model has more parameters than this.", None,
        group="Work", rule=maybe(integer(0, _MOST)), common=True,
    )  # fmt: skip


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.Count)
@_options.declared(_Budget, "budget", _Budget)
@_accumulating.WIDTHS
@_options.PROCESS_LIMITS
@_options.TRACE_VIEW
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    budget: _Budget,
    accumulator: Policy | None,
    output: _options.Output,
) -> None:
    """Count MACs, operations, parameters and bytes of a model.

    The counts follow from the shapes of the tensors; MODEL is not run. Nodes that cannot be
    counted are told by their cause. They are missing from the totals, not counted as zero.

    Some shapes, branches and trip counts depend on data. With --inputs or --run, MODEL runs once
    in onnxruntime, and they are those of the run.

    --energy prices the counted operations, with the accumulators of --accumulator. Nodes without
    one, and all nodes without --accumulator, have accumulators of 32 bits.

    \b
    Examples:
      tracer count model.onnx
      tracer count model.onnx --batch 8 --by op --json
      tracer count model.onnx --max-macs 5000000 --max-params 100000
      tracer count llama.onnx --prefill 128 --decode 32
      tracer count detector.onnx --inputs image.npz
      tracer count int8.onnx --energy lab --accumulator 'conv1=18,conv2=16,*=17'
    """
    from tracer.records.trace import Run, Trace

    output.check(Trace)
    trace = api.count(model, accumulator=accumulator, **options)
    output.emit(trace)
    rows, params = trace.nodes, trace.model.params
    of_runs = rows.groupby([*Run.KEY], dropna=False)["macs"].sum()
    macs = int(of_runs.max()) if len(of_runs) else 0  # a model without nodes has no rows
    are_known = bool(rows.loc[rows["index"].notna(), "macs"].notna().all())
    broken = list[str]()
    for unit, flag, counted, known, most in (
        ("MACs", "--max-macs", macs, are_known, budget.max_macs),
        ("parameters", "--max-params", params or 0, params is not None, budget.max_params),
    ):
        if most is not None and counted > most:
            broken.append(f"{counted:,} {unit}; {flag} is {most:,}")
        elif most is not None and not known:
            needs_run = api.COUNT_WITH_RUN in trace.notes
            raise ThresholdError(
                f"{trace.model.name}: not all {unit} are known, which {flag} needs",
                "Count with the shapes of a run: --inputs FILE, or --run."
                if needs_run
                else "Add the rules that the notes miss: --operators FILE.py, as in "
                "'tracer docs custom-operators'.",
            )
    if broken:
        raise ThresholdError(f"{trace.model.name} has {'; and '.join(broken)}")
