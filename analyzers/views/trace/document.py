"""A trace as one object: `model`, `environment`, `settings`, `notes` and `runs`."""

from typing import Any

import pandas as pd

from tracer.accumulators.spec import plain_values
from tracer.accumulators.statistics import error_bins
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.analyzers.advice import advise
from tracer.analyzers.operations import backward_share
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.overflow import channels, widths
from tracer.analyzers.timing import coverage, empty, wall
from tracer.analyzers.views.file_formats.json import fields, records
from tracer.analyzers.views.trace.headline import Section, joined_runs, rows, sections
from tracer.analyzers.views.trace.phases import generation
from tracer.records.columns import BY_NAME, SUMMED
from tracer.records.trace import Run, Trace


def document(trace: Trace, options: ViewOptions) -> dict[str, Any]:
    """`nodes` of a run are its rows of the node table, folded by `by`. `backward_share` is the part
    of a backward pass in their time, None without one.

    `joined` are the runs of a merged trace whose columns are in the rows of `runs`. `advice` are
    sentences, each with the rule, the nodes and the figures behind it. `sums` describe nodes with
    narrow accumulators: the accumulator, overflow at every width, and the overflow columns by
    output channel. `float_sums` describe those with float accumulators: counts, and how many sums
    have a relative error below each limit. `generation` is None but for the phases of a language
    model: tokens, cache, and the speed of whole generations.
    """
    return {
        **fields(trace, "model", "environment", "settings", "notes"),
        "runs": [_run(trace, section, options) for section in sections(trace)],
        "generation": generation(trace),
        "joined": [
            {
                "batch": run.batch,
                "executor": run.executor,
                "inputs": run.inputs,
                "wall_us": wall(run),
                "sums": [_sums(sums) for sums in run.sums],
                "float_sums": [_float_sums(sums) for sums in run.float_sums],
            }
            for run in joined_runs(trace)
        ],
    }


def _run(trace: Trace, section: Section, options: ViewOptions) -> dict[str, Any]:
    run = section.run
    return {
        "batch": section.batch,
        "executor": run.executor if run else None,
        "threads": run.threads if run else None,
        "optimization": run.optimization if run else None,
        "phase": section.phase,
        "past": section.past,
        "inputs": run.inputs if run else None,
        "wall_us": wall(run) if run else None,
        "runs_per_s": 1e6 / wall(run)["mean"] if run and wall(run)["mean"] else None,
        "empty_us": empty(run) if run else None,
        "load": _load(run) if run else None,
        "returning_us": run.returning_us if run and run.returning_us == run.returning_us else None,
        "coverage": coverage(run, section.nodes) if run else None,
        "backward_share": backward_share(section.nodes) if run else None,
        "totals": _totals(section.nodes),
        "by": options.by,
        "nodes": records(rows(section, options)),
        "advice": advise(trace, run, section.nodes),
        "sums": [_sums(sums) for sums in run.sums] if run else [],
        "float_sums": [_float_sums(sums) for sums in run.float_sums] if run else [],
    }


def _load(run: Run) -> dict[str, Any]:
    """Returns how busy the machine was, and which runs count; `text` is None on a quiet machine."""
    counted = run.counted
    return {
        "others_share": counted.others,
        "runs": counted.total,
        "disturbed": counted.disturbed,
        "left_out": counted.left_out,
        "text": counted.sentence(),
    }


def _totals(nodes: pd.DataFrame) -> dict[str, Any]:
    """Returns the sums of the columns that add up, and of how many nodes the work is unknown.

    A sum is left out where no node has a value; with unknown nodes it is a lower bound. A weight
    that several nodes share counts for each in `params`, and once in `model.params`.
    """
    own = nodes[nodes["index"].notna()]
    known = [name for name in SUMMED if own[name].notna().any()]
    sums = {name: own[name].sum() for name in known}
    plain = {n: int(v) if BY_NAME[n].dtype == "Int64" else float(v) for n, v in sums.items()}
    return {**plain, "nodes_unknown": int(own["macs"].isna().sum())}


def _sums(sums: PartialSums) -> dict[str, Any]:
    return {
        "node": sums.node,
        "accumulator": plain_values.dumped(sums.tally.accumulator),
        "bits_guaranteed_any_order": sums.guaranteed_any_order,
        "mean_abs_error": None if sums.tally.missing.any() else sums.tally.mean_abs_error,
        "widths": records(widths(sums)),
        "channels": records(channels(sums)),
    }


def _float_sums(sums: FloatPartialSums) -> dict[str, Any]:
    """An error is missing where it is infinite, as in the last of `errors`."""
    tally, counts = sums.tally, sums.tally.error_histogram
    return {
        "node": sums.node,
        "accumulator": tally.accumulator,
        "operands": tally.operands,
        **tally.counts(),
        "greatest_error": tally.greatest_error,
        "errors": [
            {"below": error_bins.upper_limit(position), "outputs": int(counts[position])}
            for position in counts.nonzero()[0].tolist()
        ],
    }
