"""Tries a network in accumulators of other widths."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from analyzers import energy
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.datasets.opening import open_dataset
from tracer.limits import Limits
from tracer.records import environment
from tracer.records.trace import ModelInfo
from tracer.records.whatif import EnergyBasis, Judgement, WhatIf
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.arguments import (
    TEXT,
    Rule,
    check_arguments,
    either,
    instance,
    maybe,
    several,
    whole,
)
from tracer.support.progress import Progress
from tracer.whatif import cache_key, width_plan
from tracer.whatif.graph_variants import graph_variants
from tracer.whatif.metric_scores import checked_metric
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.variants import Task, run_variants

_RULES = {
    "accumulator": Rule(
        "widths, as '12:32', 'conv1=18,*=12:32' or [16, 18]", either(TEXT, several(whole())).holds
    ),
    "options": maybe(instance("tracer.whatif.options.WhatIfOptions")),
}

_SETTING_NAMES = {
    "accuracy_budget": "budget",
    "range_convention": "convention",
    "addition_convention": "counting",
}
"""Names in files of options that have another name in Python."""


def what_if(
    model: ModelSource,
    accumulator: str | Sequence[int],
    data: str | Path,
    options: WhatIfOptions | None = None,
    *,
    trace: str | Path | None = None,
    force: bool = False,
    folder: str | Path = "data",
    threads: int = 0,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Evaluates `model` on the data set `data` in accumulators of the widths `12:32` or `12,14,16`.

    `conv1=18,*=12:32` pins nodes to a width; see `tracer.whatif.width_plan`. A float model is
    quantised first, with ranges of its training data, unless `options.fixed` has fixed-point
    formats. Each evaluation is written to the file `trace` at once, and reused when the call is
    repeated; only the pass in wide accumulators is repeated. Raises the errors of `tracer.errors`;
    a `trace` of something else is replaced only with `force`.
    """
    check_arguments(locals(), _RULES)
    options = options or WhatIfOptions()
    plan = width_plan.read(accumulator)
    narrowest, widest = plan.ends
    accumulators = tuple(options.accumulators(widest))
    tuple(options.accumulators(narrowest))  # raises UsageError for a width that is too narrow
    loaded = open_model(model)
    dataset = open_dataset(data, loaded, limit=options.limit, folder=Path(folder))
    metric = checked_metric(loaded, dataset, options.metric)
    task = Task(dataset, metric, energy.find(options.energy), options, plan, threads, limits)
    graphs, changes = graph_variants(loaded, dataset, options, Path(folder), progress)
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
