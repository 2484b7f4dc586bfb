"""Tries a network in accumulators of other widths: see `tracer.what_if`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from threading import Thread

from tracer.accumulators.spec import kinds
from tracer.analyzers import energy
from tracer.analyzers.views.redaction import bare
from tracer.api._calls import file_of
from tracer.api.whatif import WhatIfArguments
from tracer.errors import ClusterError, UsageError
from tracer.exporters.subject import open_subject
from tracer.graph.model import Model
from tracer.inputs.datasets.opening import open_dataset, reopened
from tracer.inputs.request import with_overrides
from tracer.metrics import Metric
from tracer.records import environment
from tracer.records.model_info import ModelInfo
from tracer.records.whatif import AccumulatorSweep, EnergyBasis, WhatIf
from tracer.scaling.pool import Pool, first_answer
from tracer.storage.whatif_file import ShardFile, WhatIfFile
from tracer.support.temporary import refuse_in_use
from tracer.whatif import variants
from tracer.whatif.accumulators import AccumulatorTask, try_accumulators
from tracer.whatif.criteria import Deadline, judgement
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.reuse import StoredBatches, usual_batch
from tracer.whatif.shard_runs import MetricJob

_OF_WIDTHS = {
    "orders": "--order", "overflows": "--overflow", "biases": "--bias",
    "product_bits": "--product-bits", "range_convention": "--magnitude",
    "weight_bits": "--weight-bits", "activation_bits": "--activation-bits", "explain": "--explain",
    "search": "--no-search",
}  # fmt: skip
"""Options that accumulators with names do not take."""

_SETTING_NAMES = {
    "accuracy_budget": "budget",
    "range_convention": "convention",
    "addition_convention": "counting",
}
"""Names in files of options that have another name in Python."""


def what_if(call: WhatIfArguments, pool: Pool) -> WhatIf | AccumulatorSweep:
    """Evaluates the widths, and writes each evaluation to the file `trace` at once."""
    if call.trace is not None and call.force:  # before minutes are spent on the data
        refuse_in_use(Path(call.trace))
    options = call.options or WhatIfOptions()
    spellings = kinds.listed(call.accumulator) if isinstance(call.accumulator, str) else None
    if spellings is not None:
        return _accumulators(call, spellings, options, pool)
    if call.operands is not None:
        raise UsageError(
            "operands have formats with float accumulators", "Name one, such as fp32 or tc:h100."
        )
    deadline = Deadline(None if call.limits is None else call.limits.seconds)
    plan = variants.read_widths(call.accumulator)
    narrowest, widest = plan.ends
    accumulators = tuple(options.accumulators(widest))
    tuple(options.accumulators(narrowest))  # raises UsageError for a width that is too narrow
    opened = _opened(call, options, pool)
    loaded, batches, metric = opened.model, opened.batches, opened.metric
    model_of_energy = energy.find(options.energy)
    data, folder = file_of(call.data), Path(call.data_dir)
    graphs, changes = variants.graph_variants(loaded, data, options, folder, call.report)

    def identity() -> dict[str, str]:
        return opened.identity(options, changes)

    stored: AbstractContextManager[WhatIfFile | None] = nullcontext()
    if call.trace is not None:
        stored = closing(WhatIfFile(Path(call.trace), identity(), call.force))
    with stored as file:
        with _kept_shards(file, pool, identity, call.force) as shards:
            task = variants.Task(
                batches, metric, model_of_energy, options, plan, pool, shards, call.limits, deadline
            )
            found, notes, convention = variants.run_variants(
                task, graphs, accumulators, file, call.report
            )
        settings = {f.name: getattr(task.options, f.name) for f in fields(task.options)}
        settings |= {
            "data": batches.dataset.name, "batch": batches.size,
            "accumulator": str(task.plan), "widths": task.widths,
        }  # fmt: skip
        result = WhatIf(
            model=ModelInfo.of(loaded),
            environment=environment.observe(),
            settings=identity()
            | {
                _SETTING_NAMES.get(name, name): list(each) if isinstance(each, tuple) else each
                for name, each in settings.items()
            },
            judgement=judgement(metric, options.accuracy_budget),
            energy=EnergyBasis(task.energy.name, task.energy.unit, task.energy.source, convention),
            variants=found,
            notes=tuple(dict.fromkeys((*loaded.notes, *batches.dataset.notes, *changes, *notes))),
        )
        if file is not None:
            file.finish(bare(result))
        if shards is not None and not any(one.answer.ended for one in result.variants):
            shards.remove()
    return result


@dataclass(frozen=True, slots=True)
class _Opened:
    """The model, the data, the metric, and a function that returns the fingerprint of the data."""

    model: Model
    batches: StoredBatches
    metric: Metric
    fingerprint: Callable[[], str]

    def identity(self, options: WhatIfOptions, changes: Sequence[str]) -> dict[str, str]:
        """Returns what decides whether an evaluation can be reused (see `variants.identity`)."""
        return variants.identity(
            self.model, self.batches, self.fingerprint(), self.metric, options, changes
        )


def _opened(call: WhatIfArguments, options: WhatIfOptions, pool: Pool) -> _Opened:
    """Opens the model and the data, and chooses the metric, which workers try as they load."""
    data = file_of(call.data)
    loaded = with_overrides(open_subject(call.model), data)
    dataset = open_dataset(data, loaded, limit=options.limit, folder=Path(call.data_dir))
    fingerprint: Callable[[], str] = cache(dataset.fingerprint)
    if pool.workers:  # reading all the data takes its time: a thread does it while they compute
        read: Future[str] = Future()
        own = reopened(dataset.description, dataset.model)  # a file has one place to read next
        own = replace(own, notes=dataset.notes)

        def read_all() -> None:
            try:
                read.set_result(own.fingerprint())
            except BaseException as error:
                read.set_exception(error)

        Thread(target=read_all, name="fingerprint", daemon=True).start()
        fingerprint = read.result
    batches = StoredBatches(dataset, options.batch or usual_batch(dataset), call.report)
    metric = first_answer(pool, MetricJob(batches, options.metric), "metric")
    return _Opened(loaded, batches, metric, fingerprint)


@contextmanager
def _kept_shards(
    file: WhatIfFile | None, pool: Pool, identity: Callable[[], Mapping[str, str]], force: bool
) -> Iterator[ShardFile | None]:
    """Opens the file for shards, if they run elsewhere and there is a trace to continue.

    An error of the cluster tells what is kept.
    """
    if file is None or not pool.workers:
        yield None
        return
    with closing(ShardFile(file.path, identity(), force)) as shards:
        try:
            yield shards
        except ClusterError as error:
            raise ClusterError(
                error.what,
                f"{file.path} keeps the evaluations that were made, and {shards.path.name} "
                f"{shards.count:,} results of shards: the same command goes on from there.",
            ) from error


def _accumulators(
    call: WhatIfArguments, spellings: tuple[str, ...], options: WhatIfOptions, pool: Pool
) -> AccumulatorSweep:
    """Runs all the data in each accumulator. Raises UsageError for options of widths."""
    usual = WhatIfOptions()
    for name, where in _OF_WIDTHS.items():
        if getattr(options, name) != getattr(usual, name):
            raise UsageError(
                f"{where} is about widths, and --accumulator names accumulators",
                "Say it in the accumulator, as in '18(overflow=wrap)', or leave it out.",
            )
    if call.trace is not None:
        raise UsageError(
            "a .trace keeps evaluations of widths, and --accumulator names accumulators",
            "Write .json, .csv, .md, .png or .svg.",
        )
    deadline = Deadline(None if call.limits is None else call.limits.seconds)
    opened = _opened(call, options, pool)
    loaded, batches, metric = opened.model, opened.batches, opened.metric
    changes: list[str] = []

    def quantized() -> Model:
        data, folder = file_of(call.data), Path(call.data_dir)
        (graph,), notes = variants.graph_variants(loaded, data, options, folder, call.report)
        changes.extend(notes)
        return graph.model

    task = AccumulatorTask(
        loaded, cache(quantized), batches, metric, energy.find(options.energy), options,
        call.operands, pool, call.report, call.limits, deadline,
    )  # fmt: skip
    rows, scores, notes = try_accumulators(task, spellings)
    return AccumulatorSweep(
        model=ModelInfo.of(loaded),
        environment=environment.observe(),
        settings={
            **opened.identity(options, changes),
            "data": batches.dataset.name, "accumulator": list(spellings), "operands": call.operands,
        },
        judgement=judgement(metric, options.accuracy_budget),
        energy=EnergyBasis(
            task.energy.name, task.energy.unit, task.energy.source,
            task.addition_convention,
        ),
        score=float(scores.mean()),
        samples=len(scores),
        rows=tuple(rows),
        notes=tuple(dict.fromkeys((*loaded.notes, *batches.dataset.notes, *changes, *notes))),
    )  # fmt: skip
