"""Accuracy of node times: their sum ÷ the undisturbed wall, and each node ÷ its replay.

Each trial profiles a network. The sums are compared with two held-out walls. One is every second
undisturbed run of the profile; the correction uses the other half. The other is a separate session,
as in a user's program: it takes turns with undisturbed runs beside profiled ones, and their ratio
tells the one wall from the other. Figures are medians over the trials. --figure draws reported,
corrected and replayed times of the rows with the most time. --busy makes pairs of profiles beside
programs that compute instead (see `_busy`).
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd

import tracer
from benchmarks import _busy
from benchmarks._measure import machine
from benchmarks._networks import Builder, Model, encoder
from tracer.analyzers.attribution import attribute
from tracer.analyzers.compare.contrast import of_sessions
from tracer.analyzers.timing import empty, timing, wall
from tracer.api.compare import SideSettings
from tracer.executors.measuring import Pace, by_side, sessions
from tracer.executors.onnxruntime import feeding
from tracer.executors.onnxruntime.executor import turn_recorder
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.loading import open_model
from tracer.inputs.request import make_feeds
from tracer.records.counted_runs import Usage
from tracer.records.trace import Run, Trace
from tracer.support.measurements import elapsed_us
from tracer.support.types import FloatArray

_AGREEING = 0.15
_PACE, _SESSIONS = Pace(block_us=500.0, least_runs=1, session_s=0.1), 24
"""Of the separate session and of runs beside profiled ones."""


def _resnet() -> Model:
    return onnx.load("models/resnet_cifar/resnet20.onnx")


def _mlp() -> Model:
    """Returns a multilayer perceptron 784-512-256-128-10 for one image."""
    net = Builder("mlp", (1, 784))
    x = "x"
    for rows, columns in ((784, 512), (512, 256), (256, 128), (128, 10)):
        x = net.add("Gemm", x, net.weight(rows, columns), net.weight(columns, scale=0.1))
        x = net.add("Relu", x) if columns > 10 else x
    return net.model(x, 1, 10)


def _chain() -> Model:
    """Returns 200 operators on 8 elements that nothing can fuse."""
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
    """Sums over nodes: as reported, less the calibrated overhead, and corrected.

    They are divided by the mean of the held-out undisturbed runs. All but `raw` have the time of an
    empty run added. `apart` is the corrected sum ÷ the wall of a separate session that took turns.
    `agreement` is replayed ÷ corrected times; `within` is the share of confidence intervals that
    contain the replayed time.
    """

    raw: float
    calibrated: float
    corrected: float
    apart: float
    rest: float
    agreement: tuple[float, ...]
    within: float


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each profile")
    parser.add_argument("--replay", type=int, default=10)
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--figure", type=Path, help="a PNG of the last trial of the first network")
    parser.add_argument(
        "--busy", nargs="*", choices=_busy.LOADS, help="programs beside pairs of profiles"
    )
    parser.add_argument("--pairs", type=int, default=10, help="of profiles, with --busy")
    args = parser.parse_args()
    print(machine())
    if args.busy is not None:
        busy(args.pairs, args.busy or list(_busy.LOADS))
        return
    print(
        "network        threads  raw  calibrated  corrected  apart (÷ wall)  rest  "
        "replayed ÷ corrected: median, within 15 %, in the interval"
    )
    for name in args.networks:
        for threads in args.threads:
            model = NETWORKS[name]()
            trials = [trial(model, threads, args) for _ in range(args.trials)]
            report(name, threads, [trial for trial, _ in trials])
            if args.figure is not None and (name, threads) == (args.networks[0], args.threads[0]):
                draw(trials[-1][1], args.replay, args.figure)


def busy(pairs: int, loads: Sequence[str]) -> None:
    """Prints how times and ranks beside other programs agree with those of a quiet machine."""
    print(
        "network         beside  rows of 20 µs within 15 %, largest error: tracer, medians, means  "
        "ten slowest agree: the same three  new advice"
    )
    decode = Path("models/llama/llama.onnx")
    for name, subject, dims in (
        ("bert12", _busy.bert12(), {}),
        ("ResNet-20", _resnet(), {}),
        ("decode step", decode, {"sequence": 1, "past": 128}),
        ("chain of 200", _chain(), {}),
    ):
        _busy.compare(name, subject, dims, pairs, loads)


def trial(model: Model, threads: int, args: argparse.Namespace) -> tuple[Trial, Trace]:
    """Profiles once and compares with runs outside the profile."""
    trace = tracer.profile(
        model, threads=threads, min_time=args.seconds, runs=20, replay=args.replay, confirm=False
    )
    run, nodes = trace.runs[0], trace.nodes
    assert run.empty_us is not None
    cost = sum(k.calls * bias for k, bias in zip(run.kernels, run.bias_us, strict=True))
    raw, corrected = nodes["time_us_raw"].sum(), nodes["time_us"].sum()
    used, held_out = (_half(run, half) for half in (0, 1))
    mean, idle = wall(held_out)["mean"], empty(held_out)
    assert idle is not None
    halved = timing(used, attribute(open_model(model), run.kernels))["time_us"].sum()
    rows = replayed(nodes)
    held = rows["time_us_replayed"].between(rows["time_us_ci95_low"], rows["time_us_ci95_high"])
    sum_to_wall = (halved + idle) / mean
    result = Trial(
        raw=raw / mean,
        calibrated=(raw - cost + idle) / mean,
        corrected=sum_to_wall,
        apart=sum_to_wall * apart(model, threads),
        rest=1 - corrected / wall(run)["mean"],
        agreement=tuple(rows["time_us_replayed"] / rows["time_us"]),
        within=float(held.mean()),
    )
    return result, trace


def _half(run: Run, half: int) -> Run:
    """Returns the run with every second undisturbed and every second empty run."""
    assert run.empty_us is not None and run.use is not None
    used = run.use.wall
    wall_usage = Usage(used.switches[half::2], used.cpu_us[half::2])
    use = replace(run.use, wall=wall_usage)
    return replace(run, wall_us=run.wall_us[half::2], empty_us=run.empty_us[half::2], use=use)


@dataclass(slots=True)
class Runs:
    """A side whose runs are timed; each block follows as many of `before`."""

    timed: Callable[[], float]
    before: Callable[[int], object] = lambda runs: None
    medians: list[float] = field(default_factory=list)

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Times `runs` after one that fills caches and wakes threads."""
        self.before(runs)
        rest()
        self.timed()
        self.medians.append(statistics.median(self.timed() for _ in range(runs)))

    def finish(self) -> FloatArray:
        """Returns the blocks."""
        return np.array(self.medians)


def apart(model: Model, threads: int) -> float:
    """Returns the time of undisturbed runs beside profiled ones ÷ that in a separate session."""
    loaded, settings = loading.from_proto(model), OrtSettings(threads=threads)
    feedset = make_feeds(loaded)

    @contextmanager
    def own() -> Iterator[Runs]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        run = feeding.runner(loaded, session, feedset.feeds)
        yield Runs(lambda: elapsed_us(run))

    @contextmanager
    def beside() -> Iterator[Runs]:
        with turn_recorder(loaded, feedset, settings) as open_model:
            yield Runs(open_model.plain, open_model.record)

    made = sessions(
        [own, beside],
        _PACE,
        SideSettings(threads=threads),
        together=True,
        least=_SESSIONS,
        is_enough=lambda made: len(made) >= _SESSIONS,
        progress=lambda done, total: None,
    )
    return of_sessions(*by_side(made, 2)).ratio


def replayed(nodes: pd.DataFrame) -> pd.DataFrame:
    """Returns the replayed rows, the longest first."""
    return nodes[nodes["time_us_replayed"].notna()].sort_values("time_us", ascending=False)


def report(name: str, threads: int, trials: Sequence[Trial]) -> None:
    """Prints one line of the table."""
    raw, calibrated, corrected, own, rest = (
        statistics.median(getattr(trial, field) for trial in trials)
        for field in ("raw", "calibrated", "corrected", "apart", "rest")
    )
    ratios = np.median([trial.agreement for trial in trials], axis=0)
    close = int((np.abs(ratios - 1) <= _AGREEING).sum())
    held = statistics.median(trial.within for trial in trials)
    print(
        f"{name:14} {threads:7} {raw:4.2f}  {calibrated:10.2f}  {corrected:9.3f}  {own:14.3f}  "
        f"{rest:4.0%}  {np.median(ratios):.2f}, {close} of {len(ratios)}, {held:.0%}"
    )


def draw(trace: Trace, top: int, path: Path) -> None:
    """Draws the rows with the most time: reported, corrected with its interval, replayed."""
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
    axes.bar(places + 0.27, rows["time_us_replayed"], 0.27, color="#ee7733", label="replayed")
    axes.set_xticks(places, list(rows["node"]), rotation=30, ha="right")
    axes.set_ylabel("µs a run")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
