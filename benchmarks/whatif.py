"""Time and memory of a sweep over widths: 8-bit LeNet on digits of 3x32x32, 12 to 32 bits.

    python -m benchmarks.whatif [--images 10000] [--grown 50000] [--accumulator 12:32]
                               [--batch N] [--rounds 2] [--commands]

Prints the seconds, score and overflows of each width. One width took 270 s in the original
experiment. Then prints time per image and peak memory at one width for `--images` and `--grown`
images, each in its own process: time should be linear and memory flat. Last, it prints the time of
the whole command on ResNet-20, with and without the search for a width of each node, in seconds and
÷ the time that onnxruntime takes in float32 for the same images once for each width. `--commands`
prints these lines alone.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import onnxruntime

from benchmarks._measure import CHOSEN, Usage, machine, measure, python
from tracer import metrics
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset
from tracer.whatif.criteria import scorer
from tracer.whatif.evaluation import local
from tracer.whatif.reuse import StoredBatches, usual_batch
from tracer.whatif.variants import read_widths as plan

MODELS = Path(__file__).parents[1] / "models"
LENET = MODELS / "lenet" / "lenet.int8.onnx"
RESNET = MODELS / "resnet_cifar" / "resnet20.onnx"
ONE_WIDTH_ONCE = 270.0
"""Seconds of one width over 10,000 images in the original experiment."""
_IMAGES_ONCE = 10_000

_DIGITS, _BATCH = 360, 64
_WIDTHS, _PASSES = "14:24", 11
_ONE = "18"


def main() -> None:
    """Prints the table; with --alone only sweeps, for a process that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--grown", type=int, default=50_000, help="0: sweep alone")
    parser.add_argument("--accumulator", default="12:32")
    parser.add_argument("--batch", type=int, help="[default: what a command takes]")
    parser.add_argument("--rounds", type=int, default=2, help="of whole commands")
    parser.add_argument("--commands", action="store_true", help="time the whole command alone")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        _sweep(arguments.images, arguments.accumulator, arguments.batch)
        return
    for name in CHOSEN:
        os.environ.pop(name, None)
    print(machine())
    if not arguments.commands:
        _whole(arguments.images, arguments.accumulator, arguments.batch)
        for images in (arguments.images, arguments.grown) if arguments.grown else ():
            _grown(images, arguments.batch)
    _commands(arguments.images, arguments.rounds)


def _whole(images: int, widths: str, batch: int | None) -> None:
    """Prints the time of each width, in this process."""
    seconds_by_step = _sweep(images, widths, batch)
    for step, seconds in seconds_by_step.items():
        print(f"{step:<28}{seconds:9.2f} s")
    total = sum(seconds_by_step.values())
    once = ONE_WIDTH_ONCE * images / _IMAGES_ONCE
    ratio = once * (len(seconds_by_step) - 1) / total
    print(f"{'sum':<28}{total:9.2f} s; original experiment: {once:.0f} s for one width")
    print(f"{'speed-up':<28}{ratio:9.0f}", flush=True)


def _grown(images: int, batch: int | None) -> None:
    command = python("-m", "benchmarks.whatif", "--alone", "--accumulator", _ONE)
    command += [] if batch is None else ["--batch", str(batch)]
    command.append("--images")
    idle, busy = measure([*command, "1"]), measure([*command, str(images)])
    print(_line(images, idle, busy), flush=True)


def _commands(images: int, rounds: int) -> None:
    """Prints the least seconds, evaluations and ratio of the command on up to 360 images."""
    images = min(images, _DIGITS)
    floats = _PASSES * _float_seconds(images)
    for option in ("--no-search", "--search"):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            command = python(
                "-m", "tracer", "whatif", str(RESNET.with_suffix(".int8.onnx")), "--data", "digits",
                "--limit", str(images), "--accumulator", _WIDTHS, option, "-o", str(result),
            )  # fmt: skip
            seconds = min(measure([*command, "--force"]).seconds for _ in range(rounds))
            (variant,) = json.loads(result.read_text())["variants"]
        screened = (variant["screening"] or {}).get("evaluations", 0)
        print(
            f"tracer whatif resnet20 {_WIDTHS} {option:<11}{seconds:6.1f} s  "
            f"{len(variant['evaluations'])} evaluations and {screened} on the hardest  "
            f"{seconds / floats:.0f} x onnxruntime in float32"
        )


def _float_seconds(images: int) -> float:
    """The seconds that onnxruntime takes for the images in float32, the least of five runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(RESNET, options, providers=["CPUExecutionProvider"])
    batches = [
        b.inputs for b in open_dataset("digits", open_model(RESNET), limit=images).batches(64)
    ]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for feeds in batches:
            session.run(None, dict(feeds))
        times.append(time.perf_counter() - began)
    return min(times)


def _line(images: int, idle: Usage, busy: Usage) -> str:
    each = 1e6 * (busy.seconds - idle.seconds) / images
    return (
        f"{images:>7,} images at {_ONE} bits  {each:9.0f} µs an image in two passes, "
        f"{busy.peak_mib:,.0f} MiB at most"
    )


def _sweep(images: int, accumulator: str, batch: int | None) -> dict[str, float]:
    """Returns the seconds of the wide pass and of each width."""
    model = open_model(LENET)
    again = -(-images // _DIGITS)
    dataset = open_dataset(f"digits*{again}", model, limit=images)
    scoring = scorer(model, dataset, metrics.find("top1"))
    began = time.perf_counter()
    batches = StoredBatches(dataset, batch or usual_batch(dataset))
    evaluator = local(model, parse_policy("*=32"), batches, scoring)
    seconds = {"wide, all overflows": time.perf_counter() - began}
    for bits in plan(accumulator).swept.value:
        began = time.perf_counter()
        evaluation = evaluator.evaluate(dict.fromkeys(evaluator.nodes, bits))
        over = sum(each.overflow_outputs for each in evaluation.overflows.values())
        seconds[f"{bits} bits {evaluation.score:6.2f} % {over:>11,}"] = time.perf_counter() - began
    return seconds


if __name__ == "__main__":
    main()
