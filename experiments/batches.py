"""Experiment 3: train the MNIST network, and profile its operators at three batch sizes.

python -m experiments.batches [--data mnist] [--epochs 10]
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tracer
from experiments import _card, _page
from experiments._learning import learning, learning_curves
from experiments._page import Page
from models.training import session
from models.training.folder import RunFolder
from models.training.loop import Epoch
from models.training.tensorboard import CURVES, Board
from tracer.analyzers.compare.sweep import WHOLE, Sweep
from tracer.analyzers.grouping import by_kernel, by_op
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.api.compare import SideSettings, sweep
from tracer.containment.activity import silent
from tracer.graph import loading
from tracer.inputs.datasets import DEFAULT_FOLDER
from tracer.inputs.datasets.sets import Split
from tracer.records.trace import Run, Trace
from tracer.support.measurements import elapsed_us

PAGE = "3-batches"
NETWORK = "models/mnist/torch_net.py:MnistNet"
IMAGES = 10_000
TOP, DRAWN = 10, 4
"""Number of operators in a table and in the picture."""
_CONVOLUTIONS = 2
ORIGINAL = {1: (3.17, 159), 16: (0.45, 363), 64: (0.30, 966)}
"""Convolution in the original: seconds for 10,000 images, µs per call, by batch size."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--runs", type=int, default=100, help="inferences at each batch size")
    parser.add_argument("--sessions", type=int, default=12, help="sessions of each batch size")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data", default="digits", help="training data, such as digits or mnist")
    args = parser.parse_args(argv)
    if args.card:
        _card.add(args.card, args.out / f"{PAGE}.md", with_card)
        return
    make(args.batches, args.runs, args.sessions, args.epochs, args.data, args.threads).write(
        args.out
    )


def make(
    batches: Sequence[int], runs: int, sessions: int, epochs: int, data: str, threads: int
) -> Page:
    """Returns the page: a short training, then the trained network at each batch size."""
    with tempfile.TemporaryDirectory() as folder:
        rows, weights, images = trained(Path(folder), epochs, data)
        trace = tracer.profile_framework(
            NETWORK, framework="torch", weights=weights, batch=batches, runs=runs, threads=threads
        )
        settings = SideSettings(threads=threads, weights=weights, sessions=sessions)
        sides = [f"{NETWORK}@torch", str(weights.parent / "model.onnx")]
        sweeps = sweep(sides, batches, settings=settings)
    parts = [
        "The basic MNIST convnet in torch: trained with its curves in TensorBoard, then its "
        f"operators at batch {_listed(batches)}. As in the original, times are for "
        f"{IMAGES:,} images. The original had no memory figures: its memory profile failed.",
        "## Commands",
        _commands(batches, runs, sessions, epochs, data, threads),
        "## Training",
        learning(rows),
        _page.picture("3-training.png", "loss and accuracy by epoch"),
        f"TensorBoard shows {_listed([f'`{tag}`' for tag in CURVES])}, and the graph of the "
        "exported model.",
        *_operators(trace),
        "## Data loader",
        loader(trace, images),
        "The loader cuts a batch out of the images in memory and converts it to float32. The "
        "network takes a wall without profiler.",
        "## Time against work",
        growth(sweeps),
        _page.picture("3-batches.png", "time of a sample, and growth of time against work"),
        "## Convolution, compared with the original",
        convolution(trace),
        "## Environment",
        _page.table((" ", " "), ((name, text) for name, text in _page.environment().items())),
        "## Beyond the original",
        _page.bullets(*_learned(trace, sweeps)),
    ]
    pictures = {
        "3-batches.png": render(sweeps, "png", ViewOptions(top=DRAWN)),
        "3-training.png": learning_curves(rows),
    }
    return Page(PAGE, "Experiment 3: batch sizes, and what they cost", parts, pictures)


def trained(folder: Path, epochs: int, data: str) -> tuple[list[Epoch], Path, Split]:
    """Trains in `folder`; returns the epochs, the path of the weights, and the test images."""
    request = {"family": "mnist", "epochs": epochs, "data": data}
    run = session.start(request, RunFolder(folder / "run"), DEFAULT_FOLDER)
    with closing(Board(folder / "board")) as board:
        for row in run.epochs(silent):
            board.add_epoch(row)
        weights, exported = run.finish()
        board.add_graph(loading.load(exported.path))
    return run.rows, weights, run.dataset.test


def _operators(trace: Trace) -> list[str]:
    """Returns a heading and a table for each batch size."""
    parts = []
    for run in trace.runs:
        nodes = trace.nodes[trace.nodes["batch"] == run.batch]
        inside = _page.folded(f"Their kernels: the {TOP} with the largest total time", kernels(run))
        parts += [f"## Operators at batch {run.batch}", operators(run, nodes), inside]
    return parts


def operators(run: Run, nodes: pd.DataFrame) -> str:
    """Returns the operators of a run that take most time, with the memory they hold."""
    rows = by_op(nodes).sort_values("time_us", ascending=False).head(TOP)
    rows["s"] = rows["time_us"] * _seconds(run)
    rows["each"] = rows["time_us"] / rows["calls"]
    rows["kib"] = ["" if pd.isna(held) else f"{held / 1024:,.1f}" for held in rows["peak_bytes"]]
    columns = {"operator ": "`{op_type}`", "s": "{s:.3f}", "share": "{time_share:.1%}",
               "µs a call": "{each:,.1f}", "calls a run": "{calls:,.0f}",
               "memory, KiB": "{kib}"}  # fmt: skip
    return _page.records(columns, rows.to_dict("records"))


def kernels(run: Run) -> str:
    """Returns the kernels inside the operators as in torch's table, less profiler overhead."""
    rows = by_kernel(run).sort_values("time_us_total", ascending=False).head(TOP)
    rows["s"], rows["total"] = (rows[c] * _seconds(run) for c in ("time_us", "time_us_total"))
    columns = {"operator ": "`{op_type}`", "self s": "{s:.3f}", "self %": "{time_share:.1%}",
               "total s": "{total:.3f}", "total %": "{time_total_share:.1%}",
               "µs a call": "{time_us_per_call:,.1f}", "calls a run": "{calls:,.0f}"}  # fmt: skip
    return _page.records(columns, rows.to_dict("records"))


def loader(trace: Trace, images: Split) -> str:
    """Returns the time to load a batch next to the time of the network, at each batch size."""
    rows = []
    for run in trace.runs:
        size = run.batch or 1
        cuts = [slice(at, at + size) for at in range(0, max(1, len(images) - size + 1), size)]
        load_us = float(np.mean([elapsed_us(partial(images.batch, cut)) for cut in cuts]))
        wall_us = float(run.wall_us.mean())
        share = load_us / (load_us + wall_us)
        rows.append((size, f"{load_us:,.1f}", f"{wall_us:,.1f}", f"{share:.1%}"))
    return _page.table(("batch", "loader: µs a batch", "network: µs", "loader's share"), rows)


def _seconds(run: Run) -> float:
    """Returns the factor from µs of a run to seconds of all images."""
    return 1e-6 * IMAGES / (run.batch or 1)


def growth(sweeps: Sequence[Sweep]) -> str:
    """Returns the time of an inference and an image, and their growth, for each executor."""
    columns = {"executor ": "{executor}", "batch": "{batch}", "µs a run": "{time_us:,.1f}",
               "µs an image": "{sample_us:,.1f}", "time ×": "{time_growth:.2f}",
               "work ×": "{work:.0f}"}  # fmt: skip
    rows: list[dict[str, Any]] = []
    for swept in sweeps:
        totals = swept.table[swept.table["op"] == WHOLE]
        work = totals["batch"] / swept.batches[0]  # the work of each operator is linear
        totals = totals.assign(executor=swept.sides[0].run.executor, work=work)
        rows += totals.to_dict("records")
    return _page.records(columns, rows)


def convolution(trace: Trace) -> str:
    """Returns the time of all images and of a call, with the original times."""
    header = (
        "batch", "s", "µs a call", "call ×", "original: s", "µs a call", "call ×",
    )  # fmt: skip
    calls = convolution_calls(trace)
    first = next(iter(calls))
    rows = []
    for batch, call in calls.items():
        seconds = call * _CONVOLUTIONS * IMAGES / batch / 1e6
        theirs = ORIGINAL.get(batch)
        base = ORIGINAL.get(first)
        original = (f"{theirs[0]:.2f}", f"{theirs[1]:,}") if theirs else ("", "")
        times = _times(theirs[1], base[1]) if theirs and base else ""
        ours = f"{seconds:.2f}", f"{call:,.0f}", _times(call, calls[first])
        rows.append((batch, *ours, *original, times))
    return _page.table(header, rows)


def _times(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base else "?"  # the time may be less than its error


def convolution_calls(trace: Trace) -> dict[int, float]:
    """Returns the mean µs of a call of a convolution at each batch size."""
    nodes = trace.nodes[trace.nodes["op_type"] == "conv2d"]
    return {int(batch): float(of["time_us"].mean()) for batch, of in nodes.groupby("batch")}


def _commands(
    batches: Sequence[int], runs: int, sessions: int, epochs: int, data: str, threads: int
) -> str:
    sizes = f"--batch {','.join(map(str, batches))} --runs {runs} --threads {threads}"
    weights = "--weights runs/mnist/weights.safetensors"
    return _page.code(
        f"python -m models.train mnist --data {data} --epochs {epochs} --out runs/mnist \\",
        "    --tensorboard runs/board",
        f"tracer profile {NETWORK} --framework torch {weights} \\",
        f"    {sizes} --by op --top {TOP}",
        f"tracer profile {NETWORK} --framework torch {weights} \\",
        f"    {sizes} --by kernel --sort total --top {TOP}",
        f"tracer compare {NETWORK}@torch runs/mnist/model.onnx {weights} \\",
        f"    --batch {','.join(map(str, batches))} --sessions {sessions} --threads {threads} "
        "-o batches.png",
        "tracer env",
        f"python -m experiments.batches --data {data} --epochs {epochs} --runs {runs} "
        f"--sessions {sessions} --threads {threads}  # this page",
        "python -m experiments.batches --data mnist  # the original's images",
    )


def _listed(names: Sequence[object]) -> str:
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last


def with_card(text: str, machine: Mapping[str, Any], pages: Mapping[str, Any]) -> str:
    """Returns the page with what was measured on a card."""
    by_batch = {int(batch): run for batch, run in pages["mnist"].items()}
    calls, walls = {}, []
    for batch, run in by_batch.items():
        scale, rows = 1e-6 * IMAGES / batch, {}
        for row in run["operators"]:
            each = row["time_us"] / row["calls"] if row["calls"] else 0.0
            rows[row["op_type"]] = (
                f"{row['time_us'] * scale:.4f}", f"{row['time_share'] or 0:.1%}", f"{each:,.1f}"
            )  # fmt: skip
            if row["op_type"] == "conv2d":
                calls[batch] = each
        text = _card.with_columns(
            text, f"## Operators at batch {batch}", ("s", "share", "µs a call"), rows
        )
        device_us = sum(row["time_us"] for row in run["operators"])
        walls.append((batch, f"{run['wall_us']:,.1f}", f"{run['wall_us'] / batch:,.1f}",
                      f"{device_us:,.1f}", f"{device_us / run['wall_us']:.0%}"))  # fmt: skip
    first = next(iter(calls.values()))
    convolution = {
        str(batch): (f"{call * _CONVOLUTIONS * IMAGES / batch / 1e6:.4f}", f"{call:,.1f}",
                     _times(call, first))
        for batch, call in calls.items()
    }  # fmt: skip
    text = _card.with_columns(
        text, "## Convolution, compared with the original", ("s", "µs a call", "call ×"),
        convolution,
    )  # fmt: skip
    sizes = ",".join(map(str, by_batch))
    return _card.with_section(
        text,
        [
            "Columns that begin with `GPU` are those of one card, which the command of a user "
            "measures as well:",
            _page.code(
                f"tracer profile {NETWORK} --framework torch --batch {sizes} --runs 100 \\",
                f"    --device cuda --by op --top {TOP}",
                "python -m tests.card --part machine --part pages -o card.json",
                "python -m experiments.batches --card card.json  # these columns",
            ),
            "The time of an operator is that of its kernels on the card. A whole run also has "
            "their launches, and gaps between them:",
            _page.table(
                ("batch", "µs a run", "µs an image", "µs of kernels", "share of the run"), walls
            ),
            _card.environment(machine),
        ],
    )


def _learned(trace: Trace, sweeps: Sequence[Sweep]) -> list[str]:
    points = []
    for swept in sweeps:
        image_us = swept.table[swept.table["op"] == WHOLE].set_index("batch")["sample_us"]
        best = int(image_us.idxmin())
        points.append(
            f"{swept.sides[0].run.executor}: an image takes least time at batch {best}, "
            f"{image_us[best] / image_us.iloc[0]:.2f} of its time at batch {swept.batches[0]}."
        )
    held = trace.nodes.dropna(subset="peak_bytes")
    most = held.loc[held["peak_bytes"].astype(float).idxmax()]
    points.append(
        f"Memory is measured: `{most['node']}` at batch {most['batch']} has the highest peak, "
        f"{float(most['peak_bytes']) / 2**20:,.1f} MiB above the memory at its start. "
        "Internal buffers of oneDNN and BLAS are not included."
    )
    calls = convolution_calls(trace)
    sizes = sorted(calls)
    steps = ", ".join(
        f"{_times(calls[after], calls[before])}× from batch {before} to {after} for "
        f"{after / before:.0f}× the work"
        for before, after in pairwise(sizes)
    )
    points.append(
        f"The time of a call of a convolution grows {steps}. In the original, it grew 2.3× for 16× "
        "the work and 2.7× for 4×: a call at batch 1 was probably mostly overhead."
    )
    return points


if __name__ == "__main__":
    _page.run(main)
