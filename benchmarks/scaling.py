"""What workers are worth: sweeps over widths on one process, and on one and two workers.

    python -m benchmarks.scaling [--images 10000] [--resnet 1440] [--grown 100000] [--rounds 3]

Whole commands take turns. Each process has one thread, so two workers have twice the processors of
one. Prints the ratios of the seconds of 8-bit LeNet at 21 widths on `--images` images, and of
ResNet-20 at 11 widths on `--resnet` images; then the memory of the largest process, and the time of
an image, at one width on `--images` and on `--grown` images with two workers. Images are digits,
repeated. 0 leaves a part out.
"""

import statistics
from pathlib import Path

from benchmarks._measure import Usage, counts, machine, measure, median_ratio, python

MODELS = Path(__file__).parents[1] / "models"
LENET = MODELS / "lenet" / "lenet.int8.onnx"
RESNET = MODELS / "resnet_cifar" / "resnet20.int8.onnx"

_DIGITS = 360
_ALONE, _ONE, _TWO = "one process", "1 worker", "2 workers"
_OPTIONS = {_ALONE: (), _ONE: ("--workers", "1"), _TWO: ("--workers", "2")}


def main() -> None:
    """Measures and prints."""
    arguments = counts(
        __doc__.splitlines()[0], images=10_000, resnet=1_440, grown=100_000, rounds=3
    )
    print(machine())
    if arguments.images:
        _ratios("LeNet, 12:32", LENET, "12:32", arguments.images, arguments.rounds)
    if arguments.resnet:
        _ratios("ResNet-20, 14:24", RESNET, "14:24", arguments.resnet, arguments.rounds)
    if arguments.grown:
        _growth(arguments.images or 10_000, arguments.grown, arguments.rounds)


def _ratios(name: str, model: Path, widths: str, images: int, rounds: int) -> None:
    usages: dict[str, list[Usage]] = {who: [] for who in _OPTIONS}
    for _ in range(rounds):
        for who in _OPTIONS:
            usages[who].append(measure(_command(model, widths, images, who)))
    for who, each in usages.items():
        seconds = statistics.median(usage.seconds for usage in each)
        peak = max(usage.peak_mib for usage in each)
        print(f"{name}, {images:,} images, {who:<12}{seconds:8.1f} s  {peak:6.0f} MiB")
    print(f"  1 worker ÷ 2 workers: {median_ratio(usages[_ONE], usages[_TWO]):.2f} (≥ 1.8)")
    print(
        f"  1 worker ÷ one process: {median_ratio(usages[_ONE], usages[_ALONE]):.2f} (≤ 1.1)",
        flush=True,
    )


def _growth(images: int, grown: int, rounds: int) -> None:
    """Prints how memory and time of an image change from `images` to `grown`, less the start."""
    start = _least(_DIGITS, rounds)
    few, many = (_least(count, rounds) for count in (images, grown))
    times = [
        1e6 * (usage.seconds - start.seconds) / (count - _DIGITS)
        for usage, count in ((few, images), (many, grown))
    ]
    for count, usage, us in ((images, few, times[0]), (grown, many, times[1])):
        print(f"18 bits, {count:>9,} images {us:8.0f} µs an image  {usage.peak_mib:6.0f} MiB")
    print(f"  time of an image, many ÷ few: {times[1] / times[0]:.2f} (0.95 to 1.05)")
    print(f"  memory, many ÷ few: {many.peak_mib / few.peak_mib:.2f} (≤ 1.1)", flush=True)


def _least(images: int, rounds: int) -> Usage:
    usages = [measure(_command(LENET, "18", images, _TWO)) for _ in range(rounds)]
    return min(usages, key=lambda usage: usage.seconds)


def _command(model: Path, widths: str, images: int, who: str) -> list[str]:
    again = -(-images // _DIGITS)
    return python(
        "-m", "tracer", "whatif", str(model), "--accumulator", widths, "--no-search",
        "--data", f"digits*{again}", "--limit", str(images), "--threads", "1",
        *_OPTIONS[who], "-o", "json:-",
    )  # fmt: skip


if __name__ == "__main__":
    main()
