"""Tries a network in accumulators of other widths: see `tracer.what_if`."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from analyzers import energy
from exporters.subject import Subject, open_subject
from tracer.inputs.datasets.opening import open_dataset
from tracer.limits import Limits
from tracer.records import environment
from tracer.records.trace import ModelInfo
from tracer.records.whatif import EnergyBasis, Judgement, WhatIf
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.file_lock import refuse_in_use
from tracer.support.progress import Progress
from tracer.whatif import cache_key, width_plan
from tracer.whatif.deadline import Deadline
from tracer.whatif.graph_variants import graph_variants
from tracer.whatif.metric_scores import checked_metric
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.variants import Task, run_variants

_SETTING_NAMES = {
    "accuracy_budget": "budget",
    "range_convention": "convention",
    "addition_convention": "counting",
}
"""Names in files of options that have another name in Python."""


def what_if(
    model: Subject,
    accumulator: str | Sequence[int],
    data: str | Path,
    options: WhatIfOptions | None,
    trace: str | Path | None,
    force: bool,
    folder: Path,
    threads: int,
    limits: Limits | None,
    progress: Progress | None,
) -> WhatIf:
    """Evaluates the widths, and writes each evaluation to the file `trace` at once."""
    if trace is not None and force:  # before minutes are spent on the data
        refuse_in_use(Path(trace))
    options = options or WhatIfOptions()
    deadline = Deadline(None if limits is None else limits.seconds)
    plan = width_plan.read(accumulator)
    narrowest, widest = plan.ends
    accumulators = tuple(options.accumulators(widest))
    tuple(options.accumulators(narrowest))  # raises UsageError for a width that is too narrow
    loaded = open_subject(model)
    dataset = open_dataset(data, loaded, limit=options.limit, folder=folder)
    metric = checked_metric(loaded, dataset, options.metric)
    model_of_energy = energy.find(options.energy)
    task = Task(dataset, metric, model_of_energy, options, plan, threads, limits, deadline)
    graphs, changes = graph_variants(loaded, dataset, options, folder, progress)
    identity = cache_key.identity(loaded, dataset, metric, options, changes)
    opened = nullcontext() if trace is None else closing(WhatIfFile(Path(trace), identity, force))
    with opened as file:
        results = run_variants(task, graphs, accumulators, file, progress)
        result = WhatIf(
            model=ModelInfo.of(loaded),
            environment=environment.observe(),
            settings={**identity, **_settings(task)},
            judgement=Judgement(
                metric.name, metric.unit, metric.higher_is_better, float(options.accuracy_budget)
            ),
            energy=EnergyBasis(
                task.energy.name, task.energy.unit, task.energy.source, results.addition_convention
            ),
            variants=results.variants,
            notes=tuple(dict.fromkeys((*changes, *results.notes))),
        )
        if file is not None:
            file.finish(result)
    return result


def _settings(task: Task) -> dict[str, Any]:
    values = {f.name: getattr(task.options, f.name) for f in fields(task.options)}
    values |= {"data": task.dataset.name, "accumulator": str(task.plan), "widths": task.widths}
    return {
        _SETTING_NAMES.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
