"""Speed of float accumulators and block multiply-adds, beside integer sums of the same shapes.

    python -m benchmarks.float_accumulators [--threads 1 2] [--batch 64] [--runs 5]

Shapes are those of the three stages of ResNet-20, weighted by their layers. Prints 10^9 products
per second, and the time ÷ the time of the integer pass: sums of 18 bits with their statistics. Then
whole runs of ResNet-20, in floats, ÷ the run of the same network in 8 bits at 18 bits with counts.
Runs of all accumulators take turns, so that a busy machine slows them alike.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._measure import machine
from benchmarks.networks import MODELS
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine import tile_sums
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.engine.sum_runner import OverflowCounter
from tracer.accumulators.engine.tile_sums import SumLanes, checked, program
from tracer.accumulators.floats.casting import cast
from tracer.accumulators.hardware import presets
from tracer.accumulators.spec import policy
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import (
    FloatAccumulator,
    float_accumulator,
    float_format,
)
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.policy import Policy
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel, tensors
from tracer.support.measurements import elapsed_us
from tracer.support.types import Array

STAGES = ((16, 144, 1024, 6), (32, 288, 256, 6), (64, 576, 64, 6))
"""Channels, terms, columns of an image, and layers."""
CORES = (("tc:v100", "fp16"), ("tc:a100", "fp16"), ("tc:h100", "fp16"), ("tc:h100", "fp8-e4m3"))
NETWORK = (
    ("fp16", None, 8), ("fp16", "fp16", 8), ("bf16", None, None), ("bf16", "bf16", 8),
    ("tc:a100", "fp16", 20), ("tc:a100", "bf16", 20), ("tc:h100", "bf16", None),
)  # fmt: skip
"""Accumulators and operands of the whole network, and the most times the integer pass."""
WINDOW = 9
"""Terms of a channel: a window of 3 x 3."""


@dataclass(frozen=True, slots=True)
class Family:
    """A line: an accumulator, the format of its operands, and the most times the integer pass."""

    name: str
    accumulator: FloatAccumulator | BlockFma
    operands: str
    target: float | None = None


def families() -> list[Family]:
    """Returns the families that are measured."""
    plain = [
        Family(name, float_accumulator(name), "fp16", target)
        for name, target in (("fp16", 8), ("bf16", 8), ("fp32", None), ("fp16(rz)", None),
                             ("fp16(fused)", None), ("e6m9(sr=1)", None))
    ]  # fmt: skip
    cores = []
    for name, operands in CORES:
        device = presets()[name].accumulator
        assert isinstance(device, ByOperands)
        accumulator = device.of(operands)
        assert isinstance(accumulator, BlockFma)
        target = 20 if name == "tc:a100" else None
        cores.append(Family(f"{name}, {operands}", accumulator, operands, target))
    return [*plain, *cores]


def main() -> None:
    """Prints a table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    for threads in arguments.threads:
        print(f"\nbatch {arguments.batch}, {threads} thread(s)        10^9 products/s  ÷ integers")
        _report(threads, arguments.batch, arguments.runs)
    for threads in arguments.threads:
        print(f"\nResNet-20, batch {arguments.batch}, {threads} thread(s)      ms  ÷ integers")
        _report_network(threads, arguments.batch, arguments.runs)


def _report(threads: int, batch: int, runs: int) -> None:
    lines = families()
    total = [0.0] * (1 + len(lines))
    products = 0
    for rows, depth, columns, layers in STAGES:
        random = np.random.default_rng(1)
        left = random.integers(-128, 128, (rows, depth)).astype(np.int8)
        right = random.integers(0, 256, (depth, columns * batch)).astype(np.uint8)
        works = [_integers(left, right), *(_floats(left, right, each) for each in lines)]
        for number, microseconds in enumerate(_medians(works, threads, runs)):
            total[number] += layers * microseconds
        products += layers * rows * depth * columns * batch
    print(f"  {'integers, 18 bits':<24}{products / total[0] / 1e3:>18.2f}{1:>12.1f}")
    for line, microseconds in zip(lines, total[1:], strict=True):
        target = f"  <= {line.target}" if line.target else ""
        speed, ratio = products / microseconds / 1e3, microseconds / total[0]
        print(f"  {line.name:<24}{speed:>18.2f}{ratio:>12.1f}{target}", flush=True)


def _report_network(threads: int, batch: int, runs: int) -> None:
    """Prints a line for each accumulator: a median time, and the median of ratios of turns."""
    images = np.random.default_rng(0).normal(0, 1, (batch, 3, 32, 32)).astype(np.float32)
    works = [_integer_network(images, threads)]
    works += [_float_network(images, threads, *names) for *names, _ in NETWORK]
    turns = [[elapsed_us(work) for work in works] for _ in range(runs + 1)][1:]
    times = np.array(turns).T
    print(f"  {'integers, 18 bits':<24}{np.median(times[0]) / 1e3:>12.0f}{1:>12.1f}")
    for (name, operands, most), own in zip(NETWORK, times[1:], strict=True):
        target = f"  <= {most}" if most else ""
        label, ratio = f"{name}, {operands or 'float32'}", np.median(own / times[0])
        print(f"  {label:<24}{np.median(own) / 1e3:>12.0f}{ratio:>12.1f}{target}", flush=True)


def _integer_network(images: Array, threads: int) -> Callable[[], Any]:
    model = loading.load(MODELS / "resnet_cifar/resnet20.int8.onnx")
    emulation = AccumulatorEmulation(model, Policy.of(Accumulator(18)))
    run = _network(model, emulation, images, threads)

    def work() -> None:
        with emulation.using(emulation.new_runners({}, OverflowCounter)):
            run()

    return work


def _float_network(
    images: Array, threads: int, accumulator: str, operands: str | None
) -> Callable[[], Any]:
    model = loading.load(MODELS / "resnet_cifar/resnet20.onnx")
    emulation = AccumulatorEmulation(model, policy.parse_policy(accumulator, operands=operands))
    return _network(model, emulation, images, threads)


def _network(
    model: Model, emulation: AccumulatorEmulation, images: Array, threads: int
) -> Callable[[], Any]:
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    chosen, name = interpreter.with_threads(threads), model.graph.input[0].name
    return lambda: chosen.run(None, {name: images})


def _integers(left: Array, right: Array) -> Callable[[], Any]:
    """Limited sums, and counts of them, as of a node of a quantised network."""
    terms, accumulator = Terms(left.shape[1] // WINDOW, (WINDOW,)), Accumulator(18)
    matrices, plan = checked(left, right, None, terms), program(accumulator.order, terms)
    assert plan is not None
    lanes = SumLanes(matrices, plan, accumulator)
    columns = tile_sums.of_matrix(matrices, plan.sequence)
    factors = tile_sums.Factors.of(lanes, plan, lanes.limited_bits)
    out = np.empty(matrices.shape, np.int64)
    return lambda: factors.count(columns, out, None, False)


def _floats(left: Array, right: Array, family: Family) -> Callable[[], Any]:
    form = float_format(family.operands)
    sides = [cast(side / np.float32(128), form) for side in (left, right)]
    return lambda: sum_products(sides[0], sides[1], None, family.accumulator)


def _medians(works: list[Callable[[], Any]], threads: int, runs: int) -> list[float]:
    """Returns the median time of each, in µs; runs take turns, after one warm-up run."""
    times: list[list[float]] = [[] for _ in works]
    with tensors.pooled([]), parallel.threads(threads):
        for _ in range(runs + 1):
            for work, seen in zip(works, times, strict=True):
                seen.append(elapsed_us(work))
    return [statistics.median(seen[1:]) for seen in times]


if __name__ == "__main__":
    main()
