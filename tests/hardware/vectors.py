"""Compares presets with results of tensor cores: `python -m tests.hardware.vectors FOLDER`.

FOLDER is `model_validation` of https://github.com/north-numerical-computing/MATLAB-tensor-core
(BSD-2-Clause), which holds 48 files with 5,000 results each, of nine cards. With --mutations, shows
how many of them a wrong setting would get wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.hardware.matrix_cores import NVIDIA
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, FloatRounding, float_format

CARDS = {
    "V100": "tc:v100", "A100": "tc:a100", "A2": "tc:a100", "Ada": "tc:ada", "L40S": "tc:ada",
    "H100": "tc:h100", "H200": "tc:h100", "B200": "tc:b200",
}  # fmt: skip
"""Folders, and the presets of their cards."""
FORMATS = {
    "fp16": "fp16", "bf16": "bf16", "tf32": "tf32", "E4M3": "fp8-e4m3", "E5M2": "fp8-e5m2",
}  # fmt: skip
_FP8 = ("E4M3", "E5M2")
_HOPPER = ("H100", "H200")
_ROWS = 50
"""Rows at a time: only the diagonal of their product is read."""


@dataclass(frozen=True)
class Vectors:
    """The rows of one result file: operands (rows, K), C and D (rows), float32."""

    name: str
    left: np.ndarray
    right: np.ndarray
    start: np.ndarray
    want: np.ndarray
    accumulator: BlockFma | FloatAccumulator

    def by(self, accumulator: BlockFma | FloatAccumulator) -> Vectors:
        """Returns the same rows for another accumulator."""
        return replace(self, accumulator=accumulator)

    def mismatches(self) -> int:
        """Returns how many rows the accumulator gets wrong, compared bit by bit."""
        got = diagonal(self.left, self.right, self.start, self.accumulator)
        return int((got.view(np.uint32) != self.want.view(np.uint32)).sum())


def diagonal(left, right, start, accumulator):
    """Returns the sum of each row, float32."""
    parts = [slice(first, first + _ROWS) for first in range(0, len(left), _ROWS)]
    values = (sum_products(left[p], right[p].T, start[p], accumulator).values for p in parts)
    return np.concatenate([np.diagonal(each) for each in values])


def read(folder: Path) -> Iterator[Vectors]:
    """Yields the result files below a folder."""
    for path in sorted(folder.glob("*/*/d_*.txt")):
        card, form, half = path.parts[-3], path.parts[-2], path.stem.endswith("fp16")
        hexes = [path.with_name(f"{side}_{card}_{form}.txt") for side in "ab"]
        left, right = (hexadecimal(each) for each in hexes)
        start = binary(path.with_name(f"c_{card}_fp32.txt"))
        yield Vectors(
            f"{card}/{form}/{path.name}", left, right, _start(card, form, half, start),
            binary(path), _accumulator(card, form, half),
        )  # fmt: skip


def hexadecimal(path):
    rows = [[int(word, 16) for word in line.split()] for line in path.read_text().splitlines()]
    return np.array([row for row in rows if row], np.uint32).view(np.float32)


def binary(path):
    lines = (line.strip() for line in path.read_text().splitlines())
    return np.array([int(line, 2) for line in lines if line], np.uint32).view(np.float32)


def _start(card, form, half, start):
    """C as the card had it: 0 where files were made with wgmma; fp16 for sums in fp16."""
    if form in _FP8 and card in _HOPPER and not half:
        return np.zeros_like(start)
    return start.astype(np.float16).astype(np.float32) if half else start


def _accumulator(card, form, half):
    preset = CARDS[card]
    if form in _FP8 and (card == "B200" or (card in _HOPPER and half)):
        preset = "tc:hmma-fp8"  # made with mma.sync
    return NVIDIA[preset + "-fp16-sums" * half][FORMATS[form]]


def mutations(vectors: Vectors) -> dict[str, Vectors]:
    """Returns the same rows with an accumulator that differs from the right one in one setting."""
    right = vectors.accumulator
    fp32, products = float_format("fp32"), vectors.left * vectors.right  # exact in float32
    wrong: dict[str, Vectors] = {
        f"F={right.fraction - 1}": vectors.by(replace(right, fraction=right.fraction - 1)),
        f"F={right.fraction + 1}": vectors.by(replace(right, fraction=right.fraction + 1)),
        f"L={right.length // 2}": vectors.by(replace(right, length=right.length // 2)),
        "exact sum, to nearest": vectors.by(
            replace(right, rule="exact", rounding=FloatRounding())
        ),
        "normalised products": replace(
            vectors, left=products, right=np.ones_like(products),
            accumulator=replace(right, operands=fp32),
        ),
    }  # fmt: skip
    if right.out == float_format("e8m13"):
        wrong["out=fp32"] = vectors.by(replace(right, out=fp32))
    if right.schedule == "split":
        wrong["chain"] = vectors.by(replace(right, schedule="chain"))
    if right.out == fp32:
        wrong["sequential fused fp32"] = vectors.by(FloatAccumulator(fp32, fused=True))
    if vectors.left.shape[1] == 2 * right.length and right.schedule == "chain":
        sides = (np.roll(side, right.length, axis=1) for side in (vectors.left, vectors.right))
        wrong["halves of k swapped"] = Vectors(
            vectors.name, *sides, vectors.start, vectors.want, right
        )
    return wrong


def main() -> int:
    """Prints a line for each file; returns 1 if a result differs, or none was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.vectors", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mutations", action="store_true", help="count what wrong settings miss")
    arguments = parser.parse_args()
    files = wrong = 0
    for vectors in read(arguments.folder):
        mismatches = vectors.mismatches()
        files, wrong = files + 1, wrong + mismatches
        print(
            f"{vectors.name:<28}{len(vectors.want):>6} rows {mismatches:>6} mismatches", flush=True
        )
        if arguments.mutations:
            for name, wrong_setting in mutations(vectors).items():
                print(f"    {name:<24}{wrong_setting.mismatches():>6} mismatches", flush=True)
    print(f"{files} files, {wrong} mismatches")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
