"""Times of rows on a busy machine: pairs of profiles beside programs that compute.

Rows of 20 µs and more are compared with their quiet time, and the ten slowest rows of two profiles
with each other: each row of the one is to have at least 0.9 of the tenth of the other, for equal
layers tie. onnxruntime's own durations of the same runs stand beside, as means and as medians.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pandas as pd

import tracer
from benchmarks._networks import Model
from tracer.analyzers.advice import advise
from tracer.records.trace import Trace

LEAST_US, _CLOSE, _TIED, _TOP = 20.0, 0.15, 0.9, 10
_SPIN = "while True: pass"
_BY_TURNS = (
    "import time\nwhile True:\n end = time.time() + 0.05\n while time.time() < end: pass\n"
    " time.sleep(0.05)"
)
LOADS: Mapping[str, Sequence[str]] = {
    "0": [], "1": [_SPIN], "2": [_SPIN] * 2, "3": [_SPIN] * 3, "turns": [_BY_TURNS],
}  # fmt: skip
"""Programs beside the profile: none, one to three that spin, or one that spins and sleeps by turns.

Beside none, what differs is what a row takes in one session and another.
"""


@dataclass(frozen=True, slots=True)
class _Profile:
    """Times of rows, µs, by three estimators, and the rules of the advice."""

    times: pd.Series
    means: pd.Series
    medians: pd.Series
    advice: frozenset[str]
    text: str | None


@contextlib.contextmanager
def programs(sources: Sequence[str]) -> Iterator[None]:
    """Runs Python programs beside the block."""
    started = [subprocess.Popen([sys.executable, "-c", source]) for source in sources]
    time.sleep(0.5 if started else 0)
    try:
        yield
    finally:
        for program in started:
            program.kill()
            program.wait()


def bert12() -> Model:
    """Returns 12 encoder layers of width 128 on 64 tokens, as torch exports them."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 128)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(12)
            )
            self.out = nn.Linear(128, 1000)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embedding(ids)
            for layer in self.layers:
                x = layer(x)
            return self.out(x)

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    ids = torch.randint(0, 1000, (1, 64))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        path = Path(folder) / "bert12.onnx"
        torch.onnx.export(Encoder().eval(), (ids,), path, dynamo=True, external_data=False)
        return onnx.load(path)


def compare(
    name: str, subject: Model | Path, dims: Mapping[str, int], pairs: int, loads: Sequence[str]
) -> None:
    """Prints a line for each load: rows that are right, ranks that agree, advice that is new."""
    quiet = [_profile(subject, dims) for _ in range(3)]
    truth = pd.concat([each.times for each in quiet], axis=1).median(axis=1)
    raw_truth = pd.concat([each.medians for each in quiet], axis=1).median(axis=1)
    advised = frozenset().union(*(each.advice for each in quiet))
    for label in loads:
        with programs(LOADS[label]):
            made = [(_profile(subject, dims), _profile(subject, dims)) for _ in range(pairs)]
        every = [profile for pair in made for profile in pair]
        times, medians, means = (
            _right([getattr(each, which) for each in every], base)
            for which, base in (("times", truth), ("medians", raw_truth), ("means", raw_truth))
        )
        agree = [
            np.mean([_agrees(getattr(a, which), getattr(b, which)) for a, b in made])
            for which in ("times", "medians", "means")
        ]
        new = sorted(frozenset().union(*(each.advice for each in every)) - advised)
        print(
            f"{name:14} {label:>5}  {times}  {medians}  {means}  "
            f"{agree[0]:.1%} {agree[1]:.1%} {agree[2]:.1%}  {', '.join(new) or '-'}",
            flush=True,
        )


def _right(made: Sequence[pd.Series], truth: pd.Series) -> str:
    """Returns the share of rows within 15 % of their quiet time, and the largest difference."""
    long = truth.index[truth >= LEAST_US]
    if not len(long):
        return "no rows     "
    errors = np.array([(times.reindex(long) / truth[long] - 1).abs() for times in made])
    return f"{np.mean(errors < _CLOSE):6.1%} {errors.max():5.0%}"


def _agrees(first: pd.Series, second: pd.Series) -> float:
    """Returns the share of the ten slowest rows of each that are as slow in the other."""
    shares = []
    for a, b in ((first, second), (second, first)):
        tenth = b.nlargest(_TOP).min()
        shares.append((b.reindex(a.nlargest(_TOP).index) >= _TIED * tenth).mean())
    return float(np.mean(shares))


def _profile(subject: Model | Path, dims: Mapping[str, int]) -> _Profile:
    trace: Trace = tracer.profile(subject, threads=1, dims=dims, confirm=False)
    run, nodes = trace.runs[0], trace.nodes
    named = nodes.dropna(subset=["time_us"]).set_index("node")
    kernels = [kernel.name for kernel in run.kernels]

    def by_row(estimate: Callable[..., np.ndarray]) -> pd.Series:
        values = pd.Series(estimate(run.samples, axis=0), kernels).groupby(level=0).sum()
        return named["kernels"].map(
            lambda text: sum(values.get(each, 0.0) for each in text.split("; "))
        )

    told = frozenset(each.rule for each in advise(trace, run, nodes, None))
    text = run.counted.sentence()
    return _Profile(named["time_us"], by_row(np.mean), by_row(np.median), told, text)
