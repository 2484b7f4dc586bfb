"""Processor time to draw a graph and to write a report, and the size of the report's file."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tracer
from analyzers.views.report.layout import laid_out
from benchmarks._measure import counts, machine
from benchmarks._networks import deep
from tracer.records.trace import Trace

RESNET = Path(__file__).parents[1] / "models/resnet_cifar/resnet20.onnx"


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, nodes=20_000, repeats=5, runs=3)
    print(machine())
    print(f"{'model':<22}{'drawing, s':>12}{'writing, s':>12}{'file, kB':>12}")
    for name, model in (("ResNet-20", RESNET), (f"{args.nodes:,} nodes", deep(args.nodes))):
        print(f"{name:<22}{_line(tracer.profile(model, runs=args.runs, threads=1), args.repeats)}")


def _line(trace: Trace, repeats: int) -> str:
    drawing = _median(lambda: laid_out(trace.model.topology), repeats)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        writing = _median(lambda: trace.save(file, force=True), repeats)
        return f"{drawing:>12.2f}{writing:>12.2f}{file.stat().st_size / 1e3:>12,.0f}"


def _median(call: Callable[[], Any], repeats: int) -> float:
    """Returns the median processor time of a call, s, after one that is not counted."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
