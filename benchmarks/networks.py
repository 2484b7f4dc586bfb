"""Whole networks in narrow accumulators ÷ the float network in onnxruntime.

    python -m benchmarks.networks [--networks ResNet-20 transformer] [--batch 64] [--rounds 15]

Runs take turns in one process; a ratio is the median over the rounds. `values` computes outputs
alone, `counts` counts overflows too, `observed` has the statistics of every width. The first line
is the most that two threads can gain on this machine.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks._measure import CHOSEN, machine
from benchmarks._networks import Model as Proto
from benchmarks._networks import mobilenet
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import LimitedSums, OverflowCounter, SumRunner
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.quantization.quantizer import quantize

MODELS = Path(__file__).parents[1] / "models"
RUNNERS = {"values": LimitedSums, "counts": OverflowCounter, "observed": SumRunner}

CASES = (
    ("ResNet-20", "values", 15, 3.0),
    ("ResNet-20", "values", 18, 3.0),
    ("ResNet-20", "counts", 15, 5.0),
    ("ResNet-20", "counts", 18, 5.0),
    ("ResNet-20", "observed", 18, 4.0),
    ("transformer", "values", 16, 5.0),
    ("transformer", "counts", 16, 5.0),
    ("MobileNet-like", "values", 16, 5.0),
    ("MobileNet-like", "counts", 16, 5.0),
)
"""Network, what is computed, width, and the greatest ratio that we aim for."""
SPEEDUP = 1.8
"""One thread ÷ two threads that we aim for."""
_PRODUCT, _PRODUCTS = 384, 10
"""Rows and columns of the matrices of a product, and products in a row."""


def main() -> None:
    """Prints a line for each case."""
    for name in CHOSEN:
        os.environ.pop(name, None)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print(machine())
    print(f"batch {arguments.batch}, 8 bits, ÷ onnxruntime in float32 with 2 threads")
    ceiling = _ceiling(arguments.rounds)
    print(f"two numpy products side by side: {ceiling:.2f} of one's rate; target {SPEEDUP}")
    print("network         computed  bits  2 threads  target  1 thread ÷ 2 threads")
    networks = {name: NETWORKS[name](arguments.batch) for name in arguments.networks}
    for name, computed, bits, target in (case for case in CASES if case[0] in networks):
        floats, integers = networks[name]
        two, speedup = _measured(floats, integers, RUNNERS[computed], bits, arguments)
        print(f"{name:15} {computed:9} {bits:4}  {two:9.2f}  {target:6.0f}  {speedup:20.2f}")


def _ceiling(rounds: int) -> float:
    """The rate of two threads that multiply matrices of their own ÷ the rate of one."""
    matrices = np.random.default_rng(0).normal(0, 1, (2, 2, _PRODUCT, _PRODUCT)).astype(np.float32)

    def multiply(pair: Any) -> None:
        for _ in range(_PRODUCTS):
            np.matmul(*pair)

    with parallel.threads(1), ThreadPoolExecutor(2) as pool:
        runs = (lambda: multiply(matrices[0]), lambda: list(pool.map(multiply, matrices)))
        one, two = np.array([[_seconds(run) for run in runs] for _ in range(rounds)]).T
    return statistics.median(2 * one / two)


def _measured(
    floats: Proto, integers: Proto, runner: type[SumRunner], bits: int, arguments: Any
) -> tuple[float, float]:
    """The ratio with two threads, and the time with one thread ÷ the time with two."""
    random = np.random.default_rng(0)
    declared = floats.graph.input[0]
    size = [dim.dim_value for dim in declared.type.tensor_type.shape.dim[1:]]
    x = random.normal(0, 1, (arguments.batch, *size)).astype(np.float32)
    feeds = {declared.name: x}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        floats.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    model = loading.from_proto(integers)
    emulation = AccumulatorEmulation(model, Policy.of(Accumulator(bits)))
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)

    def narrow(threads: int) -> Callable[[], Any]:
        chosen = interpreter.with_threads(threads)

        def run() -> Any:
            with emulation.using(emulation.new_runners({}, runner)):
                return chosen.run(None, feeds)

        return run

    runs = (lambda: session.run(None, feeds), narrow(2), narrow(1))
    rounds = [[_seconds(run) for run in runs] for _ in range(arguments.rounds)]
    theirs, two, one = np.array(rounds).T
    return statistics.median(two / theirs), statistics.median(one / two)


def _seconds(run: Callable[[], Any]) -> float:
    """The time of a second run: threads of the engine before still spin during the first."""
    run()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _shipped(path: str) -> Callable[[int], tuple[Proto, Proto]]:
    """A shipped network in floats and in 8 bits."""

    def load(batch: int) -> tuple[Proto, Proto]:
        floats, integers = (
            loading.load(MODELS / f"{path}{kind}.onnx").proto for kind in ("", ".int8")
        )
        return floats, integers

    return load


def _mobilenet(batch: int) -> tuple[Proto, Proto]:
    """A small MobileNet, quantised on random images."""
    proto = mobilenet(batch, size=64, width=16)
    random = np.random.default_rng(1)
    images = random.normal(0, 1, (batch, 3, 64, 64)).astype(np.float32)
    return proto, quantize(loading.from_proto(proto), [{"x": images}]).proto


NETWORKS = {
    "ResNet-20": _shipped("resnet_cifar/resnet20"),
    "transformer": _shipped("transformer/transformer"),
    "MobileNet-like": _mobilenet,
}


if __name__ == "__main__":
    main()
