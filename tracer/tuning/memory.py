"""The memory that a session takes: how far a process of its own grows while it opens and runs.

python -m tracer.tuning.memory    reads a pickled `_Job` from standard input, prints bytes
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.containment import watch
from tracer.executors.settings import OrtSettings
from tracer.tuning.setup import Setup

_STATUS = Path("/proc/self/status")
_RUNS = 3
"""The first run makes the plan of the memory that others use."""
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Job:
    """A model as bytes, with the folder of its weights, how to run it, and who asks."""

    proto: bytes = field(repr=False)
    path: str | None
    feeds: Mapping[str, Any] = field(repr=False)
    settings: OrtSettings
    caller: int


def peak_bytes(setup: Setup, seconds: float = _SECONDS) -> int | None:
    """Returns the bytes of memory that a session on `setup` takes at most, beside the inputs.

    None where the system does not tell, or the session fails or takes longer than `seconds`.
    """
    if not _STATUS.exists():
        return None
    path = None if setup.model.path is None else str(setup.model.path.resolve())
    job = _Job(
        setup.model.proto.SerializeToString(),
        path,
        setup.feedset.feeds,
        setup.settings,
        os.getpid(),
    )
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-m", __name__],
            input=pickle.dumps(job), capture_output=True, check=True,
            timeout=min(seconds, _SECONDS),
        )  # fmt: skip
        return int(done.stdout.split()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None


def _measure(job: _Job) -> int:
    """Returns by how many bytes a process grows."""
    import onnx

    from tracer.executors.onnxruntime import feeding, sessions
    from tracer.graph.model import Model, expanded_keys

    proto = onnx.ModelProto.FromString(job.proto)
    path = None if job.path is None else Path(job.path)
    model = Model(proto, path, "", expanded_keys(proto))
    factory = sessions.Factory.of(model, job.settings)

    # in a fork, whose highest memory begins with what it has then
    reading, writing = os.pipe()
    us, child = os.getpid(), os.fork()
    if child == 0:
        try:
            watch.die_with(us)
            before = _kibibytes("VmRSS")
            run = feeding.prepared(factory, factory.open(), job.feeds)
            for _ in range(_RUNS):
                run()
            grown = 1024 * max(0, _kibibytes("VmHWM") - before)
            os.write(writing, str(grown).encode())
        finally:
            os._exit(0)  # without a number, it failed
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        return int(stream.read())


def _kibibytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    job = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - written by `peak_bytes`
    watch.die_with(job.caller)
    sys.stdout.write(f"{_measure(job)}\n")
