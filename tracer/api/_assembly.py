"""From a run to its rows of the node table, and from runs to a Trace: every analyzer in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pandas as pd

from analyzers import roofline
from analyzers.attribution import attribute
from analyzers.cost import Cost, cost, fused
from analyzers.fusions.confirmation import doubted
from analyzers.memory import arena, memory
from analyzers.overflow import overflow
from analyzers.table import node_table
from analyzers.timing import notes, timing
from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.records import environment
from tracer.records.environment import Peaks
from tracer.records.tensor_match import Evidence
from tracer.records.trace import ModelInfo, Run, Trace

Groups: TypeAlias = Sequence[tuple[str, ...]]
"""The keys of the nodes of each kernel of a run."""


@dataclass(frozen=True, slots=True)
class Analyzed:
    """One run, its rows of the node table, the model's parameters, and what to know."""

    run: Run
    table: pd.DataFrame
    params: int | None
    notes: tuple[str, ...]


def analyze(
    model: Model,
    run: Run,
    types: TensorTypes,
    calls: Mapping[str, float] | None,
    convention: str,
    peaks: Peaks | None = None,
    evidence: Evidence | None = None,
    groups: Groups | None = None,
) -> Analyzed:
    """Returns the node table of `run`; `calls` are executions of nodes, where observed.

    `evidence` says which tensors of the optimised graph equal tensors of the model; `groups` are
    the nodes of each kernel [default: from names and evidence].
    """
    counted = cost(model, types, calls, convention)
    if groups is None:
        groups = attribute(model, run.kernels, evidence)
    times = timing(run, groups)
    rows = roofline.rows(times, run, groups)
    moved = fused.traffic(model, types, [row.nodes for row in rows], calls)
    roofs = roofline.roofline(rows, counted.table["flops"], moved, peaks)
    needs = memory(model, types, groups).join(arena(run, groups))
    table = node_table(model, types, [times, counted.table, roofs, needs, overflow(run.sums)], run)
    trust = (*notes(run, groups), *roofline.notes(table, peaks))
    doubts = doubted(model, run.kernels, groups, evidence) if evidence else ()
    found = (*run.notes, *doubts, *trust, *cost_notes(counted))
    return Analyzed(run, table, whole(counted.totals["params"]), found)


def assembled(
    model: Model,
    analyzed: Sequence[Analyzed],
    settings: Mapping[str, object],
    peaks: Peaks | None = None,
) -> Trace:
    """One trace of runs of `model`, which was measured with these settings on this machine."""
    several = len(analyzed) > 1
    notes = [
        f"batch {one.run.batch}: {note}" if several else note
        for one in analyzed
        for note in one.notes
    ]
    return Trace(
        model=ModelInfo.of(model, analyzed[0].params),
        environment=replace(environment.observe(), peaks=peaks),
        settings={name: _plain(value) for name, value in settings.items()},
        runs=tuple(one.run for one in analyzed),
        nodes=pd.concat([one.table for one in analyzed], ignore_index=True),
        notes=tuple(notes),
    )


def _plain(value: object) -> object:
    """Numbers, texts and their containers as they are; anything else as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float | None) else str(value)


def cost_notes(counted: Cost) -> tuple[str, ...]:
    """What a count had to assume, and what it could not tell."""
    return (*counted.notes, *(f"work not known, and in no total: {n}" for n in counted.unknown))


def whole(value: float | None) -> int | None:
    """A total as the number of things it is."""
    return None if value is None else int(value)
