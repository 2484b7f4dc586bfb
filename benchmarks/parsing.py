"""Rate of reading events of onnxruntime's profile, compared with `json.loads`."""

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks._measure import counts
from tracer.executors.onnxruntime import profile_events
from tracer.support.measurements import elapsed_us

MODEL = "models/resnet_cifar/resnet20.onnx"


def main() -> None:
    """Writes one profile and reads it both ways, alternating."""
    args = counts(__doc__, runs=2_000, repeats=5)
    with tempfile.TemporaryDirectory() as folder:
        path = _profile(folder, args.runs)
        rates, ratios = [], []
        for _ in range(args.repeats):
            start = time.perf_counter()
            labels = profile_events.Labels()
            read = profile_events.read(path, labels)
            profile_events.tabulate(read, len(labels.kernels))
            ours = time.perf_counter() - start
            ratios.append(elapsed_us(lambda: json.loads(path.read_bytes())) / 1e6 / ours)
            rates.append(len(read) / ours)
        size = path.stat().st_size
    print(f"{len(read):,} events, {size / len(read):.0f} bytes each")
    print(f"events per second: {statistics.median(rates):,.0f} (target ≥ 500,000)")
    print(f"json.loads takes {statistics.median(ratios):.1f} times as long, and tabulates nothing")


def _profile(folder: str, runs: int) -> Path:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = f"{folder}/p"
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for _ in range(runs):
        session.run(None, {name: np.zeros((1, 3, 32, 32), np.float32)})
    return Path(session.end_profiling())


if __name__ == "__main__":
    main()
