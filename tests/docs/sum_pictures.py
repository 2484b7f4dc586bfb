"""Draws how sums are computed, for two pages: `python -m tests.docs.sum_pictures docs`.

They show what float32 computes here: lanes that are limited, and floats near the limit of 24 bits.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tracer.analyzers.views.drawing import HIGH, PLAIN, empty_figure, saved

BITS, LIMIT = 8, np.float32(127.5)
PRODUCTS = (60, 50, 70, -20, -90, -120, -110, 40, 60)
LAST_LIMIT = np.float32(2**23 - 0.5)
"""The limit of 24 bits, the most that a float32 can do."""
GREY, PALE = "#888888", "#f3d9da"


def lanes(products: Sequence[int], limit: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """What a lane of float32 holds after each product: before and after it is limited."""
    before, after, lane = [], [], np.float32(0.5)
    for product in products:
        added = np.float32(lane + np.float32(product))
        lane = np.clip(added, -limit, limit)
        before.append(added)
        after.append(lane)
    return np.array(before), np.array(after)


def sum_figure() -> Figure:
    """Sums in a lane, both ends of its range, and the floats near the widest one."""
    figure = empty_figure(9.0, 6.4)
    grid = figure.add_gridspec(3, 2, height_ratios=(3.4, 1, 1))
    _draw_sums(figure.add_subplot(grid[0, :]))
    low, high = (figure.add_subplot(grid[1, column]) for column in (0, 1))
    _draw_end(low, -1)
    _draw_end(high, 1)
    _draw_floats(figure.add_subplot(grid[2, :]))
    return figure


def _draw_sums(axes: Axes) -> None:
    """The exact sum and the limited one, after each product."""
    before, after = lanes(PRODUCTS, LIMIT)
    terms, exact = np.arange(1, len(PRODUCTS) + 1), np.cumsum(PRODUCTS)
    limited = before != after
    for low, high in ((127, 240), (-240, -128)):
        axes.axhspan(low, high, color=PALE, lw=0)
    axes.plot(terms, exact, color=GREY, ls="--", marker="o", ms=4, label="exact sum")
    axes.plot(terms, after - 0.5, color=PLAIN, marker="o", label="sum in 8 bits")
    axes.plot(terms[limited], before[limited] - 0.5, "o", color=HIGH, mfc="none", ms=9,
              label="before it is limited: an event")  # fmt: skip
    for term, out, back in zip(terms[limited], before[limited], after[limited], strict=True):
        axes.annotate("", (term, back - 0.5), (term, out - 0.5), arrowprops=_arrow(HIGH))
    axes.set(ylim=(-240, 240), yticks=(-128, 0, 127), xlim=(0.5, len(PRODUCTS) + 0.5))
    axes.set_xticks(terms, [f"{product:+d}" for product in PRODUCTS])
    axes.set_xlabel("products, in the order of addition", fontsize=9)
    axes.set_title("Each product is added to the limited sum", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_end(axes: Axes, sign: int) -> None:
    """Sums above their lanes, at one end of the range of 8 bits."""
    inside = np.arange(123, 128) if sign > 0 else np.arange(-128, -123)
    outside = np.arange(128, 133) if sign > 0 else np.arange(-133, -128)
    edge = sign * 127.5
    axes.axvspan(edge, edge + sign * 5.5, color=PALE, lw=0)
    for values, color in ((inside, PLAIN), (outside, GREY)):
        axes.plot(values + 0.5, np.zeros(len(values)), "|", ms=12, color=color)
        for value in values:
            axes.text(value + 0.5, 0.45, str(value), ha="center", fontsize=8, color=color)
    axes.plot([edge], [0], "o", color=HIGH)
    name = "-L" if sign < 0 else "L"
    axes.text(edge, -0.85, f"{name} = {edge}", ha="center", fontsize=8, color=HIGH)
    axes.text(edge - sign * 5, 0, ". . .", ha="center", va="center", color=PLAIN)
    _bare(axes, "8 bits: a lane (mark) holds its sum (number)" if sign < 0
          else "plus one half, so the range is symmetric")  # fmt: skip


def _draw_floats(axes: Axes) -> None:
    """All floats around the limit of 24 bits, and where a sum beyond it goes."""
    floats = [np.float32(LAST_LIMIT - 3)]
    while floats[-1] < LAST_LIMIT + 5:
        floats.append(np.nextafter(floats[-1], np.float32(np.inf)))
    places = np.array(floats, float) - float(LAST_LIMIT)
    exact = 3.25  # a result of a multiply-add that no float holds
    rounded = float(np.float32(float(LAST_LIMIT) + exact)) - float(LAST_LIMIT)
    axes.axvspan(0, places[-1], color=PALE, lw=0)
    axes.plot(places, np.zeros(len(places)), "|", ms=12, color=GREY)
    axes.plot([0], [0], "o", color=HIGH)
    axes.text(0, -0.85, f"L = {LAST_LIMIT:,.1f}", ha="center", fontsize=8,
              color=HIGH)  # fmt: skip
    axes.plot([exact], [0.5], "x", color=PLAIN)
    axes.text(exact - 0.1, 0.5, "exact", ha="right", va="center", fontsize=8, color=PLAIN)
    axes.annotate("", (rounded, 0.1), (exact, 0.5), arrowprops=_arrow(PLAIN))
    axes.text(rounded, 0.35, "rounded", va="center", fontsize=8, color=PLAIN)
    axes.annotate("", (0.05, -0.1), (rounded, -0.1), arrowprops=_arrow(PLAIN, "arc3,rad=-0.12"))
    axes.text(rounded / 2, -0.85, "limited", ha="center", fontsize=8, color=PLAIN)
    _bare(axes, "24 bits: beyond L floats (marks) are twice as far apart; rounding never crosses L")


def _bare(axes: Axes, title: str) -> None:
    axes.set(ylim=(-1.1, 1), xticks=(), yticks=())
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[:].set_visible(False)


def _arrow(color: str, bend: str = "arc3") -> dict[str, str]:
    return {"arrowstyle": "->", "color": color, "connectionstyle": bend}


def tile_figure() -> Figure:
    """How a tile of sums is computed from rows of factors and a panel of columns."""
    figure = empty_figure(9.0, 4.4)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 19), ylim=(0, 9), aspect="equal")
    axes.set_axis_off()
    axes.text(2.5, 4.2, "factors of some rows\n(first-level cache)", ha="center", fontsize=9)
    _draw_grid(axes, (1, 1), (3, 3), GREY, (1, 1))
    axes.text(11, 7.8, "panel: the columns of the tile, packed by terms\n(second-level cache)",
              ha="center", fontsize=9)  # fmt: skip
    _draw_grid(axes, (7, 4.6), (8, 3), PLAIN, (None, 1))
    axes.text(11, 0.3, "tile: sums of all terms, in vector registers", ha="center", fontsize=9)
    _draw_grid(axes, (7, 1), (8, 3), HIGH, (None, 1))
    axes.text(
        11, 2.5, "lanes = step (lanes + factor x columns)", ha="center", va="center", fontsize=9
    )
    for start, end in (
        ((3.1, 2.5), (6.9, 2.5)),
        ((11, 5.5), (11, 3.1)),
        ((15.1, 2.5), (16.4, 2.5)),
    ):
        axes.annotate("", end, start, arrowprops=_arrow("black"))
    axes.text(5.5, 2.7, "one factor,\nin every lane", ha="center", fontsize=8)
    axes.text(11.2, 4.2, "one term of all columns", va="center", fontsize=8)
    axes.text(15.7, 2.7, "store", ha="center", fontsize=8)
    axes.text(16.6, 2.5, "integers,\nbytes,\nor counts", va="center", fontsize=9)
    return figure


def _draw_grid(
    axes: Axes, corner: tuple[float, float], size: tuple[int, int], color: str,
    filled: tuple[int | None, int],
) -> None:  # fmt: skip
    """Draws squares, and fills one of them, or a whole row."""
    (left, bottom), (wide, high), (column, row) = corner, size, filled
    for x in range(wide):
        for y in range(high):
            axes.add_patch(Rectangle((left + x, bottom + y), 1, 1, fill=False, ec=color, lw=0.8))
    place = (left + (column or 0), bottom + row)
    axes.add_patch(Rectangle(place, wide if column is None else 1, 1, color=to_rgba(color, 0.35)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes both pictures to a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    for name, figure in (("narrow-sum", sum_figure()), ("narrow-tile", tile_figure())):
        (folder / f"{name}.png").write_bytes(saved(figure, "png"))


if __name__ == "__main__":
    main()
