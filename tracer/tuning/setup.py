"""A model, the inputs that it is run on, how onnxruntime runs it, the machine, and memory.

python -m tracer.tuning.setup    reads a pickled `_Job` from standard input, prints the bytes by
which a process of its own grows while it opens and runs a session
"""

from __future__ import annotations

import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from tracer import host
from tracer.containment import memory, watch
from tracer.executors.settings import OrtSettings, SessionSettings
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records import environment
from tracer.support.temporary import TemporaryFolder


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor of this machine, and the providers of the installed onnxruntime.

    `cores` are the physical ones that this process may use, which onnxruntime's default is a thread
    for each of; `cpus` are the logical ones. `flags` are instruction sets.
    """

    cpu: str
    architecture: str
    cores: int
    cpus: int
    flags: frozenset[str]
    providers: tuple[str, ...]
    onnxruntime: str

    @classmethod
    def this(cls) -> Machine:
        """Returns the machine that this runs on."""
        return cls(
            cpu=environment.cpu_model(),
            architecture=platform.machine(),
            cores=host.cores(),
            cpus=memory.processor_count(),
            flags=frozenset(environment.cpu_flags()),
            providers=tuple(ort.get_available_providers()),
            onnxruntime=ort.__version__,
        )

    @property
    def multiplies_bytes(self) -> bool:
        """Whether it has instructions that add products of bytes in 32 bits, exactly."""
        return environment.adds_bytes_exactly(self.flags)

    @property
    def saturates(self) -> bool:
        """Whether unsigned by signed bytes are added in pairs of 16 bits, which saturate."""
        return environment.saturates(self.flags)


SPINNING = "session.intra_op.allow_spinning"
"""The entry of a session's configuration that is "0" where its threads sleep without work."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured: `model` on `feedset`, which is `samples` times the original batch.

    `files` hold the weights of a changed model that has them in files of their own.
    """

    model: Model = field(repr=False)
    feedset: FeedSet = field(repr=False)
    settings: OrtSettings
    samples: int = 1
    files: tuple[TemporaryFolder, ...] = field(default=(), repr=False)

    @property
    def session(self) -> SessionSettings:
        """How its sessions run, beside threads and level."""
        return self.settings.session

    @property
    def likeness(self) -> tuple[str, str, int]:
        """What two setups have in common that run the same model in the same way."""
        return self.model.sha256, repr(self.settings), self.samples

    @property
    def spins(self) -> bool:
        """Whether threads look for work in a loop for some time after a run."""
        several = self.settings.threads != 1 or self.session.parallel
        return several and self.session.entries.get(SPINNING) != "0"

    @property
    def open_dims(self) -> dict[str, int]:
        """The symbolic dimensions of the inputs, with their sizes here."""
        shapes = self.feedset.shapes
        return {
            dim.dim_param: size
            for value in self.model.inputs
            if value.name in shapes
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=False)
            if dim.dim_param
        }

    @property
    def whole_proto(self) -> onnx.ModelProto:
        """The model with all of its weights in memory."""
        return stored_weights.with_inline_weights(self.model.proto, self.model.folder)

    def with_settings(self, **changes: Any) -> Setup:
        """Returns the same model with other values of some fields of `OrtSettings`."""
        return replace(self, settings=replace(self.settings, **changes))

    def with_session(self, **changes: Any) -> Setup:
        """Returns the same model with other values of some fields of `SessionSettings`."""
        return self.with_settings(session=replace(self.session, **changes))

    def with_entries(self, entries: Mapping[str, str]) -> Setup:
        """Returns the same model in sessions with further entries in their configuration."""
        return self.with_session(entries={**self.session.entries, **entries})

    def with_model(self, model: Model, *files: TemporaryFolder) -> Setup:
        """Returns another model in the same settings, on the same inputs."""
        return replace(self, model=model, files=(*self.files, *files))

    def with_proto(self, proto: onnx.ModelProto) -> Setup:
        """Returns another model, all of whose weights are in memory; it keeps its name."""
        changed = replace(loading.from_proto(proto), subject=self.model.name)
        return self.with_model(changed)


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
    from tracer.graph.model import Model

    proto = onnx.ModelProto.FromString(job.proto)
    path = None if job.path is None else Path(job.path)
    model = Model.of(proto, path)
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
