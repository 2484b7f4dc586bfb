"""Applies the analyzers to a run, and assembles runs into a Trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import pandas as pd

from tracer.analyzers import roofline
from tracer.analyzers.attribution import attribute, main_first
from tracer.analyzers.cost import bit_operations, cost
from tracer.analyzers.cost.typed_model import TypedModel, kernel_traffic, unavoidable_macs
from tracer.analyzers.energy import Pricing
from tracer.analyzers.fusions.confirmation import doubted
from tracer.analyzers.memory import arena, memory
from tracer.analyzers.overflow import of_floats, overflow
from tracer.analyzers.table import node_table, value_columns
from tracer.analyzers.timing import fused_parts, notes, split_notes, timing
from tracer.containment.activity import Progress
from tracer.containment.memory import out_of_memory
from tracer.errors import TracerError
from tracer.executors.registry import OptimizedGraph
from tracer.graph.model import Model
from tracer.graph.operators import computes_in_integers
from tracer.graph.shape_inference import TensorTypes
from tracer.inputs.feedset import FeedSet
from tracer.limits import Limits
from tracer.records import environment
from tracer.records.model_info import ModelInfo
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Run, Trace, distinctions

Groups: TypeAlias = Sequence[tuple[str, ...]]
"""The keys of the nodes of each kernel of a run."""


@dataclass(frozen=True, slots=True)
class Analyzed:
    """One run, its rows of the node table, the model's parameters and their bytes, and notes.

    `roofs` returns the columns of rates and roofs by node at some peaks, and `shown` are the rates
    that the products of the run have surely had, by type.
    `whole`: every inference that was asked for is in the run.
    """

    run: Run
    table: pd.DataFrame
    parameters: tuple[int | None, int | None]
    notes: tuple[str, ...]
    roofs: Callable[[environment.Peaks | None], pd.DataFrame]
    shown: Mapping[str, environment.Peak]
    whole: bool = True

    def under(self, peaks: environment.Peaks | None) -> "Analyzed":
        """Returns the run with the roofs of these peaks."""
        roofs = self.roofs(peaks).reindex(self.table["node"]).set_axis(self.table.index)
        table = self.table.copy()
        for name in roofline.ROOF_COLUMNS:
            table[name] = roofs[name].astype(table[name].dtype)
        return replace(self, table=table, notes=(*self.notes, *roofline.notes(peaks)))


@dataclass(frozen=True, slots=True)
class Attribution:
    """The nodes of each kernel of a run, the tensors that tell it, and times of nodes alone.

    `evidence` says which tensors of the optimised graph equal tensors of `model.executed`; `alone`,
    the times of nodes that ran alone, fills the parts of nodes in fused kernels.
    """

    groups: Groups
    evidence: Evidence | None = None
    alone: Mapping[str, float] = field(default_factory=dict)


def analyze(
    model: Model,
    run: Run,
    types: TensorTypes,
    calls: Mapping[str, float] | None,
    convention: str,
    attribution: Attribution | None = None,
    pricing: Pricing | None = None,
) -> Analyzed:
    """Returns the node table of `run`; `calls` are executions of nodes, where observed.

    `attribution` says which nodes each kernel has [default: from names]. `pricing` fills the
    energies.
    """
    typed_model = TypedModel(model, types)
    counted = cost(typed_model, calls, convention)
    energies = pricing and pricing.energies(typed_model, counted.table)
    if attribution is None:
        attribution = Attribution(attribute(model.executed, run.kernels))
    evidence, alone = attribution.evidence, attribution.alone
    unconfirmed: tuple[str, ...] = ()
    if evidence:
        unconfirmed = doubted(model.executed, run.kernels, attribution.groups, evidence)
    groups = tuple(map(model.own_nodes, attribution.groups))
    headed = main_first(model, groups, counted.table)
    times = timing(run, headed)
    macs = unavoidable_macs(typed_model, counted.table["macs"].dropna().to_dict())
    rows = roofline.rows(times, run, groups, macs)
    moved = kernel_traffic(typed_model, [row.nodes for row in rows], calls)
    op_types = {node.key: node.op_type for node in model.nodes}
    undone = [  # a kernel that multiplies integers makes no floats of them first
        key
        for kernel, group in zip(run.kernels, groups, strict=True)
        if computes_in_integers(kernel.op_type)
        for key in group
        if op_types[key] == "DequantizeLinear"
    ]
    flops = counted.table["flops"].mask(counted.table.index.isin(undone), 0)
    roofs = partial(roofline.roofline, rows, flops, moved)
    needs = memory(typed_model, groups, counted.idle).join(arena(run, headed))
    parts = fused_parts(times, headed, alone)
    sums = overflow(run.sums)
    if run.float_sums:
        sums = pd.concat([sums, of_floats(run.float_sums)])
    work = [counted.table, bit_operations(typed_model, counted.table["macs"])]
    work += [energies.table] if energies else []
    measured = [times, parts, *work, roofs(None), needs, sums, value_columns(run.values)]
    table = node_table(model, types, measured, run)
    table.loc[table["node"].isin(counted.idle), "calls"] = 0.0
    measuring = (*notes(run, groups), *split_notes(headed, alone))
    every_note = (*run.notes, *unconfirmed, *measuring, *counted.every_note)
    every_note += energies.notes if energies else ()
    shown = roofline.reached_peaks(run, headed, macs)
    return Analyzed(run, table, counted.parameters, every_note, roofs, shown)


def matched(
    graph: OptimizedGraph, feed_sets: Sequence[FeedSet], limits: Limits, progress: Progress
) -> Evidence | TracerError:
    """Returns which tensors of `graph` equal tensors of the model, or why that is unknown."""
    try:
        return graph.match_tensors(feed_sets, limits, progress)
    except TracerError as error:
        return error
    except MemoryError:
        return out_of_memory("not enough memory to hold the tensors")


def configured(run: Run, settings: object) -> Run:
    """Returns `run` with the threads and the optimisation level of its executor's settings."""
    return replace(
        run,
        threads=getattr(settings, "threads", None) or None,
        optimization=getattr(settings, "optimization", None),
    )


def assembled(
    model: Model,
    analyzed: Sequence[Analyzed],
    settings: Mapping[str, object],
    peaks: Sequence[environment.Peaks] = (),
) -> Trace:
    """Returns the trace of all runs of `model` with these settings on this machine.

    `peaks` are those of the runs, each number of threads once.
    """
    first, others = next(iter(peaks), None), tuple(peaks[1:])
    machine = replace(environment.observe(), peaks=first, other_peaks=others)
    analyzed = [each.under(machine.peaks_at(each.run.threads)) for each in analyzed]
    labels = distinctions([each.run for each in analyzed])
    notes = [
        f"{label}: {note}" if label else note
        for label, each in zip(labels, analyzed, strict=True)
        for note in each.notes
    ]
    return Trace(
        model=ModelInfo.of(model, analyzed[0].parameters),
        environment=machine,
        settings={name: _plain(value) for name, value in settings.items()},
        runs=tuple(each.run for each in analyzed),
        nodes=pd.concat([each.table for each in analyzed], ignore_index=True),
        notes=(*model.notes, *notes),
    )


def _plain(value: object) -> object:
    """Returns numbers, texts and their containers unchanged, anything else as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float | None) else str(value)


def as_list(value: Any) -> Sequence[Any]:
    """Returns the values of an argument, each once: a single one, or those of a sequence."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    return list(dict.fromkeys(value))  # the rows of a value that is named twice could not differ
