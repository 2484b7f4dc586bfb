"""False alarms and detections of `tracer compare`: LeNet with itself, and with slower ones.

A slower one has a chain of an operator whose cost is measured first: on the smallest tensor for
whole runs, and in a module for layers. With `--busy 1` a program computes on every core meanwhile.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import onnx

from benchmarks._load import load
from benchmarks._measure import counts, machine
from tracer.api.compare import SideSettings, compare
from tracer.graph.provenance import MODULE_KEY

MODEL = Path("models/lenet/lenet.onnx")


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of an operator that nothing can fold away, in a module, before the node at `place`.

    A chain of `calibrated` operators tells the cost of one; alone it is as small as the noise.
    """

    operator: str
    place: int
    module: str
    calibrated: int


WHOLE = Chain("Floor", -1, "", 40)
"""Reads the last Relu, whose tensor is the smallest."""
LAYER = Chain("Erf", 0, "conv1", 10)
"""Reads the input of the first convolution. Two of its operators are a fifth of the layer: the
profiler adds as much to each as a cheaper one takes."""

_SLOWER, _LAYER_SLOWER = 0.02, 0.2


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, comparisons=100, slowdowns=40, layers=40, alike=40, busy=0)
    print(machine() + (", every core busy" if args.busy else ""))
    with tempfile.TemporaryDirectory() as folder:
        one = cost_of_one(WHOLE, Path(folder))
        print(f"an operator of the chain takes {one:.2%} of a run")
        with load(args.busy > 0):
            totals("the same model twice", [MODEL] * args.comparisons)
            count = max(1, round(_SLOWER / one))
            slower = slowed(WHOLE, Path(folder), count)
            totals(f"{count * one:.1%} slower", [slower] * args.slowdowns)
            alike(args.alike)
        if args.layers:
            one = cost_of_one(LAYER, Path(folder)) / share_of(LAYER.module)
            count = max(1, round(_LAYER_SLOWER / one))
            with load(args.busy > 0):
                layers(count * one, slowed(LAYER, Path(folder), count), args.layers)


def cost_of_one(chain: Chain, folder: Path) -> float:
    """Returns the time that one operator of the chain adds, as a share of a run."""
    settings = SideSettings(threads=1, precision=0.005)
    sides = [str(MODEL), str(slowed(chain, folder, chain.calibrated))]
    comparison = compare(sides, by="model", settings=settings)
    return float(comparison.totals["ratio"].iloc[1] - 1) / chain.calibrated


def share_of(module: str) -> float:
    """Returns the time of a module as a share of a run."""
    comparison = compare([str(MODEL)] * 2, by="module", settings=SideSettings(threads=1))
    assert comparison.layers is not None
    rows = comparison.layers.set_index("module")
    return float(rows.loc[module, "time_us_a"] / comparison.sides[0].run.wall_us.mean())


def slowed(chain: Chain, folder: Path, count: int) -> Path:
    """Writes LeNet with `count` operators of a chain."""
    model, path = onnx.load(MODEL), folder / f"{chain.operator}{count}.onnx"
    reader = model.graph.node[chain.place]
    names = [reader.input[0], *(f"chain_{index}" for index in range(count))]
    nodes = [
        onnx.helper.make_node(chain.operator, [before], [after], after)
        for before, after in pairwise(names)
    ]
    for node in nodes:
        node.metadata_props.add(key=MODULE_KEY, value=chain.module)
    reader.input[0] = names[-1]
    at = chain.place % len(model.graph.node)
    for node in reversed(nodes):
        model.graph.node.insert(at, node)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def alike(times: int) -> None:
    """Compares the modules of LeNet with its own; prints how many are called different."""
    false, rows = 0, 0
    for _ in range(times):
        comparison = compare([str(MODEL)] * 2, by="module", settings=SideSettings(threads=1))
        assert comparison.layers is not None
        false += int(comparison.layers["significant_b"].sum())
        rows += len(comparison.layers)
    if times:
        print(f"modules of the same model: {false} of {rows} different, in {times} comparisons")


def layers(share: float, slower: Path, times: int) -> None:
    """Compares the modules of LeNet with the slower one; prints how often the slower is named."""
    began, found, others, ratios, sums = time.perf_counter(), 0, 0, list[float](), 0
    for _ in range(times):
        settings = SideSettings(threads=1)
        comparison = compare([str(MODEL), str(slower)], by="module", settings=settings)
        assert comparison.layers is not None
        rows = comparison.layers.set_index("module")
        row = rows.loc[LAYER.module]
        found += bool(row["significant_b"] and row["ratio_b"] > 1)
        others += int(rows["significant_b"].drop(LAYER.module).sum())
        ratios.append(float(row["ratio_b"]))
        sums += comparison.sums[0].agrees
    ratios.sort()
    print(
        f"{LAYER.module} {share:.0%} slower: named in {found} of {times}; ratio "
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); {others} others "
        f"named; layers and whole runs agree in {sums}; "
        f"{(time.perf_counter() - began) / times:.1f} s each"
    )


def totals(label: str, others: Sequence[Path]) -> None:
    """Compares whole runs of LeNet with each of `others`; prints how many differ."""
    settings, began = SideSettings(threads=1), time.perf_counter()
    results = [compare([str(MODEL), str(o)], by="model", settings=settings) for o in others]
    if not results:
        return
    rows = [comparison.totals.iloc[1] for comparison in results]
    different = sum(bool(row["significant"]) for row in rows)
    ratios = sorted(float(row["ratio"]) for row in rows)
    widths = statistics.median(float(row["ratio_high"] - row["ratio_low"]) for row in rows)
    print(
        f"{label}: different in {different} of {len(rows)}; ratio {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f}), interval {widths:.4f} wide, "
        f"{(time.perf_counter() - began) / len(rows):.1f} s each"
    )


if __name__ == "__main__":
    main()
