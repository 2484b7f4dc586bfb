"""The Python door: the same jobs as the command line's, as functions that return a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tracer import environment, inputs, loading, shapes
from tracer.inputs import dims as dimensions
from tracer.model import Model
from tracer.trace import ModelInfo, Run, Trace

if TYPE_CHECKING:
    import onnx
    import pandas as pd

    from analyzers.cost import Cost
    from tracer.executors import reference
    from tracer.executors.onnxruntime.options import Options
    from tracer.limits import Limits
    from tracer.shapes import Types

Source: TypeAlias = "str | Path | onnx.ModelProto | Model"
Progress = Callable[[int, int, str], None]


def profile(
    model: Source,
    *,
    batch: int | Sequence[int] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | None = None,
    seed: int = 0,
    options: Options | None = None,
    convention: str = "plain",
    progress: Progress | None = None,
) -> Trace:
    """Profile `model` under onnxruntime, once for each batch size.

    `feeds` names an .npz file or a test_data_set folder; without it, and where `model` is not a
    folder with test data of its own, inputs are random with `seed`. `dims` sizes symbolic
    dimensions by name. `convention` says how additions are counted (see `analyzers.cost`). Raises
    the errors of `tracer.errors`.
    """
    import pandas as pd

    from tracer.executors.onnxruntime import profiler
    from tracer.executors.onnxruntime.options import Options

    loaded = open_model(model)
    options = options or Options()
    sets = [
        feeds_for(model, loaded, batch=size, dims=dims, feeds=feeds, seed=seed)
        for size in _batches(batch)
    ]
    runs, tables, notes = [], [], []
    for feedset in sets:
        run = profiler.profile(loaded, feedset, options, progress)
        types, calls = _observe(loaded, feedset, run, options)
        table, counted, found = _analyze(loaded, run, types, calls, convention)
        runs.append(run)
        tables.append(table)
        notes += [note for note in found if note not in notes]
    return Trace(
        model=ModelInfo.of(loaded, _whole(counted.totals["params"])),
        environment=environment.observe(),
        settings={
            **asdict(options),
            "seed": seed,
            "dims": dict(dims or {}),
            "convention": convention,
        },
        runs=tuple(runs),
        nodes=pd.concat(tables, ignore_index=True),
        notes=tuple(notes),
    )


def interpret(
    model: Source,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | None = None,
    seed: int = 0,
    options: reference.Options | None = None,
    limits: Limits | None = None,
    convention: str = "plain",
    progress: Progress | None = None,
) -> Trace:
    """Time `model` node by node under the reference interpreter, for one batch size.

    The node table is that of `profile`; feeds are chosen in the same way. Raises the errors of
    `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    from tracer.executors import reference
    from tracer.executors.onnxruntime import observation

    loaded = open_model(model)
    options = options or reference.Options()
    feedset = feeds_for(model, loaded, batch=batch, dims=dims, feeds=feeds, seed=seed)
    run = reference.profile(loaded, feedset, options, limits, progress)
    seen = observation.of(loaded, run.kernels)
    types = shapes.infer(loaded, feedset.shapes).updated(seen.types)
    table, counted, notes = _analyze(loaded, run, types, seen.calls, convention)
    return Trace(
        model=ModelInfo.of(loaded, _whole(counted.totals["params"])),
        environment=environment.observe(),
        settings={
            **asdict(options),
            "seed": seed,
            "dims": dict(dims or {}),
            "convention": convention,
        },
        runs=(run,),
        nodes=table,
        notes=notes,
    )


def feeds_for(
    source: Source,
    loaded: Model,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | None = None,
    seed: int = 0,
) -> inputs.FeedSet:
    """The feeds that a command with these options runs `loaded`, opened from `source`, on."""
    path = Path(feeds) if feeds is not None else None
    if path is None and batch is None and not dims:
        path = _test_data_beside(source)
    return inputs.make(loaded, batch=batch, dims=dims, path=path, seed=seed)


def count(
    model: Source,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    convention: str = "plain",
) -> Trace:
    """Count the work of every node of `model` from shapes, without running it."""
    from analyzers.cost import cost
    from analyzers.table import node_table

    loaded = open_model(model)
    chosen, notes = dimensions.choose(loaded, batch, dims or {})
    types = shapes.infer(loaded, chosen)
    counted = cost(loaded, types, convention=convention)
    table = node_table(loaded, types, [counted.table])
    table["batch"] = dimensions.batch_of(loaded, chosen)
    return Trace(
        model=ModelInfo.of(loaded, _whole(counted.totals["params"])),
        environment=environment.observe(),
        settings={"dims": dict(dims or {}), "convention": convention},
        runs=(),
        nodes=table,
        notes=(*notes, *_cost_notes(counted)),
    )


def open_model(source: Source) -> Model:
    """A checked Model from a path, a protobuf, or one that is checked already."""
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        return loading.load(source)
    return loading.from_proto(source)


def _test_data_beside(model: Source) -> Path | None:
    """The first test_data_set of a model that was given as a folder."""
    if not isinstance(model, str | Path) or not Path(model).is_dir():
        return None
    return next(iter(sorted(Path(model).glob("test_data_set_*"))), None)


def _batches(batch: int | Sequence[int] | None) -> Sequence[int | None]:
    return [batch] if batch is None or isinstance(batch, int) else list(batch)


def _observe(
    model: Model, feedset: inputs.FeedSet, run: Run, options: Options
) -> tuple[Types, Mapping[str, float] | None]:
    """Types of all tensors and calls of all nodes; from a run where shapes do not tell them."""
    from tracer.executors.onnxruntime import observation, profiler

    types = shapes.infer(model, feedset.shapes)
    if not observation.needed(model, types):
        return types, None
    if options.optimization != "none":
        once = replace(options, runs=1, warmup=0, min_time=None, optimization="none")
        run = profiler.profile(model, feedset, once)
    seen = observation.of(model, run.kernels)
    return types.updated(seen.types), seen.calls


def _analyze(
    model: Model, run: Run, types: Types, calls: Mapping[str, float] | None, convention: str
) -> tuple[pd.DataFrame, Cost, tuple[str, ...]]:
    """Node table of one run, its cost, and what to know about both."""
    from analyzers.attribution import attribute
    from analyzers.cost import cost
    from analyzers.table import node_table
    from analyzers.timing import notes, timing

    counted = cost(model, types, calls, convention)
    groups = attribute(model, run.kernels)
    timed = timing(run, groups)
    table = node_table(model, types, [timed, counted.table], run)
    return table, counted, (*run.notes, *notes(run, groups), *_cost_notes(counted))


def _cost_notes(counted: Cost) -> tuple[str, ...]:
    unknown = [f"work not known, and in no total: {node}" for node in counted.unknown]
    return (*counted.notes, *unknown)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
