"""Runs commands with a Python of another processor, and compares what they write with this one's.

    python -m tests.other_processor [--nodes 100] PYTHON ...

PYTHON is its command. For ARM that may be an emulator, qemu-user 10 or later, in which Debian's
Python and the wheels of the core run:

    apt-get download libc6:arm64 python3.11:arm64 ...        then `dpkg -x FILE ROOT` for each
    pip install --target SITE --platform manylinux_2_28_aarch64 --only-binary=:all: numba ...
    python -m tests.other_processor env PYTHONHOME=ROOT/usr PYTHONPATH=SITE:. \\
        qemu-aarch64 -cpu neoverse-n1 -L ROOT ROOT/usr/bin/python3.11

Files that `quantize` and `narrow` write must have the same bytes, the sums of `interpret` the same
statistics, an exact network the same outputs under onnxruntime at any level, threads and batch, and
random narrow sums must agree with their definition there, too.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort

ROOT = Path(__file__).parents[1]
HASHES = "import sys; from tests import other_processor as o; print(*o.output_hashes(sys.argv[1]))"
LENET = "models/lenet/lenet"
DATA = ["--data", "digits", "--limit", "64"]
WRITTEN = {
    "quantized.onnx": ["quantize", f"{LENET}.onnx", "--data", "digits"],
    "narrow.onnx": ["narrow", f"{LENET}.int8.onnx", "--data", "digits", "--bits", "16"],
    "exact.onnx": ["narrow", f"{LENET}.onnx", "--data", "digits", "--exact"],
    "integers.json": ["interpret", f"{LENET}.int8.onnx", "--accumulator", "14", *DATA],
    "floats.json": ["interpret", f"{LENET}.int8.onnx", "--accumulator", "fp16", *DATA],
}


def main():
    """Prints a line for each comparison; returns 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100, help="random nodes of narrow sums")
    parser.add_argument("python", nargs=argparse.REMAINDER, help="command of the other Python")
    arguments = parser.parse_args()
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, command in WRITTEN.items():
            here, there = (
                read_result(python, command, Path(folder) / f"{side}.{name}")
                for side, python in enumerate(([sys.executable], arguments.python))
            )
            differ += print_difference(name, here == there)
        exact = [str(Path(folder) / f"{side}.exact.onnx") for side in range(2)]
        there = run(arguments.python, "-c", HASHES, exact[1])
        differ += print_difference(
            "outputs of exact.onnx", {*there.split()} == output_hashes(exact[0])
        )
    nodes = ["--nodes", str(arguments.nodes)]
    print(run(arguments.python, "-m", "tests.accumulators.oracle", *nodes), flush=True)
    return int(differ > 0)


def print_difference(what, is_equal):
    """Prints whether it is equal; returns whether it is not."""
    print(f"{what:24}{'equal' if is_equal else 'DIFFERENT'}", flush=True)
    return not is_equal


def read_result(python, command, path):
    """What a command writes to a path: bytes of a model, statistics of sums."""
    run(python, "-m", "tracer", *command, "-o", str(path))
    if path.suffix == ".onnx":
        return path.read_bytes()
    (only,) = json.loads(path.read_text())["runs"]
    assert only["sums"] or only["float_sums"]
    return only["sums"], only["float_sums"]


def run(python, *arguments):
    """What a Python prints to stdout."""
    done = subprocess.run([*python, *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


def output_hashes(model):
    """Hashes of a model's outputs over levels, threads and batches."""
    hashes = set()
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        for threads in (1, 2):
            options = ort.SessionOptions()
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
            options.intra_op_num_threads = threads
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            (given,) = session.get_inputs()
            x = np.random.default_rng(5).normal(0, 1, (64, *given.shape[1:])).astype(np.float32)
            for batch in (1, 8, 64):
                parts = [session.run(None, {given.name: x[n : n + batch]})[0]
                         for n in range(0, len(x), batch)]  # fmt: skip
                hashes.add(hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest())
    return hashes


if __name__ == "__main__":
    sys.exit(main())
