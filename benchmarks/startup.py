"""Time of `tracer --help`, compared with a Python that does nothing."""

import statistics

from benchmarks._measure import counts, in_turn, median_ratio, python


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, repeats=15)
    ours, bare = in_turn(python("-m", "tracer", "--help"), python("-c", "pass"), args.repeats)
    seconds = statistics.median(usage.seconds for usage in ours)
    print(f"tracer --help: {seconds:.3f} s (target ≤ 0.15)")
    print(f"÷ a bare interpreter: {median_ratio(ours, bare):.1f}")


if __name__ == "__main__":
    main()
