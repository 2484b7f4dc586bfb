"""Time of profiling ResNet-20 10,000 times, compared with a plain loop over a profiled session.

Prints the ratio of the two wall times, the peak memory of `tracer profile`, and the sum of node
times ÷ the wall of an undisturbed run, as the profiler reports it and corrected.
"""

import statistics
import tempfile
from pathlib import Path

import tracer
from benchmarks._measure import counts, in_turn, median_ratio, python
from tracer.analyzers.timing import coverage, wall

MODEL = "models/resnet_cifar/resnet20.onnx"

LOOP = """
import sys, tempfile
import numpy as np, onnxruntime as ort
model, runs, threads, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
options = ort.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = folder + "/p"
options.intra_op_num_threads = threads
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
name = session.get_inputs()[0].name
for _ in range(runs):
    session.run(None, {name: x})
session.end_profiling()
"""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, runs=10_000, threads=2, repeats=3)
    with tempfile.TemporaryDirectory() as folder:
        trace = str(Path(folder) / "run.trace")
        common = [MODEL, str(args.runs), str(args.threads), folder]
        ours, loop = in_turn(
            python(
                "-m", "tracer", "profile", MODEL, "--runs", str(args.runs),
                "--threads", str(args.threads), "--optimization", "none", "-o", trace, "--force",
            ),
            python("-c", LOOP, *common),
            args.repeats,
        )  # fmt: skip
        report(trace, args.runs)
    peak = max(usage.peak_mib for usage in ours)
    seconds = statistics.median(usage.seconds for usage in ours)
    print(f"whole command ÷ plain profiled loop: {median_ratio(ours, loop):.2f} (target ≤ 1.3)")
    print(f"peak memory: {peak:.0f} MiB (target ≤ 350); {seconds:.1f} s for {args.runs:,} runs")


def report(path: str, runs: int) -> None:
    """Prints the number of runs and the two ratios from the saved trace."""
    trace = tracer.load(path)
    run = trace.runs[0]
    assert len(run.samples) == runs, f"{len(run.samples)} of {runs} runs recorded"
    measured = wall(run)["p50"]
    raw = trace.nodes["time_us_raw"].sum()
    print(f"recorded {len(run.samples):,} of {runs:,} runs")
    print(
        f"profiled run ÷ undisturbed run: {statistics.median(run.instrumented_us) / measured:.2f}"
    )
    print(
        f"node sum ÷ wall: {raw / measured:.2f} as reported, {coverage(run, trace.nodes):.2f} here"
    )


if __name__ == "__main__":
    main()
