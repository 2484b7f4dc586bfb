"""Draws the levels of the accumulators of a page: `python -m tests.docs.level_pictures docs`."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.nests import Nest
from tracer.accumulators.spec.orders import Level, Order, Tiles
from tracer.accumulators.spec.policy import parse_policy
from tracer.analyzers.views.drawing import HIGH, PLAIN, empty_figure, saved

PAGE = Path("docs/accelerators.md")
_ROW = re.compile(r"^\| ([^|`]+) \| `([^`]+)`(?:, (operands|fixed) `([^`]+)`)? \|", re.MULTILINE)
_ENDS = {"saturate": "saturates", "symmetric": "saturates", "wrap": "wraps", "zero": "or 0",
         "error": "or ends"}  # fmt: skip


class Row(NamedTuple):
    """An accelerator of the page: its name, its spelling, and the formats of its operands."""

    name: str
    spelling: str
    operands: str | None
    fixed: str | None


class Box(NamedTuple):
    """A register, what goes into it, and what it writes to memory and reads back."""

    text: str
    into: str
    spill: str = ""


def rows(text: str) -> list[Row]:
    """The accelerators of the page."""
    return [
        Row(name, spelling, *((form if kind == each else None) for each in ("operands", "fixed")))
        for name, spelling, kind, form in _ROW.findall(text)
    ]


def boxes(accumulator: AnyAccumulator) -> list[Box]:
    """The registers of an accumulator, from the products to the last sum."""
    match accumulator:
        case Accumulator():
            last = f"{accumulator.bits} bits\n{_ENDS[accumulator.overflow]}"
        case FloatAccumulator():
            last = str(accumulator.format)
        case BlockFma():
            sums = Box(f"{accumulator.fraction} bits\nof fraction", f"{accumulator.length} at once")
            joined = f"each {accumulator.promote}" if accumulator.promote else ""
            return [sums, *([Box("fp32", joined)] if joined else [])]
        case _:
            return [Box(str(accumulator), "")]
    return list(_of_order(accumulator.order, last))


def _of_order(order: Order, last: str) -> Iterator[Box]:
    into, spill = "one by one", ""
    if isinstance(order, Nest):
        into = "by position" if str(order).startswith("positionwise") else "by loops"
        order = order.inner
    if isinstance(order, Tiles):
        lost = ""
        for level in order.levels:
            size = "one each" if level.size == 1 else f"{level.size or 'all'} each"
            yield Box(_register(level), lost or size)
            shift = level.shift
            lost = f">> {shift.bits}\n{shift.rounding}" if shift else ""
            into = lost or "sums"
        if order.spill is not None:
            shift = f", >> {order.spill.shift.bits}" if order.spill.shift else ""
            spill = f"each {order.spill.size}: {order.spill.register} bits{shift}"
    yield Box(last, into, spill)


def _register(level: Level) -> str:
    if level.float_register is not None:
        return str(level.float_register)
    register = level.register
    if register is None:
        return "as the\nlast"
    return "exact" if register.bits == 64 else f"{register.bits} bits\n{_ENDS[register.overflow]}"


def figure(accelerators: list[Row]) -> Figure:
    """A panel for each accelerator."""
    lines = -(-len(accelerators) // 2)
    drawing = empty_figure(9.0, 1.1 * lines)
    grid = drawing.add_gridspec(lines, 2)
    for number, row in enumerate(accelerators):
        axes = drawing.add_subplot(grid[number // 2, number % 2])
        axes.set(xlim=(0, 10.9), ylim=(0, 2.4))
        axes.set_axis_off()
        axes.set_title(row.name, loc="left", fontsize=9)
        (entry,) = parse_policy(row.spelling, row.fixed, operands=row.operands).accumulators
        own = str(entry.value.operand_format) if isinstance(entry.value, BlockFma) else ""
        _draw(axes, boxes(entry.value), row.operands or row.fixed or own)
    return drawing


def _draw(axes: Axes, registers: list[Box], operands: str) -> None:
    axes.text(0.6, 1.3, f"{operands}\nproducts".strip(), ha="center", va="center", fontsize=8)
    left = 1.4
    for box in registers:
        axes.annotate("", (left + 1.5, 1.3), (left, 1.3),
                      arrowprops={"arrowstyle": "->", "color": PLAIN})  # fmt: skip
        axes.text(left + 0.7, 1.4, box.into, ha="center", va="bottom", fontsize=7)
        axes.add_patch(FancyBboxPatch((left + 1.6, 0.75), 1.3, 1.1, boxstyle="round,pad=0.04",
                                      fc="white", ec=PLAIN))  # fmt: skip
        axes.text(left + 2.25, 1.3, box.text, ha="center", va="center", fontsize=8)
        if box.spill:
            axes.annotate("", (left + 1.9, 0.65), (left + 2.6, 0.65),
                          arrowprops={"arrowstyle": "->", "color": HIGH,
                                      "connectionstyle": "arc3,rad=-0.9"})  # fmt: skip
            axes.text(left + 3.0, 0.25, box.spill, va="center", fontsize=7, color=HIGH)
        left += 3.0


def main(arguments: list[str] | None = None) -> None:
    """Writes the picture of the page to a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    picture = saved(figure(rows(PAGE.read_text(encoding="utf-8"))), "png")
    (folder / "accelerators.png").write_bytes(picture)


if __name__ == "__main__":
    main()
