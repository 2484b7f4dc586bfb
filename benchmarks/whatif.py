"""How long all widths of a network take: LeNet in 8 bits on digits of 3x32x32, 12 to 32 bits.

    python -m benchmarks.whatif [--images 10000] [--grown 50000] [--accumulator 12:32]
                               [--batch 64]

Prints seconds for all widths, with score and overflows of each, beside the 270 s that one width
took in the experiment this grew from. Then, for `--images` and `--grown` images at one width,
seconds per image and peak memory, each in a process of its own: time is to be linear, memory flat.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks._measure import Usage, measure, python
from tracer import metrics
from tracer.accumulators.spec.policy_text import read
from tracer.graph.loading import open_model
from tracer.inputs.datasets import open_dataset
from tracer.whatif.evaluation import Evaluator
from tracer.whatif.metric_scores import scorer
from tracer.whatif.stored_batches import StoredBatches
from tracer.whatif.width_plan import read as plan

LENET = Path(__file__).parents[1] / "models" / "lenet" / "lenet.int8.onnx"
ONE_WIDTH_ONCE = 270.0
"""Seconds of one width over 10,000 images in the experiment."""
_IMAGES_ONCE = 10_000

_DIGITS = 360
_ONE = "18"


def main() -> None:
    """Print the table, or with --alone sweep once and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--grown", type=int, default=50_000)
    parser.add_argument("--accumulator", default="12:32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        _sweep(arguments.images, arguments.accumulator, arguments.batch)
        return
    _whole(arguments.images, arguments.accumulator, arguments.batch)
    for images in (arguments.images, arguments.grown):
        _grown(images, arguments.batch)


def _whole(images: int, widths: str, batch: int) -> None:
    """All widths, in this process."""
    found = _sweep(images, widths, batch)
    for what, seconds in found.items():
        print(f"{what:<28}{seconds:9.2f} s")
    total = sum(found.values())
    once = ONE_WIDTH_ONCE * images / _IMAGES_ONCE
    ratio = once * (len(found) - 1) / total
    print(f"{'all of it':<28}{total:9.2f} s; the experiment: {once:.0f} s for one width")
    print(f"{'times faster':<28}{ratio:9.0f}", flush=True)


def _grown(images: int, batch: int) -> None:
    command = python("-m", "benchmarks.whatif", "--alone", "--batch", str(batch),
                     "--accumulator", _ONE, "--images")  # fmt: skip
    idle, busy = measure([*command, "1"]), measure([*command, str(images)])
    print(_line(images, idle, busy), flush=True)


def _line(images: int, idle: Usage, busy: Usage) -> str:
    each = 1e6 * (busy.seconds - idle.seconds) / images
    return (
        f"{images:>7,} images at {_ONE} bits  {each:9.0f} µs an image in two passes, "
        f"{busy.peak_mib:,.0f} MiB at most"
    )


def _sweep(images: int, accumulator: str, batch: int) -> dict[str, float]:
    """Seconds of the wide pass and of each width."""
    model = open_model(LENET)
    again = -(-images // _DIGITS)
    dataset = open_dataset(f"digits*{again}", model, limit=images)
    scoring = scorer(model, dataset, metrics.find("top1"))
    began = time.perf_counter()
    evaluator = Evaluator(model, read("*=32"), StoredBatches(dataset, batch), scoring)
    found = {"wide, all overflows": time.perf_counter() - began}
    for bits in plan(accumulator).swept.given:
        began = time.perf_counter()
        made = evaluator.evaluate(dict.fromkeys(evaluator.nodes, bits))
        over = sum(each.overflow_outputs for each in made.overflows.values())
        found[f"{bits} bits {made.score:6.2f} % {over:>11,}"] = time.perf_counter() - began
    return found


if __name__ == "__main__":
    main()
