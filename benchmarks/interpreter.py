"""Time of the interpreter ÷ onnxruntime, and of onnx's evaluator ÷ the interpreter.

    python -m benchmarks.interpreter [--threads 2] [--runs 15] [network ...]

Prints ratios of medians in one process. Runs of the engines alternate, so that a busy machine slows
all of them alike. onnxruntime runs the graph as it is (ORT_DISABLE_ALL). It does not spin between
runs, which would take the processor from the other engines.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from benchmarks import _networks as networks
from tracer.interpreter.interpreter import Interpreter
from tracer.support.measurements import elapsed_us

BATCH = {"resnet20": 64, "resnet50": 1, "mobilenet": 1, "encoder": 1}
TARGETS = {
    # network: largest ratio to onnxruntime, smallest speed-up over onnx
    "resnet20": (1.5, 15.0),
    "resnet50": (1.5, None),
    "mobilenet": (None, 15.0),
    "encoder": (2.0, None),
}


def main() -> int:
    """Prints a line for each network."""
    arguments = _arguments()
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))  # before numpy is loaded
    print(f"{'network':<12}{'batch':>6}{'ours / onnxruntime':>20}{'target':>9}"
          f"{'onnx / ours':>14}{'target':>9}{'difference':>13}")  # fmt: skip
    for name in arguments.networks or list(networks.NETWORKS):
        _report(name, arguments.threads, arguments.runs, arguments.reference)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[[], *BATCH], help="[default: all]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument(
        "--no-reference",
        dest="reference",
        action="store_false",
        help="leave out onnx's evaluator, which takes a minute",
    )
    return parser.parse_args()


def _report(name: str, threads: int, runs: int, reference: bool) -> None:
    model = networks.NETWORKS[name](BATCH[name])
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    ours = Interpreter(model, threads=threads)
    expected = session.run(None, feeds)[0]
    difference = np.abs(ours.run(None, feeds)[0] - expected).max() / np.abs(expected).max()
    mine, theirs = _medians(runs, lambda: ours.run(None, feeds), lambda: session.run(None, feeds))
    line = f"{name:<12}{BATCH[name]:>6}{mine / theirs:>20.2f}{_target(TARGETS[name][0], '<='):>9}"
    if reference:
        evaluator = ReferenceEvaluator(model)
        slow, fast = _medians(3, lambda: evaluator.run(None, feeds), lambda: ours.run(None, feeds))
        line += f"{slow / fast:>14.1f}"
    else:
        line += f"{'-':>14}"
    print(f"{line}{_target(TARGETS[name][1], '>='):>9}{difference:>13.1e}", flush=True)


def _medians(runs: int, *engines: Callable[[], object]) -> list[float]:
    """Returns the median seconds of each engine; runs alternate, after two warm-up runs."""
    times: list[list[float]] = [[] for _ in engines]
    for number in range(runs + min(runs, 2)):
        for engine, taken in zip(engines, times, strict=True):
            time_us = elapsed_us(engine)
            if number >= min(runs, 2):
                taken.append(time_us / 1e6)
    return [statistics.median(taken) for taken in times]


def _target(value: float | None, relation: str) -> str:
    return "" if value is None else f"{relation} {value:g}"


if __name__ == "__main__":
    sys.exit(main())
