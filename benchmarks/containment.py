"""What running in a child process costs: node times of ResNet-20, and the start of a session.

Each figure compares a run in a child with a run in this process; the two take turns.
"""

import statistics

import pandas as pd

import tracer
from benchmarks._measure import counts, in_turn, python

MODEL = "models/resnet_cifar/resnet20.onnx"
SMALL = "models/lenet/lenet.onnx"

CALLS = f"""
import sys, time, tracer
for _ in range(int(sys.argv[1])):
    tracer.profile({SMALL!r}, runs=1, confirm=False)
"""
SEVERAL = 6


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, runs=300, threads=1, turns=15, repeats=9)
    child, here = times(args.turns, args.runs, args.threads)
    ratios = child.div(here)
    whole = child.sum().div(here.sum())
    print(f"sum of node times, child ÷ in process: {whole.median():.3f} (target 0.99 to 1.01)")
    print(f"in half of the turns between {whole.quantile(0.25):.3f} and {whole.quantile(0.75):.3f}")
    print(f"time of a node, child ÷ in process, median: {ratios.median(axis=1).median():.3f}")
    help_page = python("-m", "tracer", "--help")
    print(f"start of a command: {extra(help_page, args.repeats):+.3f} s (target ≤ 0.3)")
    first = extra(python("-c", CALLS, "1"), args.repeats)
    several = extra(python("-c", CALLS, str(SEVERAL)), args.repeats)
    print(f"tracer.profile: {first:+.3f} s for the first call of a session", end=", ")
    print(f"{(several - first) / (SEVERAL - 1):+.3f} s for each other")


def times(turns: int, runs: int, threads: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the raw times of the nodes (rows) in each turn: in the child, and in this process."""
    columns: dict[bool, list[pd.Series[float]]] = {False: [], True: []}
    for turn in range(turns + 1):
        for in_process in (turn % 2 == 0, turn % 2 == 1):  # neither is always the first
            trace = tracer.profile(
                MODEL, runs=runs, threads=threads, confirm=False, in_process=in_process
            )
            if turn:  # the first one starts the child and loads libraries
                columns[in_process].append(trace.nodes.set_index("node")["time_us_raw"])
    return tuple(pd.concat(columns[kind], axis=1, keys=range(turns)) for kind in (False, True))


def extra(command: list[str], repeats: int) -> float:
    """Returns how many seconds `command` takes longer with a child than without, the median."""
    contained, plain = in_turn(command, ["env", "TRACER_IN_PROCESS=1", *command], repeats)
    pairs = zip(contained, plain, strict=True)
    return statistics.median(one.seconds - other.seconds for one, other in pairs)


if __name__ == "__main__":
    main()
