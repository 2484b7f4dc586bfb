"""Experiment 2: compare a family of ResNets in torch: totals, convolution, backward pass.

python -m experiments.family [--batch 32 --size 224 --threads 0]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tracer
from analyzers.compare import Comparison
from analyzers.kernels import by_kernel
from analyzers.views import render
from experiments import _page
from experiments._page import Page
from tracer.api.compare import compare
from tracer.api.compare.sides import SideSettings
from tracer.records.trace import Trace

NETWORKS = "experiments/networks/family.py"
ORIGINAL = {
    "plain18": (1.955 / 0.7435, 0.7435),
    "plain34": (4.992 / 0.8378, 0.8378),
    "plain50": (5.300 / 0.8504, 0.8504),
    "plain101": (8.672 / 0.8631, 0.8631),
    "plain152": (13.168 / 0.8881, 0.8881),
    "bottleneck18": (1.132, None),
    "bottleneck34": (1.488, None),
    "bottleneck50": (1.386, None),
    "bottleneck101": (1.898, None),
    "bottleneck152": (2.644, None),
    "large50": (2.845, None),
    "large101": (3.827, None),
    "large152": (5.389, None),
}
"""Seconds of a forward pass in the original, batch 32 at 224×224, and the share of convolution."""
KINDS = ("bottleneck", "large")
DEPTHS = (18, 34, 50, 101, 152)
TOP = 15


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each network")
    parser.add_argument("--runs", type=int, default=2, help="inferences per round")
    parser.add_argument("--networks", nargs="+", default=list(ORIGINAL), metavar="NAME")
    args = parser.parse_args(argv)
    make(args.networks, args.batch, args.size, args.rounds, args.runs, args.threads).write(args.out)


def make(
    networks: Sequence[str], batch: int, size: int, rounds: int, runs: int, threads: int
) -> Page:
    """Returns the page; the last network is also profiled in training."""
    sides = [f"{NETWORKS}:{name}@torch" for name in networks]
    settings = SideSettings(batch=batch, threads=threads, warmup=1, arguments={"size": size})
    comparison = compare(sides, by="model", settings=settings, rounds=rounds, runs=runs)
    step = tracer.profile_framework(
        f"{NETWORKS}:{networks[-1]}", framework="torch", args={"size": size}, batch=batch,
        runs=2 * runs, warmup=1, threads=threads, backward=True, loss="cross-entropy",
    )  # fmt: skip
    rows = by_name(comparison)
    parts = [
        "Thirteen ResNets of three kinds under torch's profiler: the time of a forward pass, the "
        "share of convolution, and the time of the backward pass. The original ran batch 32 at "
        f"224×224; this page ran batch {batch} at {size}×{size}.",
        "## Commands",
        _commands(networks, batch, size, rounds, runs, threads),
        "## Forward",
        forward(rows),
        _page.picture("2-family.png", "time of a forward pass, and the share of convolution"),
        "## Kinds of blocks",
        kinds(rows),
        f"## Forward and backward: {networks[-1]}",
        _step(step),
        operators(step),
        "## Beyond the original",
        _page.bullets(*_learned(rows, step)),
    ]
    return Page("2-family", "Experiment 2: a family of ResNets in torch", parts,
                {"2-family.png": render(comparison, "png")})  # fmt: skip


def by_name(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Returns the row of each network, with the number of convolutions of a forward pass."""
    named = {}
    for side, row in zip(comparison.sides, comparison.totals.to_dict("records"), strict=True):
        calls = side.nodes["calls"][side.nodes["op_type"] == "conv2d"].sum()
        named[side.label.partition(":")[2].partition("@")[0]] = row | {"convolutions": int(calls)}
    return named


def forward(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns time, share of convolution and ratio of each network, with the original values."""
    first = next(iter(rows))
    header = (
        "network ", "convolutions", "ms", "± ms", "share of convolution", f"÷ {first}",
        "original: s", "convolution", f"÷ {first}",
    )  # fmt: skip
    cells = []
    for name, row in rows.items():
        seconds, share = ORIGINAL[name]
        times = f"{row['time_us'] / 1e3:,.1f}", f"{row['error_us'] / 1e3:,.1f}"
        ours = *times, f"{row['convolution_share']:.1%}", f"{row['ratio']:.2f}"
        theirs = f"{share:.1%}" if share else "", f"{seconds / ORIGINAL[first][0]:.2f}"
        cells.append((name, row["convolutions"], *ours, f"{seconds:.2f}", *theirs))
    return _page.table(header, cells)


def kinds(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the speed-up of bottlenecks and large bottlenecks over plain blocks, by depth."""

    def speed(kind: str, depth: int, times: Mapping[str, float]) -> str:
        names = f"plain{depth}", f"{kind}{depth}"
        return f"{times[names[0]] / times[names[1]]:.2f}" if set(names) <= set(times) else ""

    ours = {name: row["time_us"] for name, row in rows.items()}
    theirs = {name: seconds for name, (seconds, _) in ORIGINAL.items()}
    header = (
        "depth", "plain ÷ bottleneck", "plain ÷ large", "original: plain ÷ bottleneck",
        "plain ÷ large",
    )  # fmt: skip
    cells = (
        (depth, *(speed(kind, depth, of) for of in (ours, theirs) for kind in KINDS))
        for depth in DEPTHS
        if f"plain{depth}" in rows
    )
    return _page.table(header, cells)


def backward_share(step: Trace) -> float:
    """Returns the share of the backward pass in the time of all operators of a training step."""
    nodes = step.nodes
    backward = nodes["op_type"].str.endswith("(backward)") | nodes["node"].str.startswith(
        "backward/"
    )
    return float(nodes["time_us"][backward].sum() / nodes["time_us"].sum())


def _step(step: Trace) -> str:
    wall = float(step.runs[0].wall_us.mean())
    return (
        f"A training step with cross-entropy takes {wall / 1e3:,.0f} ms. The backward pass "
        f"is {backward_share(step):.1%} of the time of its operators (original: 60 to 65 % of the "
        f"wall). The {TOP} operators with the largest self time:"
    )


def operators(step: Trace) -> str:
    """Returns the operators of the step as in torch's table, less profiler overhead."""
    rows = by_kernel(step.runs[0]).sort_values("time_us", ascending=False).head(TOP)
    rows["ms"], rows["total"] = (rows[c] / 1e3 for c in ("time_us", "time_us_total"))
    columns = {"operator ": "`{op_type}`", "self %": "{time_share:.1%}", "self ms": "{ms:,.2f}",
               "total ms": "{total:,.2f}", "µs a call": "{time_us_per_call:,.0f}",
               "calls": "{calls:,.0f}"}  # fmt: skip
    return _page.records(columns, rows.to_dict("records"))


def _commands(
    networks: Sequence[str], batch: int, size: int, rounds: int, runs: int, threads: int
) -> str:
    sizes = f"--arg size={size} --batch {batch} --threads {threads}"
    return _page.code(
        f"tracer compare {NETWORKS}:{networks[0]}@torch … {NETWORKS}:{networks[-1]}@torch \\",
        f"    --by model {sizes} --rounds {rounds} --runs {runs} -o family.png",
        f"tracer profile {NETWORKS}:{networks[-1]} --framework torch {sizes} \\",
        "    --backward --loss cross-entropy --by kernel --top 15",
        f"python -m experiments.family --batch {batch} --size {size} --threads {threads} "
        f"--rounds {rounds} --runs {runs}  # this page",
    )


def _learned(rows: Mapping[str, Mapping[str, Any]], step: Trace) -> list[str]:
    by_module = step.nodes.assign(
        stage=step.nodes["module"].fillna("").str.partition(".")[0],
        backward=step.nodes["op_type"].str.endswith("(backward)"),
    )
    stages = by_module[by_module["stage"].str.startswith("stage")].groupby("stage")["time_us"].sum()
    share = stages.max() / step.nodes["time_us"].sum()
    points = [
        "Runs of the networks alternate, so that load of the machine affects all networks alike. "
        "The original ran each network once, after one warm-up run.",
        *_shares(rows),
        "The backward pass of each operator is listed with its forward pass, under the same "
        f"module: {stages.idxmax()} takes {share:.0%} of the step.",
    ]
    if {"plain34", "plain50"} <= set(rows):
        ratio = rows["plain50"]["time_us"] / rows["plain34"]["time_us"]
        points.append(
            "plain34 and plain50 have the same blocks, which checks the measurement: plain50 takes "
            f"{ratio:.2f} times as long as plain34 here, and took 1.05 times as long in the "
            "original."
        )
    return points


def _shares(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns sentences on the share of convolution for each kind of block."""
    theirs = {"plain": "74 to 89 %", "bottleneck": "40 to 45 %"}
    sentences = []
    for kind, original in theirs.items():
        shares = [row["convolution_share"] for name, row in rows.items() if name.startswith(kind)]
        if shares:
            sentences.append(
                f"Convolution is {min(shares):.0%} to {max(shares):.0%} of a {kind} network's time "
                f"here, and was {original} in the original."
            )
    return sentences


if __name__ == "__main__":
    _page.run(main)
