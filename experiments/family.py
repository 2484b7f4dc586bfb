"""Experiment 2: compare a family of ResNets in torch: totals, convolution, backward pass.

python -m experiments.family [--batch 32 --size 224 --threads 0]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tracer
from experiments import _card, _page
from experiments._page import Page
from tracer.analyzers.compare import Comparison
from tracer.analyzers.grouping import by_kernel
from tracer.analyzers.table import backward_share
from tracer.analyzers.views import render
from tracer.api.compare import SideSettings, compare
from tracer.records.trace import Trace

PAGE = "2-family"
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
    "large152": (5.389, 0.70),
}
"""Seconds of a forward pass in the original, batch 32 at 224×224, and the share of convolution."""
_OPERATORS = ("aten::convolution", "aten::clamp_min", "aten::add_")
CALLS = {
    name: {each: calls for each, calls in zip(_OPERATORS, of, strict=True) if calls is not None}
    for name, of in {
        "plain18": (20, 16, 28),
        "plain34": (36, 32, 52),
        "plain50": (36, 32, 52),
        "plain101": (70, 66, 103),
        "plain152": (104, 100, 154),
        "bottleneck18": (None, 24, None),
    }.items()
}
"""Calls of one forward pass in the original, in training mode, where it tells them."""
SHARES = {"plain": "74.4 to 88.8%", "bottleneck": "40 to 45%"}
"""Share of convolution in the networks of a kind; of `large` networks, only that of the last."""
KINDS = ("bottleneck", "large")
DEPTHS = (18, 34, 50, 101, 152)
TOP = 15
STEP = {
    "convolutions in the backward pass": "155",
    "ms of a training step with cross-entropy": "18,200",
    "ms of the backward pass": "9,469",
    "backward pass, share of all operators": "60.1%",
    "and of the wall": "65%",
    "convolution in the backward pass, share of all operators": "51.5%",
}
"""The original's training step of large152, by figure."""

_CALLS = (
    "The networks are those of the original, call for call: no ReLU follows the first convolution "
    "of any kind, and blocks add their input in place. `aten::clamp_min` is the ReLU; `aten::add_` "
    "counts the batches of each batch normalisation, and adds in each block."
)
_WALL = (
    "The original's text gives 65% of the wall to the backward pass; its times, 9.469 s of 18.2 s, "
    "give 52%. Its 51.48% for convolution is the self time of `aten::convolution_backward`. Here "
    "it is the total: at batches below 16, on one thread, torch runs 1×1 convolutions outside of "
    "oneDNN, by `aten::_slow_conv2d_backward` inside of that operator."
)
_GUESS = (
    "A guess: the original says that `large` bottlenecks are four times as wide inside. That alone "
    "gives large152 154 convolutions, for its first stage needs no projection, and more than two "
    "thirds of the time of a plain network. Here they have twice the channels of a bottleneck, "
    "inside and outside. That is four times its work and 155 convolutions, as in the original, and "
    "of the widths that were tried these came closest to its times."
)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--sessions", type=int, default=5, help="sessions of each network")
    parser.add_argument("--runs", type=int, default=1, help="half the training steps")
    parser.add_argument("--networks", nargs="+", default=list(ORIGINAL), metavar="NAME")
    args = parser.parse_args(argv)
    if args.card:
        _card.add(args.card, args.out / f"{PAGE}.md", with_card)
        return
    make(args.networks, args.batch, args.size, args.sessions, args.runs, args.threads).write(
        args.out
    )


def make(
    networks: Sequence[str], batch: int, size: int, sessions: int, runs: int, threads: int
) -> Page:
    """Returns the page; the last network is also profiled in training."""
    sides = [f"{NETWORKS}:{name}@torch" for name in networks]
    settings = SideSettings(
        batch=batch, threads=threads, sessions=sessions, args={"size": size}, train=True
    )
    comparison = compare(sides, by="model", settings=settings)
    step = tracer.profile_framework(
        f"{NETWORKS}:{networks[-1]}", framework="torch", args={"size": size}, batch=batch,
        runs=2 * runs, warmup=1, threads=threads, backward=True, loss="cross-entropy",
    )  # fmt: skip
    rows = by_name(comparison)
    parts = [
        "Thirteen ResNets of three kinds under torch's profiler: the time of a forward pass in "
        "training mode, the share of convolution, and the time of the backward pass. The original "
        f"ran batch 32 at 224×224; this page ran batch {batch} at {size}×{size}.",
        "## Commands",
        _commands(networks, batch, size, sessions, runs, threads),
        "## Forward",
        forward(rows),
        _page.picture("2-family.png", "time of a forward pass, and the share of convolution"),
        "## Calls",
        _CALLS,
        calls(comparison),
        "## Kinds of blocks",
        kinds(rows),
        _GUESS,
        f"## Forward and backward: {networks[-1]}",
        backward(step),
        _WALL,
        f"The {TOP} operators with the largest self time. The total contains inner operators:",
        operators(step),
        "## Beyond the original",
        _page.bullets(*_learned(rows, step)),
    ]
    return Page(PAGE, "Experiment 2: a family of ResNets in torch", parts,
                {"2-family.png": render(comparison, "png")})  # fmt: skip


def by_name(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Returns the row of each network, with the number of convolutions of a forward pass."""
    named = {}
    for side, row in zip(comparison.sides, comparison.totals.to_dict("records"), strict=True):
        calls = side.nodes["calls"][side.nodes["op_type"] == "conv2d"].sum()
        named[_name(side.label)] = row | {"convolutions": int(calls)}
    return named


def _name(label: str) -> str:
    return label.partition(":")[2].partition("@")[0]


def calls(comparison: Comparison) -> str:
    """Returns the calls of operators in a forward pass of each network, with the original's."""
    header = ["network "]
    for operator in _OPERATORS:
        header += [f"`{operator}`", "original"]
    cells = []
    for side in comparison.sides:
        name = _name(side.label)
        ours = by_kernel(side.run).set_index("op_type")["calls"]
        row = [name]
        for operator in _OPERATORS:
            row += [f"{ours[operator]:.0f}", str(CALLS.get(name, {}).get(operator, ""))]
        cells.append(row)
    return _page.table(header, cells)


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
        given = f"{share:.1%}" if share else SHARES.get(name.rstrip("0123456789"), "not given")
        theirs = given, f"{seconds / ORIGINAL[first][0]:.2f}"
        cells.append((name, row["convolutions"], *ours, f"{seconds:.2f}", *theirs))
    return _page.table(header, cells)


def kinds(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the speed-up of bottlenecks and large bottlenecks over plain blocks, by depth."""
    ours = {name: row["time_us"] for name, row in rows.items()}
    theirs = {name: seconds for name, (seconds, _) in ORIGINAL.items()}
    header = (
        "depth", "plain ÷ bottleneck", "plain ÷ large", "original: plain ÷ bottleneck",
        "plain ÷ large",
    )  # fmt: skip
    cells = (
        (depth, *(_speed(kind, depth, of) for of in (ours, theirs) for kind in KINDS))
        for depth in DEPTHS
        if f"plain{depth}" in rows
    )
    return _page.table(header, cells)


def _speed(kind: str, depth: int, times: Mapping[str, float]) -> str:
    names = f"plain{depth}", f"{kind}{depth}"
    return f"{times[names[0]] / times[names[1]]:.2f}" if set(names) <= set(times) else ""


def backward(step: Trace) -> str:
    """Returns the figures of the backward pass of a training step, with the original values."""
    nodes, wall_us = step.nodes, float(step.runs[0].wall_us.mean())
    share = backward_share(nodes) or 0.0
    back_us = share * float(nodes["time_us"].sum())
    of_kernels = by_kernel(step.runs[0]).set_index("op_type").loc["aten::convolution_backward"]
    figures = (
        f"{nodes['calls'][nodes['op_type'] == 'conv2d (backward)'].sum():.0f}",
        f"{wall_us / 1e3:,.0f}",
        f"{back_us / 1e3:,.0f}",
        f"{share:.1%}",
        f"{back_us / wall_us:.1%}",
        f"{of_kernels['time_total_share']:.1%}",
    )
    rows = zip(STEP, figures, STEP.values(), strict=True)
    return _page.table(("figure ", "here", "original"), rows)


def operators(step: Trace) -> str:
    """Returns the operators of the step as in torch's table, less profiler overhead."""
    rows = by_kernel(step.runs[0]).sort_values("time_us", ascending=False).head(TOP)
    rows["ms"], rows["total"] = (rows[c] / 1e3 for c in ("time_us", "time_us_total"))
    columns = {"operator ": "`{op_type}`", "self %": "{time_share:.1%}", "self ms": "{ms:,.2f}",
               "total %": "{time_total_share:.1%}", "total ms": "{total:,.2f}",
               "µs a call": "{time_us_per_call:,.0f}", "calls": "{calls:,.0f}"}  # fmt: skip
    return _page.records(columns, rows.to_dict("records"))


def _commands(
    networks: Sequence[str], batch: int, size: int, sessions: int, runs: int, threads: int
) -> str:
    sizes = f"--arg size={size} --batch {batch} --threads {threads}"
    original = "--batch 32 --size 224 --threads 0 --sessions 2"
    return _page.code(
        f"tracer compare {NETWORKS}:{networks[0]}@torch … {NETWORKS}:{networks[-1]}@torch \\",
        f"    --by model --train {sizes} --sessions {sessions} -o family.png",
        f"tracer profile {NETWORKS}:{networks[-1]} --framework torch {sizes} \\",
        f"    --backward --loss cross-entropy --by kernel --top {TOP}  # or --sort total",
        f"python -m experiments.family --batch {batch} --size {size} --threads {threads} "
        f"--sessions {sessions} --runs {runs}  # this page",
        f"python -m experiments.family {original}  # the original's sizes",
    )


def with_card(text: str, machine: Mapping[str, Any], pages: Mapping[str, Any]) -> str:
    """Returns the page with what was measured on a card."""
    of = pages["family"]
    rows = {name: row for name, row in of["networks"].items() if "error" not in row}
    base, last = "plain18", next(name for name in reversed(ORIGINAL) if name in rows)
    times = {name: row["forward_rows_us"] for name, row in rows.items()}
    forward_cells = {
        name: (f"{row['forward_us'] / 1e3:,.2f}", f"{times[name] / 1e3:,.2f}",
               f"{row['convolution_share']:.1%}", f"{times[name] / times[base]:.2f}",
               f"{row['step_us'] / 1e3:,.1f}", f"{row['backward_share']:.1%}")
        for name, row in rows.items()
    }  # fmt: skip
    header = ("ms", "ms of kernels", "share of convolution", f"÷ {base}", "ms of a step",
              "share of backward")  # fmt: skip
    text = _card.with_columns(text, "## Forward", header, forward_cells)
    kind_cells = {
        str(depth): [_speed(kind, depth, times) for kind in KINDS]
        for depth in DEPTHS
        if f"plain{depth}" in rows
    }
    names = [f"plain ÷ {kind}" for kind in KINDS]
    text = _card.with_columns(text, "## Kinds of blocks", names, kind_cells)
    step, ms = rows[last], rows[last]["step_us"] / 1e3
    back_ms = step["backward_share"] * step["step_rows_us"] / 1e3
    figures = (
        f"{step['backward_convolutions']:.0f}", f"{ms:,.1f}", f"{back_ms:,.1f}",
        f"{step['backward_share']:.1%}", f"{back_ms / ms:.1%}",
        f"{step['backward_convolution_share']:.1%}",
    )  # fmt: skip
    cells = {name: [figure] for name, figure in zip(STEP, figures, strict=True)}
    heading = f"## Forward and backward: {list(ORIGINAL)[-1]}"
    text = _card.with_columns(text, heading, [last], cells)
    columns = {"kernel ": "`{op_type}`", "share": "{time_share:.1%}", "µs": "{time_us:,.1f}",
               "calls": "{calls:,.0f}"}  # fmt: skip
    size = f"--arg size={of['size']} --batch {of['batch']}"
    return _card.with_section(
        text,
        [
            "Columns that begin with `GPU` are those of one card, at the original's batch "
            f"{of['batch']} and {of['size']}×{of['size']}; the other columns are those of the "
            "batch above. The command of a user measures them as well:",
            _page.code(
                f"tracer profile {NETWORKS}:{last} --framework torch {size} \\",
                "    --backward --loss cross-entropy --device cuda --by kernel --top 15",
                "python -m tests.card --part machine --part pages -o card.json",
                "python -m experiments.family --card card.json  # these columns",
            ),
            "`ms` are medians of whole runs, in which the host also launches the kernels. Shares "
            "and ratios are of the time of kernels on the card. Convolutions compute in TF32, "
            "torch's default.",
            _page.folded(f"Kernels of a training step of {last}, those of the largest time",
                         _page.records(columns, step["kernels"])),
            _card.environment(machine),
        ],
    )  # fmt: skip


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
        *_speeds(rows),
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


def _speeds(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a sentence on how much faster bottlenecks are than plain blocks."""
    pairs = ((rows.get(f"plain{d}"), rows.get(f"bottleneck{d}")) for d in DEPTHS)
    speeds = [a["time_us"] / b["time_us"] for a, b in pairs if a and b]
    if not speeds:
        return []
    return [
        f"Bottleneck networks are {min(speeds):.1f} to {max(speeds):.1f} times as fast as plain "
        "ones here. The original concluded about 5 times; its times give 2.3 to 5.6."
    ]


def _shares(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns sentences on the share of convolution for each kind of block."""
    sentences = []
    for kind, original in SHARES.items():
        shares = [row["convolution_share"] for name, row in rows.items() if name.startswith(kind)]
        if shares:
            sentences.append(
                f"Convolution is {min(shares):.1%} to {max(shares):.1%} of a {kind} network's time "
                f"here, and was {original} in the original."
            )
    return sentences


if __name__ == "__main__":
    _page.run(main)
