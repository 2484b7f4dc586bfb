"""Experiment 1: time each layer of ResNet-20 in Chainer and three other executors.

python -m experiments.layers [--runs 10000] [--sessions 12]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

import tracer
from experiments import _page
from experiments._page import Page
from experiments.networks.resnet20 import ONNX
from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare import compare as compared
from tracer.analyzers.compare.numbers import Numbers
from tracer.analyzers.grouping import by_op
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.api.compare import SideSettings, compare, values
from tracer.api.compare.naming import parse, shared_inputs
from tracer.records.trace import Trace
from tracer.support.tolerance import Tolerance

NETWORKS = "experiments/networks/resnet20.py"
CHAINER, TORCH = f"{NETWORKS}:in_chainer", f"{NETWORKS}:in_torch"
SIDES = (f"{CHAINER}@chainer", f"{TORCH}@torch", f"{ONNX}@ort:none", f"{ONNX}@interpreter", ONNX)
NAMES = ("Chainer", "torch", "onnxruntime, node by node", "interpreter", "onnxruntime, optimised")
ORIGINAL = {
    "Convolution2D": (210_000, 74.51),
    "BatchNormalization": (210_000, 36.02),
    "ReLU": (190_000, 13.05),
    "Add": (20_000, 0.48),
    "AveragePooling2D": (10_000, 2.43),
    "Reshape": (10_000, 0.13),
    "Linear": (10_000, 0.33),
}
"""Calls and seconds of 10,000 inferences in the original experiment."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="inferences in Chainer")
    parser.add_argument("--sessions", type=int, default=8, help="sessions of each executor")
    args = parser.parse_args(argv)
    make(args.runs, args.sessions, args.threads).write(args.out)


def make(runs: int, sessions: int, threads: int) -> Page:
    """Returns the page, from `runs` inferences in Chainer and `sessions` of all executors."""
    trace = tracer.profile_framework(
        CHAINER, framework="chainer", runs=runs, threads=threads, train=True
    )
    layers, totals, numbers = _compared(sessions, threads)
    threshold = _threshold(trace.nodes)
    drawn = render(trace, "png", ViewOptions(threshold=threshold))
    parts = [
        _question(),
        "## Commands",
        _commands(runs, sessions, threads, threshold),
        "## By type",
        by_type(trace.nodes, runs),
        "## Layer by layer",
        _page.picture("1-layers.png", "time of each of the 66 layers in Chainer"),
        _above(trace.nodes, threshold),
        _page.folded("All 66 layers in four executors, µs", by_layer(layers)),
        "## Whole inferences",
        _wholes(totals),
        _page.picture("1-executors.png", "whole inferences in five executors"),
        "## Agreement of values",
        _numbers(numbers),
        "## Beyond the original",
        _page.bullets(*_learned(trace, totals)),
    ]
    pictures = {"1-layers.png": drawn, "1-executors.png": render(totals, "png")}
    return Page("1-layers", "Experiment 1: ResNet-20, layer by layer", parts, pictures)


def _compared(sessions: int, threads: int) -> tuple[Comparison, Comparison, Sequence[Numbers]]:
    """Compares by node (without fusing executors), in total, and the values."""
    settings = SideSettings(threads=threads, sessions=sessions)
    totals = compare(SIDES, by="model", settings=settings)
    plain = [parse(side) for side in SIDES[:-1]]
    arrays = shared_inputs(plain, settings)
    numbers, _ = values.compare_values(plain, arrays, settings, Tolerance(1e-3, 1e-4))
    return compared(totals.sides[:-1]), totals, numbers


def by_type(nodes: pd.DataFrame, runs: int) -> str:
    """Returns calls and time by type, with the original values."""
    folded = by_op(nodes).sort_values("time_us", ascending=False)
    total = sum(seconds for _, seconds in ORIGINAL.values())
    rows = []
    for row in folded.to_dict("records"):
        name = str(row["op_type"]).removeprefix("Fixed")
        calls, seconds = ORIGINAL[name]
        share = f"{row['time_share']:.1%}"
        ours = f"{row['calls'] * runs:,.0f}", f"{row['time_us'] * runs / 1e6:.2f}", share
        rows.append((name, *ours, f"{calls:,}", f"{seconds:.2f}", f"{seconds / total:.1%}"))
    header = ("function ", "calls", "s", "share", "original: calls", "s", "share")
    return _page.table(header, rows)


def by_layer(layers: Comparison) -> str:
    """Returns a row for every function of Chainer, in the order of its calls."""
    assert layers.layers is not None
    order = {node: index for index, node in enumerate(layers.sides[0].nodes["node"])}
    rows = sorted(
        layers.layers.to_dict("records"), key=lambda row: order.get(row["layer"], len(order))
    )
    ends = "abcd"
    header = ("layer ", "module ", *NAMES[:4])
    cells = (
        (f"{index}_{row['op']}", row["module"], *(_us(row[f"time_us_{end}"]) for end in ends))
        for index, row in enumerate(rows)
    )
    return _page.table(header, cells)


def _us(value: float) -> str:
    return "" if value != value else f"{value:,.1f}"  # NaN


def _question() -> str:
    return (
        "The time of each function of ResNet-20, averaged over many inferences of one 32×32 "
        "image. In the original, a hook of Chainer recorded 10,000 inferences, and the records "
        "were summed by hand, by position modulo 66. Chainer was in training mode, or its batch "
        "normalisation would have another name; so are the first table and picture here. All other "
        "figures are of inferences in evaluation mode."
    )


def _commands(runs: int, sessions: int, threads: int, threshold: float) -> str:
    return _page.code(
        f"tracer profile {CHAINER} --framework chainer --train --runs {runs} \\",
        f"    --threads {threads} --threshold {threshold:.0f} -o layers.png",
        f"tracer compare {' '.join(SIDES[:2])} \\",
        f"    {' '.join(SIDES[2:4])} \\",
        f"    --sessions {sessions} --threads {threads}",
        f"python -m experiments.layers --runs {runs} --sessions {sessions} --threads {threads}"
        "  # this page",
        "python -m experiments.layers --runs 10000  # the original's inferences",
    )


def _threshold(nodes: pd.DataFrame) -> float:
    """Returns the mean µs of a convolution; the original's 360 µs is its mean as well."""
    return float(nodes["time_us"][nodes["op_type"] == "Convolution2D"].mean())


def _above(nodes: pd.DataFrame, threshold: float) -> str:
    high = nodes[nodes["time_us"] >= threshold]
    convolutions = int((high["op_type"] == "Convolution2D").sum())
    return (
        f"Red is at or above {threshold:.0f} µs, the mean of a convolution: {len(high)} layers, "
        f"{convolutions} of them convolutions. In the original the threshold was 360 µs, and all "
        "layers above it were convolutions."
    )


def _wholes(totals: Comparison) -> str:
    rows = [
        (name, f"{row['time_us']:,.0f}", f"{row['error_us']:,.0f}", f"{1 / row['ratio']:.2f}",
         f"{row['convolution_share']:.1%}")
        for name, row in zip(NAMES, totals.totals.to_dict("records"), strict=True)
    ]  # fmt: skip
    header = ("executor ", "µs a run", "std error", "speed", "share of convolution")
    return _page.table(header, rows)


def _numbers(numbers: Sequence[Numbers]) -> str:
    header = (
        "against Chainer ", "largest difference of an output", "of any layer", "layers compared",
        "out of tolerance",
    )  # fmt: skip
    rows = []
    for name, one in zip(NAMES[1:], numbers, strict=False):
        differences = (f"{table['max_abs'].max():.2g}" for table in (one.outputs, one.layers))
        faults = int((one.layers["fault"] != "").sum())
        rows.append((name, *differences, len(one.layers), faults))
    return _page.table(header, rows)


def _learned(trace: Trace, totals: Comparison) -> list[str]:
    run, rows = trace.runs[0], totals.totals
    wall = float(run.wall_us.mean())
    inside = float(trace.nodes["time_us"].sum())
    speed: Mapping[str, float] = dict(zip(NAMES, 1 / rows["ratio"], strict=True))
    fused = _kernels(totals)
    interval: Any = trace.nodes[["time_us", "time_us_ci95_low", "time_us_ci95_high"]]
    width = (interval["time_us_ci95_high"] - interval["time_us_ci95_low"]) / interval["time_us"] / 2
    return [
        f"The functions take {inside:,.0f} µs of an inference of {wall:,.0f} µs (timed without "
        f"the hook): {1 - inside / wall:.0%} is Python overhead in Chainer between its "
        "functions, which the original table could not show.",
        f"Each mean has a confidence interval: ±{width.median():.1%} or less for half of the "
        f"layers, ±{width.max():.1%} at most.",
        f"The same weights run {speed['torch']:.1f} times as fast in torch, "
        f"{speed['onnxruntime, node by node']:.1f} times in onnxruntime node by node, and "
        f"{speed['onnxruntime, optimised']:.1f} times with fusion: {fused} kernels for 66 "
        "nodes. Times by layer depend on the executor as much as on the network.",
        f"The interpreter, which is numpy and compiled loops, is {speed['interpreter']:.2f} times "
        "as fast as Chainer.",
        "Each recording starts empty, and the tool computes the averages.",
    ]


def _kernels(totals: Comparison) -> int:
    """Returns the number of kernels of the optimised run that contain nodes."""
    return int(totals.sides[-1].nodes["kernels"].dropna().nunique())


if __name__ == "__main__":
    _page.run(main)
