"""Are the times of nodes true? Their sum against the undisturbed wall, and each against a replay.

Every trial profiles a network. Its sums are held against two walls that the correction knows
nothing of: every second undisturbed run of the profile, the correction being made from the others;
and runs in a session of its own, before and after, as a user's program has it. Figures are medians
over the trials. With --figure, a picture of what is reported, corrected and replayed for the rows
with the most time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd

import tracer
from analyzers.attribution import attribute
from analyzers.statistics import outliers
from analyzers.timing import timing, wall
from benchmarks._networks import Builder, Model, encoder
from tracer import inputs
from tracer.executors.onnxruntime import empty_run, feeding
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.loading import open_model
from tracer.records.trace import Trace
from tracer.support.timing import elapsed_us
from tracer.support.types import FloatArray

_WARMUP, _HELD_OUT = 20, 200
_AGREEING = 0.15


def _resnet() -> Model:
    return onnx.load("models/resnet_cifar/resnet20.onnx")


def _mlp() -> Model:
    """784-512-256-128-10, one image."""
    net = Builder("mlp", (1, 784))
    x = "x"
    for rows, columns in ((784, 512), (512, 256), (256, 128), (128, 10)):
        x = net.add("Gemm", x, net.weight(rows, columns), net.weight(columns, scale=0.1))
        x = net.add("Relu", x) if columns > 10 else x
    return net.model(x, 1, 10)


def _chain() -> Model:
    """200 operators on 8 elements, which nothing can fuse."""
    net = Builder("chain", (8,))
    factor = net.constant(np.full(8, 1.0001, np.float32))
    x = "x"
    for place in range(200):
        x = net.add("Mul" if place % 2 else "Add", x, factor)
    return net.model(x, 8)


def _transformer() -> Model:
    return encoder(length=64, layers=2, width=192)


NETWORKS: dict[str, Callable[[], Model]] = {
    "ResNet-20": _resnet,
    "MLP": _mlp,
    "chain of 200": _chain,
    "transformer": _transformer,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Sums over nodes as reported, less the calibrated cost, and corrected; and what they miss.

    They are ÷ the mean of every second undisturbed run, which the correction did not see, and have
    the time of an empty run added, all but `raw`; `apart` is the corrected sum ÷ the wall of a
    session of its own. `agreement` are the ratios of replayed to corrected times, `within` how many
    of the corrected times' intervals hold the replayed ones.
    """

    raw: float
    calibrated: float
    corrected: float
    apart: float
    rest: float
    agreement: tuple[float, ...]
    within: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each profile")
    parser.add_argument("--replay", type=int, default=10)
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--figure", type=Path, help="a PNG of the last trial of the first network")
    args = parser.parse_args()
    print(
        "network        threads  raw  calibrated  corrected  apart (÷ wall)  rest  "
        "replayed ÷ corrected: median, within 15 %, in the interval"
    )
    for name in args.networks:
        for threads in args.threads:
            model = NETWORKS[name]()
            trials = [trial(model, threads, args) for _ in range(args.trials)]
            report(name, threads, [found for found, _ in trials])
            if args.figure is not None and (name, threads) == (args.networks[0], args.threads[0]):
                draw(trials[-1][1], args.replay, args.figure)


def trial(model: Model, threads: int, args: argparse.Namespace) -> tuple[Trial, Trace]:
    """One profile, beside runs that it did not see."""
    before = apart(model, threads)
    trace = tracer.profile(
        model, threads=threads, min_time=args.seconds, runs=20, replay=args.replay, confirm=False
    )
    after = apart(model, threads)
    whole, empty = ((one + two) / 2 for one, two in zip(before, after, strict=True))
    run, nodes = trace.runs[0], trace.nodes
    cost = sum(k.calls * bias for k, bias in zip(run.kernels, run.bias_us, strict=True))
    raw, corrected = nodes["time_us_raw"].sum(), nodes["time_us"].sum()
    seen, unseen = (
        replace(run, wall_us=run.wall_us[half::2], empty_us=run.empty_us[half::2])
        for half in (0, 1)
    )
    mean, idle = wall(unseen)["mean"], settled(unseen.empty_us)
    halved = timing(seen, attribute(open_model(model), run.kernels))["time_us"].sum()
    rows = replayed(nodes)
    held = rows["time_us_replayed"].between(rows["time_us_ci95_low"], rows["time_us_ci95_high"])
    found = Trial(
        raw=raw / mean,
        calibrated=(raw - cost + idle) / mean,
        corrected=(halved + idle) / mean,
        apart=(corrected + empty) / whole,
        rest=1 - corrected / wall(run)["mean"],
        agreement=tuple(rows["time_us_replayed"] / rows["time_us"]),
        within=float(held.mean()),
    )
    return found, trace


def apart(model: Model, threads: int) -> tuple[float, float]:
    """Mean µs of an undisturbed and of an empty run, as a program of the user's own has them.

    Runs far above the rest are left out, as of a profile.
    """
    loaded = loading.from_proto(model)
    feeds = inputs.make(loaded).feeds
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    whole = feeding.runner(loaded, session, feeds)
    empty = empty_run.runner(loaded, feeds, whole(), OrtSettings(threads=threads))
    assert empty is not None
    taken = np.array([(elapsed_us(whole), elapsed_us(empty)) for _ in range(_WARMUP + _HELD_OUT)])
    wall, alone = (settled(each) for each in taken[_WARMUP:].T)
    return wall, alone


def settled(times: FloatArray) -> float:
    """The mean of times without those far above the rest."""
    return float(times[~outliers(times)].mean())


def replayed(nodes: pd.DataFrame) -> pd.DataFrame:
    """The rows that were replayed, the longest first."""
    known = nodes[nodes["time_us_replayed"].notna()]
    return known.sort_values("time_us", ascending=False)


def report(name: str, threads: int, trials: Sequence[Trial]) -> None:
    """One line of the table."""
    raw, calibrated, corrected, own, rest = (
        statistics.median(getattr(found, field) for found in trials)
        for field in ("raw", "calibrated", "corrected", "apart", "rest")
    )
    ratios = np.median([found.agreement for found in trials], axis=0)
    close = int((np.abs(ratios - 1) <= _AGREEING).sum())
    held = statistics.median(found.within for found in trials)
    print(
        f"{name:14} {threads:7} {raw:4.2f}  {calibrated:10.2f}  {corrected:9.3f}  {own:14.3f}  "
        f"{rest:4.0%}  {np.median(ratios):.2f}, {close} of {len(ratios)}, {held:.0%}"
    )


def draw(trace: Trace, top: int, path: Path) -> None:
    """Bars of the rows with the most time: as reported, corrected with its interval, replayed."""
    from matplotlib.figure import Figure

    rows = replayed(trace.nodes).head(top)
    places = np.arange(len(rows))
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    spread = [
        rows["time_us"] - rows["time_us_ci95_low"],
        rows["time_us_ci95_high"] - rows["time_us"],
    ]
    axes.bar(places - 0.27, rows["time_us_raw"], 0.27, color="#bbbbbb", label="as reported")
    axes.bar(places, rows["time_us"], 0.27, yerr=spread, color="#4477aa", label="corrected, 95 %")
    axes.bar(places + 0.27, rows["time_us_replayed"], 0.27, color="#ee7733", label="run alone")
    axes.set_xticks(places, list(rows["node"]), rotation=30, ha="right")
    axes.set_ylabel("µs a run")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
