"""Imports and compiles what commands need, so that forks of this process start at once."""

import importlib
import tempfile
from pathlib import Path

from tests.fuzz import quiet
from tests.fuzz.commands import ENDS, ONE
from tests.fuzz.seeds import LENET, TRACES
from tracer.executors.onnxruntime import calibration

_LATER = (
    "onnxruntime", "matplotlib.pyplot", "pyarrow.parquet", "tracer.executors.onnxruntime.executor",
    "tracer.cli.profile", "tracer.cli.interpret", "tracer.api._profile", "tracer.api._quantize",
    "tracer.analyzers.fusions", "tracer.api._whatif", "onnxruntime.quantization", "scipy.stats",
)  # fmt: skip
"""What the commands below do not import. onnxruntime starts threads, so it runs in forks alone."""


def warm() -> None:
    """Runs commands that start no thread. Raises RuntimeError if one did: a fork would lack it."""
    for name in _LATER:
        importlib.import_module(name)
    profile, sums = (str(TRACES / f"{name}.trace") for name in ("profile", "sums"))
    with tempfile.TemporaryDirectory() as folder:
        files = [
            f"{Path(folder) / 'f'}.{kind}" for kind in ("svg", "png", "json", "csv", "parquet")
        ]
        options = [word for file in files for word in ("-o", file)]
        for args in (
            ("count", str(LENET), *ENDS[:2]),
            ("interpret", str(LENET), "--accumulator", "16", *ONE, "--batch", "1"),
            ("report", profile, *options),
            ("report", sums, "--by", "module"),
            ("compare", profile, profile, "--batch", "1"),
        ):
            quiet.run(*args)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise RuntimeError(f"{threads} threads run: forks would lack all but one")
    quiet.apart(lambda: calibration.measure(1))  # into the user's cache
