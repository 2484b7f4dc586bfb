"""A trace for TensorBoard: the graph with times, scalars by batch, histograms of sums."""

from collections.abc import Iterator

import numpy as np

from tracer.accumulators.statistics.bins import edges
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import coverage, wall
from tracer.analyzers.views.board import Board, BoardNode, Histogram, Scalar
from tracer.analyzers.views.trace.sections import Section, sections
from tracer.analyzers.views.trace.timed_rows import module_path, present
from tracer.records.topology import Topology
from tracer.records.trace import Run, Trace, distinctions

_SUMS = ("macs", "flops", "params", "overflow_outputs", "energy")
_GREATEST = ("peak_bytes", "bits_observed", "bits_guaranteed")


def board(trace: Trace, options: ViewOptions) -> Board:
    """Returns what TensorBoard shows. A trace of a framework has no graph."""
    shown = sections(trace)
    ran = [(section, section.run) for section in shown if section.run is not None]
    labels = distinctions([run for _, run in ran], always=("executor", "batch"))
    return Board(
        nodes=() if trace.model.topology is None else _graph(trace.model.topology),
        times={
            label: _times(section)
            for label, (section, _) in zip(labels, ran, strict=True)
            if section.nodes["time_us"].notna().any()
        },
        scalars=[each for own in shown for each in _scalars(own, _series(trace, own))],
        histograms=[histogram for run in trace.runs for histogram in _histograms(run)],
    )


def _graph(topology: Topology) -> list[BoardNode]:
    columns = (topology.nodes, topology.modules, topology.op_types, topology.producers)
    return [
        BoardNode(module_path(module), key, op_type, producers)
        for key, module, op_type, producers in zip(*columns, strict=True)
    ]


def _times(section: Section) -> dict[str, tuple[float, int]]:
    rows = present(section.nodes, ("node", "time_us", "output_bytes"))
    return {
        str(row["node"]): (float(row["time_us"]), int(row.get("output_bytes", 0)))
        for row in rows
        if "time_us" in row
    }


def _series(trace: Trace, section: Section) -> str:
    """Returns what tells runs of the same batch apart, as the begin of a tag; '' for one series."""
    keys = [{n: v for n, v in each.key.items() if n != "batch"} for each in sections(trace)]
    own = {n: v for n, v in section.key.items() if n != "batch"}
    differing = [n for n in own if any(key[n] != own[n] for key in keys)]
    return "".join(f"{n} {own[n]}/" for n in differing)


def _scalars(section: Section, series: str) -> Iterator[Scalar]:
    step, nodes, run = section.batch or 0, section.nodes, section.run
    if run is not None:
        yield Scalar(f"{series}time/wall_us", step, wall(run)["mean"])
        if nodes["time_us"].notna().any():
            yield Scalar(f"{series}time/nodes_us", step, float(nodes["time_us"].sum()))
            yield Scalar(f"{series}time/coverage", step, coverage(run, nodes))
    for name in _SUMS:
        if nodes[name].notna().any():
            yield Scalar(f"{series}total/{name}", step, float(nodes[name].sum()))
    for name in _GREATEST:
        if nodes[name].notna().any():
            yield Scalar(f"{series}greatest/{name}", step, float(nodes[name].max()))


def _histograms(run: Run) -> Iterator[Histogram]:
    """Yields the final sums of each node, in the bins of the trace that hold any."""
    for sums in run.sums:
        counts, ends = sums.tally.final_histogram, edges()
        filled = np.flatnonzero(counts)
        if not len(filled):
            continue
        first, last = int(filled[0]), int(filled[-1])
        yield Histogram(
            tag=f"final sums/{sums.node}",
            step=run.batch or 0,
            low=float(sums.tally.final_min.min()),
            high=float(sums.tally.final_max.max()),
            limits=[float(end) for end in ends[first + 1 : last + 2]],
            counts=counts[first : last + 1].tolist(),
        )
