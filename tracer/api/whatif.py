"""The Python door to what-ifs: a network in accumulators of other widths."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from analyzers import energy
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.datasets import open_dataset
from tracer.limits import Limits
from tracer.records import environment
from tracer.records.trace import ModelInfo
from tracer.records.whatif import EnergyBasis, Judgement, WhatIf
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.progress import Progress
from tracer.whatif import cache_key, graph_variants, scoring, widths
from tracer.whatif.options import Options
from tracer.whatif.task import Explored, Task, explore


def what_if(
    model: ModelSource,
    accumulator: str | Sequence[int],
    data: str | Path,
    options: Options | None = None,
    *,
    trace: str | Path | None = None,
    force: bool = False,
    folder: str | Path = "data",
    threads: int = 0,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Try `model` in accumulators of the widths `12:32` or `12,14,16`, on the data set `data`.

    `conv1=18,*=12:32` pins nodes to a width of their own; see `tracer.whatif.widths`.
    A float model is quantised first, with the ranges that its training data show, unless `options`
    say which fixed-point numbers it becomes. With `trace` every evaluation is in that file as soon
    as it is made; what is there already is not made again, but for the first pass over the data.
    Raises the errors of `tracer.errors`; a `trace` of something else is kept unless `force`.
    """
    options = options or Options()
    plan = widths.read(accumulator)
    narrowest, widest = plan.ends
    kinds = tuple(options.accumulators(widest))
    tuple(options.accumulators(narrowest))  # it, too, has to be one
    loaded = open_model(model)
    dataset = open_dataset(data, loaded, limit=options.limit, folder=Path(folder))
    metric = scoring.metric(loaded, dataset, options.metric)
    task = Task(dataset, metric, energy.find(options.energy), options, plan, threads, limits)
    found = graph_variants.graphs(loaded, dataset, options, Path(folder), progress)
    about = cache_key.identity(loaded, dataset, metric, options, found.notes)
    with ExitStack() as stack:
        journal = None if trace is None else _opened(stack, Path(trace), about, force)
        made = explore(task, found.graphs, kinds, journal, progress)
        notes = tuple(dict.fromkeys((*found.notes, *made.notes)))
        result = WhatIf(
            model=ModelInfo.of(loaded),
            environment=environment.observe(),
            settings={**about, **_settings(task)},
            judgement=_judgement(task),
            energy=_energy(task, made),
            variants=made.variants,
            notes=notes,
        )
        if journal is not None:
            journal.finish(result)
    return result


def _opened(stack: ExitStack, path: Path, about: dict[str, str], force: bool) -> WhatIfFile:
    journal = WhatIfFile(path, about, force)
    stack.callback(journal.close)
    return journal


def _settings(task: Task) -> dict[str, Any]:
    values = {each.name: getattr(task.options, each.name) for each in fields(task.options)}
    values |= {"data": task.dataset.name, "accumulator": str(task.plan), "widths": task.widths}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}


def _judgement(task: Task) -> Judgement:
    metric = task.metric
    return Judgement(metric.name, metric.unit, metric.higher_is_better, float(task.options.budget))


def _energy(task: Task, made: Explored) -> EnergyBasis:
    energy = task.energy
    return EnergyBasis(energy.name, energy.unit, energy.source, made.convention)
